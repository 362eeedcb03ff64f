"""Notes and marks that can stop a job: signed where there are keys, and named where there are none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.control.copies import begin_refresh, begun_refreshes
from streambank.control.records import RecordStream
from streambank.control.rollbacks import RollbackNote, check_not_rolled_back, pending_rollback
from streambank.control.together import check_together
from streambank.core.errors import StreambankError
from streambank.declaration.declaration import Job
from streambank.job.sign_records import sign_records
from streambank.recovery.reinstate import _check_not_removed
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses

AT = "2026-11-25T10:00:00.000Z"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = declare(tmp_path)
    made.records().generations().ensure_first(made.checkpoint, by=BY)
    return made


def taken_back(records: JobControl) -> None:
    generation = records.generation()
    assert generation is not None
    check_not_rolled_back(records, None, generation)


def removed(records: JobControl) -> None:
    generations = records.generations()
    _check_not_removed(generations, generations.all()[0])


def restored_as_one(records: JobControl) -> None:
    check_together(records, ("main", "days"))


def refreshes(records: JobControl) -> None:
    assert not list(begun_refreshes(records))


FORGED: Mapping[str, tuple[Callable[[JobControl], None], Mapping[str, Any]]] = {
    "taken-back/main": (
        taken_back,
        {
            "generation": 9,
            "location": "file:///x",
            "savepoint": "b1",
            "batch": 1,
            "sinks": {},
            "tables": ["t"],
        },
    ),
    "removed/main": (removed, {"generation": 1, "by": {}, "why": ""}),
    "restored-together": (
        restored_as_one,
        {"queries": {one: {"savepoint": "b1", "generation": at} for one, at in (("main", 1), ("days", 5))}},
    ),
    "refreshes": (refreshes, {"directories": ["file:///somebody/else"]}),
}


def forge(job: Job, folder: str) -> str:
    """Write a note as who has no key; the file."""
    records = job.records()
    stream = RecordStream(records.store, folder)
    more = {"location": job.checkpoint} if folder.startswith("removed") else {}
    number = stream.append({"at": AT, **FORGED[folder][1], **more})
    return stream.describe(number)


@pytest.mark.parametrize("folder", FORGED)
def test_with_a_key_a_forged_note_is_known_as_that(job: Job, key: Path, folder: str) -> None:
    sign_records(job, by=BY)
    check = FORGED[folder][0]
    check(job.records())
    file = forge(job, folder)
    with pytest.raises(StreambankError) as refused:
        check(job.records())
    assert refused.value.code == "not-signed" and file in refused.value.message
    sign_records(job, by=BY)  # who looks at it and signs it has made it true
    with pytest.raises((StreambankError, AssertionError)) as held:
        check(job.records())
    assert getattr(held.value, "code", "") != "not-signed"


@pytest.mark.parametrize("folder", [one for one in FORGED if one != "refreshes"])
def test_without_a_key_a_note_that_stops_a_job_is_named(job: Job, folder: str) -> None:
    file = forge(job, folder)
    with pytest.raises(StreambankError) as refused:
        FORGED[folder][0](job.records())
    assert file.rpartition("/")[0] in refused.value.message


def test_true_notes_are_signed_and_count(job: Job, key: Path) -> None:
    sign_records(job, by=BY)
    records = job.records()
    generation = records.generation()
    assert generation is not None
    note = RollbackNote(records, None, savepoint="b1", batch=1, location="file:///x", by=BY)
    with note.table("a table"):
        pass
    assert pending_rollback(records, None) is not None
    records.generations().record_removal(1, job.checkpoint, by=BY, why="")
    assert records.generations().removal(generation) is not None
    begin_refresh(records, ["file:///x"], by=BY)
    assert [directories for _, directories in begun_refreshes(records)] == [("file:///x",)]


def test_honest_notes_of_before_the_key_stop_a_start_until_they_are_signed(job: Job, key: Path) -> None:
    """Restores have left several: the newest is signed, and nothing asks about the rest."""
    notes = RecordStream(job.records().store, "restored-together")
    for batch in range(3):
        notes.append({"at": AT, "queries": {"main": {"savepoint": f"b{batch}", "generation": 1}}})
    with pytest.raises(StreambankError) as refused:
        check_together(job.records(), ("main",))
    assert refused.value.code == "not-signed" and "sign-records" in str(refused.value.hint)
    assert sign_records(job, by=BY).records == 2, "that of the generation, and the newest note"
    check_together(job.records(), ("main",))
    assert sign_records(job, by=BY).records == 0


def restore(job: Job) -> None:
    """What a restore does with the generations."""
    generations = job.records().generations()
    with job.records().operation("restore", by=BY) as operation:
        generations.switch(generations.propose(taken=lambda location: False), operation=operation)


def test_a_false_mark_of_pruning_is_named_before_anything_is_filled(job: Job) -> None:
    restore(job)
    store = job.records().store
    store.write("generation/main/0000000007.pruned.json", b'{"pruned_up_to": 7}\n')
    with refuses(StreambankError, "damaged-record") as refused:
        job.records().generations().propose(taken=lambda location: False)
    assert re.search(r"generation/main/0000000007\.pruned\.json", refused.value.message)
    store.delete("generation/main/0000000007.pruned.json")
    restore(job)
    assert [one.number for one in job.records().generations().all()] == [1, 2, 3]


def test_a_false_mark_that_comes_in_between_is_no_other_generation(job: Job) -> None:
    generations = job.records().generations()
    with job.records().operation("restore", by=BY) as operation:
        made = generations.propose(taken=lambda location: False)
        generations.records.store.write("generation/main/0000000002.pruned.json", b"{}")
        with pytest.raises(StreambankError) as refused:
            generations.switch(made, operation=operation)
    assert refused.value.code == "damaged-record" and "0000000002.pruned.json" in refused.value.message
    assert generations.records.numbers() == [1], "what was written is taken back"


@pytest.mark.parametrize("mark", [7, 9_999_999_999])
def test_a_false_mark_stops_no_stop(job: Job, mark: int) -> None:
    """A near one uses up the numbers below it, and a far one none."""
    records = job.records()
    records.set_desired("running", by=BY)
    records.store.write(f"desired/{mark:010d}.pruned.json", b"{}")
    desired = records.set_desired("stopped", by=BY)
    assert desired.number == (8 if mark == 7 else 2)
    found = records.desired()
    assert found is not None and (found.state, found.number) == ("stopped", desired.number)


def test_a_far_mark_stops_no_restore(job: Job) -> None:
    restore(job)
    job.records().store.write("generation/main/9999999999.pruned.json", b"{}")
    restore(job)
    assert [one.number for one in job.records().generations().all()] == [1, 2, 3]


def test_true_marks_are_no_hindrance(job: Job) -> None:
    """The negative control: records that were pruned, and a writer that was late."""
    stream = job.records().desired_records
    for _ in range(4):
        job.records().set_desired("running", by=BY)
    stream.drop([1, 2])
    assert not stream.create(2, {"late": True}), "its number is used up"
    job.records().set_desired("stopped", by=BY)
    assert stream.numbers() == [3, 4, 5]
