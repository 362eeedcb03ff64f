"""A writer of the repository makes a savepoint: where savepoints are signed, nothing but a key can."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, RefusedError, StreambankError
from streambank.core.signing import VARIABLE, new_key, read_keys
from streambank.driver.environment import OWN_PROGRAMS, driver_environment
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.replicas.repair import repair
from streambank.repository.catalog import manifest_key
from streambank.repository.manifest import encode
from streambank.repository.repository import Repository
from streambank.savepoint.sign import sign_savepoint
from streambank.savepoint.verify import VerifyReport, verify
from streambank_spark.rewrite.derive import SourceSavepoint, derive
from tests.support.cli import streambank, succeed
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses


@pytest.fixture
def shop(tmp_path: Path, key: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path / "shop", sink=False).run(3)


def reopened(shop: SimulatedJob) -> Repository:
    return Repository.open(shop.repository_store)


def restored(shop: SimulatedJob, savepoint: str, name: str = "again") -> str:
    """What becomes of a restore: its code, or `restored`."""
    try:
        restore(RestoreRequest(reopened(shop), savepoint, job=JOB, into=shop.open(name)))
    except StreambankError as error:
        return error.code
    return "restored"


def forge(shop: SimulatedJob, of: str, **changes: object) -> None:
    """Change a manifest and seal it, as anybody can who may write there."""
    plain = reopened(shop).without_keys()
    changed = replace(plain.load(JOB, of), **changes)  # type: ignore[arg-type]
    shop.repository_store.write(manifest_key(JOB, changed.savepoint), b"".join(encode(changed)))


def test_what_was_signed_is_verified_restored_and_replicated(shop: SimulatedJob) -> None:
    taken = shop_take(shop)
    assert verify(reopened(shop), JOB, taken, "full").findings == ()
    assert restored(shop, "latest-good") == "restored"
    succeed(*copied(shop))
    assert Repository.open(shop.open("replica")).load(JOB, taken).savepoint == taken


def copied(shop: SimulatedJob) -> tuple[str, ...]:
    """The command that replicates its savepoints."""
    return ("replicate", "-r", shop.repository_store.uri, "--to", shop.open("replica").uri)


def shop_take(shop: SimulatedJob) -> str:
    shop.repository = reopened(shop)  # with the key
    return shop.take().savepoint


@pytest.mark.parametrize("removed", [False, True])
def test_a_manifest_that_was_changed_and_sealed_again_is_refused(shop: SimulatedJob, removed: bool) -> None:
    taken = shop_take(shop)
    files = reopened(shop).load(JOB, taken).files
    swapped = (replace(files[0], digest=files[1].digest, size_bytes=files[1].size_bytes), *files[1:])
    forge(shop, taken, files=swapped, note="mine")
    if removed:
        for info in list(shop.repository_store.list("signatures")):
            shop.repository_store.delete(info.path)
    code = "not-signed" if removed else "bad-signature"
    assert restored(shop, taken) == code
    assert restored(shop, "latest-good") == "no-good-savepoint"
    (finding,) = verify(reopened(shop), JOB, taken, "quick", record=False).findings
    assert (finding.code, finding.severity) == (code, "error")
    assert streambank(*copied(shop)).code == 1
    assert not shop.open("replica").exists(manifest_key(JOB, taken))


def test_a_savepoint_is_not_passed_off_as_another_ones(shop: SimulatedJob) -> None:
    taken = shop_take(shop)
    other = "b000009-0123456789ab"
    forge(shop, taken, savepoint=other)
    for info in list(shop.repository_store.list(f"signatures/{JOB}/{taken}")):
        name = info.path.rpartition("/")[2]
        shop.repository_store.write(f"signatures/{JOB}/{other}/{name}", b"")
    assert restored(shop, other) == "bad-signature"
    assert restored(shop, taken) == "restored"


def test_a_key_of_somebody_else_signs_nothing(
    shop: SimulatedJob, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_key(tmp_path / "theirs")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "theirs"))
    taken = shop_take(shop)
    monkeypatch.setenv(VARIABLE, str(key))
    assert restored(shop, taken) == "not-signed"


def test_a_new_take_does_not_build_on_what_is_not_signed(shop: SimulatedJob) -> None:
    """Unchanged files are used again without reading them: not by the word of a forged savepoint."""
    taken = shop_take(shop)
    files = reopened(shop).load(JOB, taken).files
    wrong = tuple(
        replace(one, digest=files[0].digest, size_bytes=files[0].size_bytes)
        if one.path.startswith("state/")
        else one
        for one in files
    )
    forge(shop, taken, files=wrong)
    shop.run(1)
    second = shop_take(shop)
    assert reopened(shop).load(JOB, second).parent is None
    assert verify(reopened(shop), JOB, second, "full").findings == ()
    assert restored(shop, second) == "restored"


def test_it_is_not_switched_off_in_silence(shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = shop_take(shop)
    monkeypatch.delenv(VARIABLE)
    assert restored(shop, taken) == restored(shop, "latest-good") == "signing-key-missing"
    shop.run(1)
    with refuses(RefusedError, "signing-key-missing"):
        shop_take(shop)
    assert verify(reopened(shop), JOB, taken, "full").findings == (), "who has no key may look"
    succeed(*copied(shop))
    assert list(shop.open("replica").list("signatures")), "and copy, with the signatures"
    for info in list(shop.repository_store.list("signatures")):
        shop.repository_store.delete(info.path)
    assert restored(shop, taken) == "restored", "given up by hand"


def test_savepoints_of_before_are_signed_by_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = SimulatedJob(tmp_path / "shop", sink=False).run(3)
    taken = shop.take().savepoint
    assert restored(shop, taken, "before") == "restored", "without a key nothing changes"
    named = ("-r", tmp_path / "shop/repository", "--json")
    assert streambank("sign", "--all", *named).document["error"] == "bad-signing-key"
    made = succeed("key", tmp_path / "keys", "--json").document
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    assert restored(shop, taken) == "not-signed"
    (signed,) = succeed("sign", "--all", *named).document
    assert (signed["signed"], signed["key"]) == (True, made["key"])
    assert restored(shop, taken) == "restored"
    assert "already" in succeed("sign", taken, *named).document[0]["says"]


def test_what_is_damaged_is_not_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = SimulatedJob(tmp_path / "shop", sink=False).run(3)
    taken = shop.take().savepoint
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    for info in list(shop.repository_store.list("packs")):
        data = shop.repository_store.read(info.path)
        shop.repository_store.write(info.path, data[:20] + bytes([data[20] ^ 1]) + data[21:])
    assert not sign_savepoint(reopened(shop), JOB, taken).signed
    assert restored(shop, taken) == "not-signed"


def test_what_is_exchanged_while_it_is_verified_is_not_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = SimulatedJob(tmp_path / "shop", sink=False).run(3)
    taken = shop.take().savepoint
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))

    def exchanged(*args: Any, **kwargs: Any) -> VerifyReport:
        report = verify(*args, **kwargs)
        forge(shop, taken, note="mine")
        return report

    monkeypatch.setattr("streambank.savepoint.sign.verify", exchanged)
    answer = sign_savepoint(reopened(shop), JOB, taken)
    assert not answer.signed and "changed while it was verified" in answer.says
    assert restored(shop, taken) == "not-signed"


def test_a_key_is_replaced_without_a_gap(shop: SimulatedJob, key: Path, tmp_path: Path) -> None:
    old = shop_take(shop)
    new_key(tmp_path / "new")
    key.write_text(f"# the new one signs\n{(tmp_path / 'new').read_text()}\n{key.read_text()}")
    assert len(read_keys(key)) == 2
    shop.run(1)
    new = shop_take(shop)
    assert restored(shop, old) == restored(shop, new, "second") == "restored"
    both = key.read_text()
    key.write_text((tmp_path / "new").read_text())
    assert (restored(shop, old, "third"), restored(shop, new, "fourth")) == ("not-signed", "restored")
    key.write_text(both)
    succeed("sign", "--all", "-r", shop.repository_store.uri)  # as docs/howto/access.md says
    key.write_text((tmp_path / "new").read_text())
    assert restored(shop, old, "fifth") == restored(shop, new, "sixth") == "restored"


@pytest.mark.parametrize("text", ["", "# none\n", "abc", "00" * 31, "zz" * 32, "é" * 40])
def test_a_key_that_is_none_is_an_error_and_not_no_key(shop: SimulatedJob, key: Path, text: str) -> None:
    key.write_text(text)
    with refuses(InputError, "bad-signing-key") as caught:
        reopened(shop)
    if text:
        assert text.strip() not in f"{caught.value.message} {caught.value.hint}" or text.startswith("#")


def test_a_key_is_only_its_owners_and_never_shown(tmp_path: Path, shop: SimulatedJob, key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    secret = key.read_text().strip()
    shop_take(shop)
    stored = b"".join(shop.repository_store.read(info.path) for info in shop.repository_store.list())
    names = json.dumps([info.path for info in shop.repository_store.list()])
    assert secret.encode() not in stored and secret not in names
    assert secret not in repr(read_keys(key))
    assert streambank("key", key, "--json").document["error"] == "bad-signing-key", "it is not replaced"


def test_no_jobs_application_gets_the_key_and_our_programs_do(key: Path) -> None:
    assert VARIABLE in OWN_PROGRAMS
    assert VARIABLE not in driver_environment(os.environ)
    assert driver_environment(os.environ, extra=OWN_PROGRAMS)[VARIABLE] == str(key)


def test_a_repair_brings_the_signature_with_the_manifest(shop: SimulatedJob) -> None:
    taken = shop_take(shop)
    succeed(*copied(shop))
    store = shop.repository_store
    store.write(manifest_key(JOB, taken), store.read(manifest_key(JOB, taken))[:-40])
    for info in list(store.list("signatures")):
        store.delete(info.path)
    report = repair(reopened(shop), [Repository.open(shop.open("replica"))], [(JOB, taken)])
    assert report.ok and restored(shop, taken) == "restored"


def test_to_replace_a_key_vouches_for_nothing_that_was_not_signed(
    shop: SimulatedJob, key: Path, tmp_path: Path
) -> None:
    signed = shop_take(shop)
    shop.run(1)
    planted = shop_take(shop)
    for info in list(shop.repository_store.list(f"signatures/{JOB}/{planted}")):
        shop.repository_store.delete(info.path)
    new_key(tmp_path / "new")
    key.write_text(f"{(tmp_path / 'new').read_text()}{key.read_text()}")
    named = ("-r", shop.repository_store.uri, "--json")
    answer = streambank("sign", "--all", *named)
    says = {one["savepoint"]: one["signed"] for one in answer.document}
    assert (answer.code, says) == (1, {signed: True, planted: False})
    assert restored(shop, planted) == "not-signed"
    assert succeed("sign", planted, "--unsigned", *named).document[0]["signed"]
    forge(shop, signed, note="mine")
    answer = streambank("sign", signed, *named)
    assert answer.code == 1 and "not what was signed" in answer.out


def test_without_the_key_nothing_is_copied_and_no_state_is_read(
    shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a rewrite runs without the key, such as in a cluster, it says so before Spark has begun."""
    taken = shop_take(shop)
    monkeypatch.delenv(VARIABLE)
    shop.repository = reopened(shop)
    shop.run(1)
    before = {info.path for info in shop.repository_store.list()}
    nothing: Any = None  # whoever asks it anything ends with another error
    for act in (
        shop.take,
        lambda: derive(SourceSavepoint(nothing, shop.repository, JOB, taken, nothing), "compact"),
    ):
        with refuses(RefusedError, "signing-key-missing"):
            act()
    assert {info.path for info in shop.repository_store.list()} == before
