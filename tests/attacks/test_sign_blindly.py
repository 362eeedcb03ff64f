"""`sign-records` makes true what a writer of the records has planted: it shows that first, and asks."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from streambank.code.chosen import choose_code, newest_choice
from streambank.code.code import Code
from streambank.control.records import RecordStream
from streambank.core.errors import ConflictError, IntegrityError
from streambank.core.names import STANDBY
from streambank.core.signing import VARIABLE, new_key
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import write_launch
from streambank.job.sign_records import look_at_records, sign_records
from streambank.sites.records import SiteRecord, Sites
from streambank.upgrade.record import Upgrade, newest_upgrade, remember, upgrades_of
from tests.support.cli import Answer, streambank, succeed
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses

AT = "2026-11-25T10:00:00.000Z"
VICTIM = "file:///victim/of/clean"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job from before there were keys."""
    made = declare(tmp_path)
    made.records().generations().ensure_first(made.checkpoint, by=BY)
    made.records().set_desired("running", by=BY)
    return made


@pytest.fixture
def keyed(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """The same, on the day that the key comes."""
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    return job


def plant(job: Job, folder: str, number: int, data: dict[str, Any]) -> None:
    """Write a record as who has no key."""
    assert RecordStream(job.records().store, folder).create(number, data)


def plant_code(job: Job) -> None:
    declared = Code.declared(job)
    evil = replace(
        declared, application="/tmp/evil.py", python="/tmp/evil", args=("secret", "b"), program=None
    )
    ids = {"instead_of": declared.identity, "instead_of_unread": declared.identity_unread}
    plant(job, "chosen", 1, {**ids, "code": evil.to_dict(), "by": {}, "why": "", "at": AT})


def remember_unsigned(job: Job, upgrade: Upgrade) -> None:
    """Write an upgrade's record as who has no key."""
    RecordStream(job.records().store, "upgrades").append(upgrade.to_record())


def plant_generation(job: Job, location: str) -> None:
    """One in the middle: what counts is the declared checkpoint, as before."""
    for number, place in ((2, location), (3, job.checkpoint)):
        again = {"again": 1} if number == 3 else {}
        said = {"generation": number, "location": place, "from_savepoint": None, "made_at": AT, "by": {}}
        plant(job, "generation/main", number, {**said, **again})


def sign(job: Job, *more: str) -> Answer:
    return streambank("job", "sign-records", job.name, "--jobs", job.source, *more)


def test_a_planted_choice_is_shown_and_not_signed_without_a_yes(keyed: Job) -> None:
    plant_code(keyed)
    answer = sign(keyed)
    assert answer.code == 8 and "not-confirmed" in sign(keyed, "--json").out + sign(keyed, "--json").err
    said = "the code of /tmp/evil.py, with /tmp/evil, 2 arguments and 0 settings"
    assert said in answer.out and said in answer.err, "also where nobody reads stdout"
    assert "secret" not in answer.out + answer.err
    with refuses(IntegrityError, "not-signed"):
        newest_choice(keyed.records())


def test_a_planted_generation_is_shown_and_not_signed_without_a_yes(keyed: Job) -> None:
    plant_generation(keyed, VICTIM)
    answer = sign(keyed)
    assert answer.code == 8
    assert f"main: {VICTIM}\n" in answer.out and f"{VICTIM}, of query main, is not at" in answer.err
    assert f"main: {keyed.checkpoint} (counts)" in answer.out
    with pytest.raises(IntegrityError):
        keyed.records().generations().all()


def test_an_interrupted_upgrade_and_the_directories_of_a_refresh_are_shown(keyed: Job) -> None:
    plant(keyed, "upgrades", 1, {"name": "up-1", "state": "swapped"})
    plant(keyed, "refreshes", 1, {"directories": [VICTIM], "at": AT, "by": {}})
    answer = sign(keyed)
    assert answer.code == 8 and "The upgrade up-1 was interrupted (swapped)" in answer.out
    assert f"a refresh may remove {VICTIM}" in answer.out


def test_the_site_that_is_active_is_shown(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = SiteRecord(2, "active", STANDBY, "primary", False, {}, "", utc_now())
    assert Sites(job.records()).write(record)
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    assert "the standby is active" in sign(job).out


def test_what_no_forgery_would_gain_by_needs_no_yes(keyed: Job) -> None:
    """The negative control."""
    plant_generation(keyed, f"{keyed.checkpoint}.g0002")
    answer = sign(keyed)
    assert answer.code == 0 and "4 records of job flights, which is meant to be running: signed" in answer.out
    current = keyed.records().generation()
    assert current is not None and current.number == 3


def test_with_a_yes_it_is_signed(keyed: Job) -> None:
    plant_code(keyed)
    document = succeed("job", "sign-records", keyed.name, "--jobs", keyed.source, "--yes", "--json").document
    assert document["code"] == {
        "application": "/tmp/evil.py", "python": "/tmp/evil", "spark_home": None, "args": 2, "settings": 0,
    }  # fmt: skip
    assert len(document["doubts"]) == 1 and document["locations"] == {"main": [keyed.checkpoint]}
    chosen = newest_choice(keyed.records())
    assert chosen is not None and chosen.code is not None
    again = json.loads(sign(keyed, "--json").out)
    assert again["records"] == 0, "what is signed is asked about no more"


@pytest.mark.parametrize("answered", [True, False])
def test_on_a_terminal_it_asks(keyed: Job, monkeypatch: pytest.MonkeyPatch, answered: bool) -> None:
    plant_code(keyed)
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answered

    monkeypatch.setattr(typer, "confirm", confirm)
    assert sign(keyed).code == (0 if answered else 8)
    assert asked == ["Sign 3 records?"]


def test_what_comes_between_the_look_and_the_yes_is_not_signed(keyed: Job) -> None:
    shown = look_at_records(keyed)
    assert not shown.doubts
    plant_code(keyed)
    with refuses(ConflictError, "records-changed"):
        sign_records(keyed, by=BY, yes=True, shown=shown)
    store = keyed.records().store
    store.delete("chosen/0000000001.json")
    said = store.read("generation/main/0000000001.json")
    store.write("generation/main/0000000001.json", said.replace(b"checkpoints", b"otherplaces"))
    with pytest.raises(ConflictError):
        sign_records(keyed, by=BY, yes=True, shown=shown)
    store.write("generation/main/0000000001.json", said)
    assert sign_records(keyed, by=BY, yes=True, shown=shown).records == 2


def test_what_an_upgrade_itself_has_chosen_is_signed_by_it(keyed: Job) -> None:
    """The honest case: with the key from the start nobody has to say yes to anything."""
    sign_records(keyed, by=BY)
    declared = Code.declared(keyed)
    choose_code(keyed.records(), declared, replace(declared, args=("new",)), by=BY, why="")
    assert look_at_records(keyed).records == 0
    assert sign(keyed).code == 0


@pytest.mark.parametrize("odd", [7, None, True, "x", [[]], {"a": {}}, ["\x1b[2J"]])
def test_what_a_record_says_may_be_anything(keyed: Job, odd: object) -> None:
    """It is shown, or refused by name; nothing of it reaches the terminal as a command."""
    plant(keyed, "refreshes", 1, {"directories": odd})
    plant(keyed, "upgrades", 1, {"name": odd, "state": odd})
    plant(keyed, "chosen", 1, {"code": {"application": odd, "args": odd, "spark": odd, "python": odd}})
    plant(keyed, "desired", 2, {"state": odd})
    answer = sign(keyed)
    assert answer.code == 8 and "\x1b" not in answer.out + answer.err
    plant(keyed, "generation/main", 2, {"generation": odd, "location": odd})
    assert sign(keyed).code == 4


def plant_old(job: Job, folder: str, *several: dict[str, Any]) -> None:
    for at, said in enumerate(several, start=1):
        plant(job, folder, at, {"at": AT, "by": {}, "why": "", **said})


def evil(job: Job) -> Code:
    return replace(Code.declared(job), application="/tmp/evil.py", args=("secret",), program=None)


def choice(job: Job, code: Code | None) -> dict[str, Any]:
    declared = Code.declared(job)
    ids = {"instead_of": declared.identity, "instead_of_unread": declared.identity_unread}
    return {**ids, "code": None if code is None else code.to_dict()}


def test_a_choice_below_the_newest_is_not_vouched_for(keyed: Job) -> None:
    """It says nothing as long as the newest is there; who may delete that must not make it count."""
    plant_old(keyed, "chosen", choice(keyed, evil(keyed)), choice(keyed, None))
    assert sign(keyed).code == 0
    store = keyed.records().store
    chosen = newest_choice(keyed.records())
    assert chosen is not None and chosen.code is None, "the newest is signed"
    assert sign(keyed, "--json").document["records"] == 0
    store.delete("chosen/0000000002.json")
    with refuses(IntegrityError, "not-signed"):
        newest_choice(keyed.records())


@pytest.mark.parametrize("where", ["before", "after"])
def test_an_upgrade_that_has_ended_shows_its_code(keyed: Job, where: str) -> None:
    """`--undo` runs the code before, and no state says that nothing will."""
    declared = Code.declared(keyed)
    newest = Upgrade("up-1", keyed.name, "upgraded", declared, declared)
    shown = replace(newest, before=evil(keyed)) if where == "before" else replace(newest, after=evil(keyed))
    remember_unsigned(keyed, Upgrade("up-0", keyed.name, "upgraded", evil(keyed), declared))
    remember_unsigned(keyed, shown)
    answer = sign(keyed)
    assert answer.code == 8 and "The upgrade up-1" in answer.err and "/tmp/evil.py" in answer.err
    assert "secret" not in answer.out + answer.err
    document = succeed("job", "sign-records", keyed.name, "--jobs", keyed.source, "--yes", "--json").document
    assert document["upgrade"][where]["application"] == "/tmp/evil.py"
    assert [one.name for one in upgrades_of(keyed.records())] == ["up-1"]
    keyed.records().store.delete("upgrades/0000000002.json")
    with pytest.raises(IntegrityError):
        newest_upgrade(keyed.records())


def test_an_upgrade_to_what_is_declared_needs_no_yes(keyed: Job) -> None:
    """The negative control: the code before and after is what is declared, as after a change of nothing."""
    declared = Code.declared(keyed)
    remember_unsigned(keyed, Upgrade("up-1", keyed.name, "upgraded", None, declared))
    answer = sign(keyed)
    assert answer.code == 0 and "up-1" not in answer.out
    assert newest_upgrade(keyed.records()) is not None


def test_a_launch_shows_its_code(keyed: Job) -> None:
    """An upgrade goes back to what was launched last."""
    sign_records(keyed, by=BY)
    store = keyed.records().store
    spec = replace(prepare_launch(keyed, keyed.records(), by=BY), code=evil(keyed).to_dict())
    write_launch(keyed.records(), spec)
    for name in store.names("launched"):
        store.delete(f"launched/{name}")
    plant_old(keyed, "launched", {"launch_id": spec.launch_id, "digest": spec.digest})
    answer = sign(keyed)
    assert answer.code == 8 and "launched last: the code of /tmp/evil.py" in answer.err
    store.delete(spec.key)
    answer = sign(keyed)
    assert answer.code == 8 and "not there to be looked at" in answer.err, (
        "it may come once its digest is signed"
    )


def test_what_a_key_has_signed_goes_on_with_the_next_key(keyed: Job, tmp_path: Path) -> None:
    """The honest case: with both keys at hand, older records are signed anew, too."""
    declared = Code.declared(keyed)
    sign_records(keyed, by=BY)
    control = keyed.records()
    for name in ("up-0", "up-1"):
        remember(control, Upgrade(name, keyed.name, "upgraded", declared, declared))
    keys = tmp_path / "keys"
    old = keys.read_text()
    new_key(tmp_path / "new")
    keys.write_text((tmp_path / "new").read_text() + old)
    assert sign_records(keyed, by=BY).records == 4
    keys.write_text((tmp_path / "new").read_text())
    assert [one.name for one in upgrades_of(keyed.records())] == ["up-1", "up-0"]
