"""A writer of a job's records says which checkpoint counts: where they are signed, nothing but a key can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.code.chosen import as_chosen, choose_code
from streambank.code.code import Code
from streambank.control.control import JobControl
from streambank.control.records import RecordStream
from streambank.core.errors import IntegrityError, RefusedError, StreambankError
from streambank.core.signing import VARIABLE, new_key
from streambank.declaration.declaration import Job
from streambank.doctor.diagnose import diagnose_job
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import proven_launch, write_launch
from streambank.job.move_records import move_records
from streambank.job.sign_records import sign_records
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from streambank.upgrade.record import newest_upgrade
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.refuses import refuses

ELSEWHERE = "file:///tmp/somewhere-else"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    fake_launcher(tmp_path)
    return declare(tmp_path)


def refusal(job: Job) -> str:
    """What becomes of a start: its code, or `starts`."""
    control = job.records()
    try:
        prepare_launch(job, control, by=BY)
        control.desired()
    except StreambankError as error:
        return error.code
    return "starts"


def forged(location: str = ELSEWHERE) -> Mapping[str, object]:
    """What a writer of the records would like to count."""
    return {
        "generation": 2,
        "location": location,
        "from_savepoint": None,
        "made_at": "2026-11-25T10:00:00.000Z",
        "by": {},
    }


def as_anybody(job: Job) -> RecordStream:
    """The generations, as who has no key writes them."""
    return RecordStream(job.records().store, "generation/main")


def test_a_forged_generation_is_refused_wherever_it_would_decide(job: Job, key: Path) -> None:
    assert refusal(job) == "starts"
    assert as_anybody(job).create(2, forged())
    assert refusal(job) == "not-signed"
    shown = list(job.records().generations().records.history())
    assert "location" in shown[0].data and shown[1].data["error"] == "not-signed"
    with refuses(IntegrityError, "not-signed") as refused:
        job_status(job)
    assert "0000000002.json is not signed" in refused.value.message


def test_without_keys_the_same_forgery_counts(job: Job) -> None:
    """The negative control: it is the key that refuses."""
    assert refusal(job) == "starts"
    assert as_anybody(job).create(2, forged(f"{job.checkpoint}.g0002"))
    assert job.records().generations().current() is not None
    assert refusal(job) == "starts"


def test_a_signature_is_worth_nothing_for_another_record(job: Job, key: Path, tmp_path: Path) -> None:
    assert refusal(job) == "starts"
    store = job.records().store
    (signature,) = [one for one in store.names("generation/main") if one.endswith(".signature")]
    store.write("generation/main/0000000002.json", store.read("generation/main/0000000001.json"))
    store.write(f"generation/main/0000000002{signature.removeprefix('0000000001')}", b"")
    assert refusal(job) == "bad-signature"
    store.delete("generation/main/0000000002.json")
    assert refusal(job) == "starts"
    changed = store.read("generation/main/0000000001.json").replace(b'"generation": 1', b'"generation": 9')
    store.write("generation/main/0000000001.json", changed)
    assert refusal(job) == "bad-signature"


def test_one_job_cannot_have_the_records_of_another(job: Job, key: Path) -> None:
    assert refusal(job) == "starts"
    other = JobControl(job.records().store, "sales")
    with pytest.raises(IntegrityError):
        other.generations().current()


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_what_is_meant_to_be_cannot_be_forged(job: Job, key: Path, state: str) -> None:
    job.records().set_desired("running", by=BY)
    RecordStream(job.records().store, "desired").append({"state": state, "at": "2026-11-25T10:00:00.000Z"})
    with pytest.raises(IntegrityError):
        job.records().desired()
    stop_job(job, by=BY, why="a stop does not rest on what was recorded before")
    desired = job.records().desired()
    assert desired is not None and desired.state == "stopped"


def test_the_code_that_runs_cannot_be_forged(job: Job, key: Path, tmp_path: Path) -> None:
    """Who may write among the records would like each start to run another program."""
    records, declared = job.records(), Code.declared(job)
    other = replace(declared, application="/tmp/evil.py", program="sha256:00")
    choose_code(records, declared, replace(declared, args=("as", "chosen")), by=BY, why="")
    assert as_chosen(job, records)[0].args == ("as", "chosen"), "what was signed counts"
    ids = {"instead_of": declared.identity, "instead_of_unread": declared.identity_unread}
    chosen = {**ids, "code": other.to_dict(), "by": {}}
    RecordStream(records.store, "chosen").append({**chosen, "at": "2026-11-25T10:00:00.000Z"})
    with refuses(IntegrityError, "not-signed"):
        as_chosen(job, records)
    with refuses(IntegrityError, "not-signed"):
        start_job(job, by=BY, launcher=fake_launcher(tmp_path))
    RecordStream(records.store, "upgrades").append({"state": "swapped"})
    with refuses(IntegrityError, "not-signed"):
        newest_upgrade(records)


def test_a_launch_that_was_changed_is_nothing_to_go_back_to(job: Job, key: Path) -> None:
    records = job.records()
    spec = replace(prepare_launch(job, records, by=BY), code=Code.declared(job).to_dict())
    write_launch(records, spec)
    assert proven_launch(records, spec.launch_id) == spec
    forged = replace(spec, code={**Code.declared(job).to_dict(), "application": "/tmp/evil.py"})
    records.store.write(spec.key, forged.encoded())
    assert proven_launch(records, spec.launch_id) is None
    RecordStream(records.store, "launched").append({"launch_id": spec.launch_id, "digest": forged.digest})
    with refuses(IntegrityError, "not-signed"):
        proven_launch(records, spec.launch_id)


def test_an_installation_that_has_lost_its_key_decides_nothing(
    job: Job, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(job) == "starts"
    job.records().set_desired("running", by=BY)
    monkeypatch.delenv(VARIABLE)
    assert refusal(job) == "signing-key-missing"
    with refuses(RefusedError, "signing-key-missing"):
        job.records().set_desired("stopped", by=BY)
    with pytest.raises(RefusedError) as refused:
        job.records().generations().propose(taken=lambda location: False)
    assert refused.value.code == "signing-key-missing", "before a restore copies anything"
    assert job.records().generation() is not None, "looking is allowed; deciding is not"


def test_a_job_that_is_declared_as_signed_is_not_read_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who deletes all signatures and meets a host without a key has switched nothing off."""
    fake_launcher(tmp_path)
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    job = declare(tmp_path, more="signed = true\n")
    assert refusal(job) == "starts"
    store = job.records().store
    for name in store.names("generation/main"):
        if name.endswith(".signature"):
            store.delete(f"generation/main/{name}")
    monkeypatch.delenv(VARIABLE)
    for look in (job.records, job.open_repository):
        with refuses(RefusedError, "signing-key-missing", hint="`signed`"):
            look()
    answer = streambank("job", "status", "flights", "--jobs", job.source)
    assert answer.code != 0 and "has to be signed" in answer.err


def test_records_from_before_the_key_are_signed_by_who_knows_them(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(job) == "starts"
    job.records().set_desired("running", by=BY)
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    assert refusal(job) == "not-signed"
    answer = succeed("job", "sign-records", "flights", "--jobs", job.source)
    assert f"main: {job.checkpoint}" in answer.out
    assert "2 records of job flights, which is meant to be running: signed by key" in answer.out
    assert refusal(job) == "starts"
    assert sign_records(job, by=BY).records == 0, "what is signed stays as it is"


def test_a_new_key_takes_over_from_the_old_one(job: Job, key: Path, tmp_path: Path) -> None:
    assert refusal(job) == "starts"
    old = key.read_text()
    new_key(tmp_path / "new")
    key.write_text((tmp_path / "new").read_text() + old)
    assert refusal(job) == "starts"
    both = key.read_text()
    key.write_text((tmp_path / "new").read_text())
    assert refusal(job) == "not-signed"
    key.write_text(both)
    assert sign_records(job, by=BY).records == 1
    assert sign_records(job, by=BY).records == 0, "what the first key has signed stays as it is"
    key.write_text((tmp_path / "new").read_text())
    assert refusal(job) == "starts"


def test_signatures_move_with_the_records_and_go_with_them(job: Job, key: Path, tmp_path: Path) -> None:
    assert refusal(job) == "starts"
    for _ in range(3):
        job.records().set_desired("stopped", by=BY)
    stream = job.records().desired_records
    stream.drop([1, 2])
    left = job.records().store.names("desired")
    assert not [name for name in left if name.endswith(".signature") and not name.startswith("0000000003")]
    assert stream.latest() is not None
    moved = move_records(job, by=BY, to=str(tmp_path / "control"))
    assert JobControl.open(moved.target.rpartition("/")[0], job.name).generation() is not None


def test_a_record_that_is_listed_before_its_signature_is_looked_at_again(job: Job, key: Path) -> None:
    """A directory that is listed while names come may show a record, and not what was there before it."""
    assert refusal(job) == "starts"
    records = job.records()
    data = records.store.read("generation/main/0000000001.json")
    records.signer.check("generation/main/0000000001.json", data, ["0000000001.json"])


def test_doctor_says_what_is_not_signed_and_who_can_read_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_launcher(tmp_path)
    job = declare(tmp_path)
    repository = job.open_repository(create=True)
    place = repository.store
    place.write(f"savepoints/{job.name}/b000001-0123456789ab.json", b"{}")

    def codes() -> set[str]:
        return {one.code for one in diagnose_job(job)[0].findings if "sign" in one.code}

    assert codes() == set()
    key = tmp_path / "keys"
    new_key(key)
    monkeypatch.setenv(VARIABLE, str(key))
    assert codes() == {"not-signed"}
    key.chmod(0o644)
    assert codes() == {"not-signed", "signing-key-open"}
    place.write(f"signatures/{job.name}/b000001-0123456789ab/0123456789abcdef-00", b"")
    key.chmod(0o600)
    assert codes() == set()
    monkeypatch.delenv(VARIABLE)
    assert codes() == {"signing-key-missing"}
