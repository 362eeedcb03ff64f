from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.generations import Generation, is_generation_of
from streambank.core.errors import ConflictError, FormatError, InputError, RefusedError
from tests.support.jobs.declared import BY
from tests.support.processes import race
from tests.support.refuses import refuses
from tests.support.storage.faulty_store import FaultyStore

SWITCH = """
import sys
from streambank.core.errors import StreambankError
from streambank.control.control import JobControl
control = JobControl.open(sys.argv[1], "flights")
generations = control.generations()
with control.operation_lock.hold("restore", by={}, wait_s=60) as operation:
    pass
proposed = generations.propose(taken=lambda location: False)
print("ready", flush=True)
sys.stdin.readline()
try:
    generations.switch(proposed, operation=type("Op", (), {"check": lambda self: None})())
    print("switched")
except StreambankError as error:
    print(error.code)
"""


@pytest.fixture
def control(tmp_path: Path) -> JobControl:
    return JobControl.open(str(tmp_path), "flights")


def propose(control: JobControl, *taken: str) -> Generation:
    return control.generations().propose(taken=lambda location: location in taken)


def test_a_fresh_job_remembers_nothing(control: JobControl) -> None:
    assert control.desired() is None
    assert control.generation() is None
    assert control.query_facts() is None
    assert control.last_event("stopped") is None
    assert list(control.events()) == []


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a\nb", "x" * 101])
def test_odd_job_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        JobControl.open(str(tmp_path), name)


def test_the_last_word_on_what_is_meant_counts(control: JobControl) -> None:
    control.set_desired("running", by=BY)
    control.set_desired("stopped", by={"user": "ann"}, why="maintenance")
    desired = control.desired()
    assert desired is not None
    assert (desired.state, desired.by, desired.why) == ("stopped", {"user": "ann"}, "maintenance")
    assert desired.at.tzinfo is not None
    with pytest.raises(InputError):
        control.set_desired("paused", by=BY)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("damage", [b"", b'{"state": "perhaps"}', b'{"state'])
def test_a_damaged_desired_state_is_never_guessed(control: JobControl, tmp_path: Path, damage: bytes) -> None:
    control.set_desired("stopped", by=BY)
    control.set_desired("running", by=BY)
    (tmp_path / "flights" / "desired" / "0000000002.json").write_bytes(damage)
    with refuses(FormatError, "damaged-record"):
        control.desired()


def test_the_declared_checkpoint_is_generation_one(control: JobControl) -> None:
    first = control.generations().ensure_first("file:///ck", by=BY)
    assert (first.number, first.location, first.from_savepoint, first.by) == (1, "file:///ck", None, BY)
    assert control.generations().ensure_first("file:///ck", by=BY) == first
    with refuses(RefusedError, "checkpoint-changed"):
        control.generations().ensure_first("file:///other", by=BY)


def test_a_switch_counts_from_then_on_and_leaves_out_what_lies_around(control: JobControl) -> None:
    control.generations().ensure_first("file:///ck", by=BY)
    with control.operation("restore", by=BY) as operation:
        second = propose(control)
        assert (second.number, second.location) == (2, "file:///ck.g0002")
        control.generations().switch(second, operation=operation)
        fourth = propose(control, "file:///ck.g0003")
        assert (fourth.number, fourth.location) == (4, "file:///ck.g0004"), "siblings of the first, for ever"
        control.generations().switch(fourth, operation=operation)
    current = control.generation()
    assert current is not None and current.number == 4
    assert [one.number for one in control.generations().all()] == [1, 2, 4]
    assert control.generations().ensure_first("file:///ck", by=BY).number == 4


def test_a_job_that_never_ran_can_be_restored_to_a_generation(control: JobControl) -> None:
    with refuses(ConflictError, "no-generation"):
        propose(control)
    proposed = control.generations().propose(taken=lambda location: False, base="file:///ck")
    assert proposed.location == "file:///ck.g0002"
    with control.operation("restore", by=BY) as operation:
        control.generations().switch(proposed, operation=operation)
    assert control.generations().ensure_first("file:///ck", by=BY) == control.generation(), (
        "it can be started"
    )
    with pytest.raises(RefusedError):
        control.generations().ensure_first("file:///other", by=BY)
    assert propose(control).location == "file:///ck.g0003"


def test_a_switch_without_the_lock_is_refused(control: JobControl) -> None:
    control.generations().ensure_first("file:///ck", by=BY)
    with pytest.raises(ConflictError) as caught, control.operation("restore", by=BY) as operation:
        control.operation_lock.break_off(by=BY, why="a test", even_live=True)
        control.generations().switch(propose(control), operation=operation)
    assert caught.value.code == "claim-lost"
    current = control.generation()
    assert current is not None and current.number == 1


def test_of_many_switches_to_one_number_one_happens(control: JobControl, tmp_path: Path) -> None:
    control.generations().ensure_first("file:///ck", by=BY)
    assert sorted(race(SWITCH, 4, tmp_path)) == ["generation-moved"] * 3 + ["switched"]


def test_queries_have_generations_of_their_own(control: JobControl) -> None:
    control.generations("left").ensure_first("file:///ck/left", by=BY)
    assert control.generation("right") is None
    assert control.generation("left") is not None


def test_a_damaged_generation_is_never_passed_over(control: JobControl, tmp_path: Path) -> None:
    control.generations().ensure_first("file:///ck", by=BY)
    with control.operation("restore", by=BY) as operation:
        control.generations().switch(propose(control), operation=operation)
    for damage in (b"", b"{}", b'{"generation": "two"}'):
        (tmp_path / "flights" / "generation" / "main" / "0000000002.json").write_bytes(damage)
        with pytest.raises(FormatError):
            control.generation()


def test_requests_are_for_one_epoch_and_answered_once(control: JobControl) -> None:
    first = control.requests.post("stop", epoch=1, by=BY, why="lunch", drain=True)
    second = control.requests.post("stop", epoch=2, by=BY)
    assert [request.number for request in control.requests.open(1)] == [first.number]
    (seen,) = control.requests.open(1)
    assert (seen.kind, seen.by, seen.why, seen.options) == ("stop", BY, "lunch", {"drain": True})
    assert control.requests.open(2, after=second.number) == []
    assert control.requests.answer_to(first.number) is None
    assert control.requests.answer(first.number, "stopped", batches={"main": 3})
    assert not control.requests.answer(first.number, "refused")
    answer = control.requests.answer_to(first.number)
    assert answer is not None and (answer["state"], answer["batches"]) == ("stopped", {"main": 3})
    assert control.requests.open(1) == []


def test_how_a_driver_ended_is_sought_among_the_newest_events(
    control: JobControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.control.control.RECENT_EVENTS", 50)
    store = FaultyStore(control.store)
    counted = JobControl(store, "flights")
    for kind in ("stop-asked", "driver-ended", "driver-started"):
        control.record_event(kind, launch_id="one")
    assert counted.last_word("one") is None, "its cluster has brought it back: that is of the one before"
    assert not counted.was_asked_to_stop("one")
    for kind in ("stop-asked", "driver-ended"):
        control.record_event(kind, launch_id="one")
    control.record_event("driver-started", launch_id="another")
    word = counted.last_word("one")
    assert word is not None and word["kind"] == "driver-ended" and counted.was_asked_to_stop("one")
    for _ in range(300):
        control.record_event("savepoint-taken")
    before = len(store.calls)
    assert counted.last_word("one") is None and not counted.was_asked_to_stop("one")
    reads = sum(call.key.startswith("events/") for call in store.calls[before:])
    assert 0 < reads <= 100


def test_events_and_facts_are_kept(control: JobControl) -> None:
    for number in range(3):
        control.record_event("launched", launch_id=f"launch-{number}")
    control.record_event("stopped")
    last = control.last_event("launched")
    assert last is not None and last["launch_id"] == "launch-2"
    assert [record.data["kind"] for record in control.events(newest=2)] == ["launched", "stopped"]
    one = control.last_event("launched", launch_id="launch-0")
    assert one is not None and one["launch_id"] == "launch-0"
    control.record_query(None, {"query_id": "q", "sink": "FileSink[file:/out]"})
    facts = control.query_facts()
    assert facts is not None and facts["sink"] == "FileSink[file:/out]"


@pytest.mark.parametrize(("left", "number"), [("", 1), (".g0004", 4), (".g12345", 12345)])
def test_a_directory_by_another_name_of_its_service_counts_by_the_declared_one(
    control: JobControl, left: str, number: int
) -> None:
    adopted = control.generations().adopt("s3a://b/ck", f"s3://b/ck{left}", above=number, by=BY)
    assert adopted is not None and adopted.location == f"s3a://b/ck{left}"
    assert (adopted.base, adopted.again) == ("s3a://b/ck", number)
    assert is_generation_of("hdfs://n:8020/ck", f"hdfs://n/ck{left}")


@pytest.mark.parametrize("left", [".g0001", ".g00004", ".g004", "x", "/x"])
def test_what_is_not_called_as_a_generation_is_none(control: JobControl, left: str) -> None:
    assert control.generations().adopt("s3://b/ck", f"s3://b/ck{left}", above=1, by=BY) is None
