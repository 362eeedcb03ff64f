"""Old records go, what counts stays, and no number is ever used again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.control.claims import Claim, ClaimView, Holder
from streambank.control.control import JobControl
from streambank.control.processes import this_process
from streambank.control.pruning import NOT_PRUNED, Retention, prune_and_tell, prune_records
from streambank.control.records import RecordStream
from streambank.core.units import from_json_time, to_json_time
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.jobs.declared import BY, declare, fake_launcher, here
from tests.support.storage.faulty_store import Fault, FaultyStore, Kind, SimulatedCrash

OLD = datetime(2013, 1, 1, tzinfo=UTC)
NEW = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE = NEW - timedelta(days=30)
KEEP_3 = Retention(3, BEFORE)
ALL = Retention(1, datetime(2100, 1, 1, tzinfo=UTC))
"""Keeps nothing but the newest record, for races that would take a month otherwise."""


@pytest.fixture
def store() -> Store:
    return MemoryStore()


@pytest.fixture
def control(store: Store) -> JobControl:
    return JobControl(store, "flights")


def fill(stream: RecordStream, count: int, at: datetime = OLD, **fields: Any) -> None:
    for _ in range(count):
        stream.append({"at": to_json_time(at), **fields})


def epochs(control: JobControl, count: int, prefix: str = "lease") -> None:
    """So many drivers have come and gone, each with its launch."""
    claims = (control.lease if prefix == "lease" else control.operation_lock).claims
    for _ in range(count):
        number = len(claims.records.numbers()) + 1
        launch = f"launch-{number}"
        claim = claims.claim(Holder(here(), (this_process("python"),), {"launch_id": launch}))
        assert isinstance(claim, Claim)
        claim.beat()
        claim.release()
        control.store.write(f"launches/{launch}.json", b"{}")


def numbers(control: JobControl, prefix: str) -> list[int]:
    return RecordStream(control.store, prefix).numbers()


def test_the_newest_and_the_young_stay(control: JobControl) -> None:
    fill(control.desired_records, 6)
    fill(control.desired_records, 4, NEW)
    other = RecordStream(control.store, "queries/main")
    fill(other, 10)

    assert prune_records(control, KEEP_3) == 6 + 7

    assert numbers(control, "desired") == [7, 8, 9, 10]
    assert other.numbers() == [8, 9, 10]
    assert control.desired_records.append({}) == 11


def test_the_newest_two_marks_stay(control: JobControl) -> None:
    stream = control.desired_records
    for _ in range(4):
        fill(stream, 5)
        prune_records(control, KEEP_3)

    marks = [name for name in control.store.names("desired") if "pruned" in name]
    assert marks == ["0000000012.pruned.json", "0000000017.pruned.json"]
    assert (stream.pruned_up_to(), stream.numbers()) == (17, [18, 19, 20])


def test_nothing_is_written_where_nothing_is_old(control: JobControl) -> None:
    fill(control.desired_records, 50, NEW)
    epochs(control, 5)
    before = {info.path for info in control.store.list()}

    assert prune_records(control, KEEP_3) == 0
    assert prune_records(control) == 0

    assert {info.path for info in control.store.list()} == before


def test_of_events_the_newest_of_each_kind_stays(control: JobControl) -> None:
    for kind in ("launched", "driver-started", "stopped", "launched", "savepoint-taken"):
        fill(control.event_records, 1, kind=kind)
    fill(control.event_records, 200, kind="savepoint-taken")

    for _ in range(4):
        prune_records(control, KEEP_3)

    assert numbers(control, "events") == [2, 3, 4, 202, 203, 204, 205]
    launched = control.last_event("launched")
    assert launched is not None and launched["kind"] == "launched"
    assert control.last_event("never") is None


def test_a_call_looks_at_so_many_records_only(control: JobControl) -> None:
    fill(control.desired_records, 50)

    assert prune_records(control, Retention(3, BEFORE, at_most=10)) == 10

    assert numbers(control, "desired")[0] == 11


def test_epochs_go_with_their_beats_and_ends_and_launches_that_nobody_names(control: JobControl) -> None:
    epochs(control, 6)
    epochs(control, 6, "operation")
    control.store.write("launches/launch-that-died.json", b"{}")

    prune_records(control, Retention(3, datetime(2100, 1, 1, tzinfo=UTC)))

    for prefix in ("lease", "operation"):
        left = {name[:10] for name in control.store.names(prefix)} - {"0000000003"}
        assert left == {"0000000004", "0000000005", "0000000006"}
        assert [name for name in control.store.names(prefix) if "003" in name] == ["0000000003.pruned.json"]
    assert control.lease.launches() == {"launch-4", "launch-5", "launch-6"}
    assert set(control.store.names("launches")) >= {f"launch-{number}.json" for number in (4, 5, 6)}
    assert "launch-1.json" not in control.store.names("launches")
    view = control.lease.view()
    assert view is not None and (view.epoch, view.state) == (6, "ended")


def test_requests_to_the_driver_that_lives_and_their_answers_stay(control: JobControl) -> None:
    epochs(control, 1)
    requests = control.requests
    for epoch in (0, 0, 1, 0, 1, 1, 1):
        number = requests.post("stop", epoch=epoch, by=BY).number
        if number != 5:
            requests.answer(number, "stopped")

    prune_records(control, Retention(2, datetime(2100, 1, 1, tzinfo=UTC)))

    assert numbers(control, "requests") == [3, 5, 6, 7]
    assert numbers(control, "answers") == [3, 6, 7]
    assert [one.number for one in requests.open(1)] == [5]
    assert requests.answer(5, "stopped")
    assert requests.open(1) == []


def test_what_cannot_be_read_is_left_to_a_person(control: JobControl) -> None:
    fill(control.desired_records, 10)
    control.store.write("desired/0000000002.json", b"half")
    control.store.write("desired/0000000003.json", b'{"no": "time"}')

    prune_records(control, KEEP_3)

    assert numbers(control, "desired") == [2, 3, 8, 9, 10]


class Frozen(FaultyStore):
    """A store in which the first write of a record waits for what others do meanwhile."""

    def __init__(self, inner: Store, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._meanwhile: Callable[[], object] | None = meanwhile

    def write(self, key: str, data: Any, *, exclusive: bool = False) -> Any:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().write(key, data, exclusive=exclusive)


def test_a_number_that_was_pruned_while_a_writer_stood_still_is_not_used_again(store: Store) -> None:
    stream = RecordStream(store, "desired")
    fill(stream, 3)

    def meanwhile() -> None:
        fill(stream, 5)
        stream.drop([1, 2, 3, 4, 5, 6])

    frozen = Frozen(store, meanwhile)
    number = RecordStream(frozen, "desired").append({"state": "stopped"})

    written = [call.key for call in frozen.calls if call.operation == "write"]
    assert written == ["desired/0000000004.json", "desired/0000000009.json"]  # it was free, and is not taken
    assert number == 9
    assert stream.numbers() == [7, 8, 9]
    latest = stream.latest()
    assert latest is not None and latest.data == {"state": "stopped"}


def test_an_epoch_that_was_pruned_while_a_racer_stood_still_is_not_claimed(store: Store) -> None:
    control = JobControl(store, "flights")
    epochs(control, 1)

    def meanwhile() -> None:
        epochs(control, 4)
        prune_records(control, ALL)
        control.lease.acquire([this_process("python")])

    racer = JobControl(Frozen(store, meanwhile), "flights")
    holder = Holder(here(), (this_process("python"),))

    got = racer.lease.claims.claim(holder)

    assert isinstance(got, ClaimView)
    assert (got.epoch, got.state) == (6, "live")
    assert control.lease.claims.records.numbers() == [5, 6]


def test_a_holder_that_stood_still_while_its_epoch_was_pruned_has_lost_it(control: JobControl) -> None:
    claim = control.lease.acquire([this_process("python")])
    assert claim.held()
    control.lease.break_off(by=BY, why="it stands still", even_live=True)
    epochs(control, 4)
    prune_records(control, ALL)
    assert numbers(control, "lease") == [5]

    assert not claim.held()
    assert not claim.beat()
    assert control.lease.claims.records.numbers() == [5]


@pytest.mark.parametrize("kind", ["crash-before", "crash-after"])
def test_a_crash_at_any_call_leaves_what_counts_and_the_next_pruning_finishes(kind: Kind) -> None:
    def prepared() -> JobControl:
        control = JobControl(MemoryStore(), "flights")
        fill(control.desired_records, 3)
        fill(control.event_records, 3, kind="stopped")
        epochs(control, 3)
        for epoch in (1, 2, 3):
            control.requests.answer(control.requests.post("stop", epoch=epoch, by=BY).number, "stopped")
        return control

    undisturbed = prepared()
    counting = FaultyStore(undisturbed.store)
    prune_records(JobControl(counting, "flights"), ALL)
    expected = {info.path for info in undisturbed.store.list()}
    assert len(counting.calls) > 40
    for call in range(1, len(counting.calls) + 1):
        control = prepared()
        faulty = FaultyStore(control.store, Fault(kind, call=call))
        with pytest.raises(SimulatedCrash):
            prune_records(JobControl(faulty, "flights"), ALL)
        faulty.assert_fired()
        assert (numbers(control, "desired")[-1], numbers(control, "events")[-1]) == (3, 3)
        assert control.requests.open(3) == []
        view = control.lease.view()
        assert view is not None and (view.epoch, view.state) == (3, "ended")

        prune_records(control, ALL)

        assert {info.path for info in control.store.list()} == expected


def test_a_failure_is_told_and_stops_nobody(control: JobControl) -> None:
    fill(control.desired_records, 200)
    faulty = FaultyStore(control.store, Fault("denied", operations=frozenset({"delete"})))

    prune_and_tell(JobControl(faulty, "flights"))

    faulty.assert_fired()
    event = control.last_event(NOT_PRUNED)
    assert event is not None and event["code"] == "no-permission"


def test_starts_and_stops_prune(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambank.control.pruning.NEWEST", 5)
    job = declare(folder)
    events, facts = job.records().event_records, RecordStream(job.records().store, "queries/main")

    fill(events, 12, kind="savepoint-taken")
    stop_job(job, by=BY, launcher=fake_launcher(folder))
    assert events.numbers() == [8, 9, 10, 11, 12, 13]
    stopped = job.records().last_event("stopped")
    assert stopped is not None and from_json_time(stopped["at"]) > NEW

    fill(facts, 12)
    start_job(job, by=BY, launcher=fake_launcher(folder))
    assert facts.numbers() == [8, 9, 10, 11, 12]
