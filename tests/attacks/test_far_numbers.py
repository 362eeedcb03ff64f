"""Who can write one file among numbered ones gives it the last number: it is the newest for ever after."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streambank.control.claims import Claim
from streambank.control.control import JobControl
from streambank.control.marker import Marker, marked_generation, read_marker, write_marker
from streambank.control.records import RecordStream, encode_json
from streambank.core.errors import FormatError
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.job.status import job_status
from streambank.repository.marks import add_mark, latest, read_mark
from streambank.repository.names import give_name, records_of_name
from streambank.repository.sealed import encode_record
from streambank.sites.records import SiteRecord, Sites, agree
from streambank.storage import Store, open_store
from streambank.storage.names import FAR, near
from streambank.storage.segments import SegmentWriter, segment_numbers
from tests.support.jobs.declared import BY, declare, fake_launcher

LAST = 9_999_999_999


def plant(stream: RecordStream, number: int, data: Mapping[str, Any], suffix: str = "") -> None:
    stream.store.write(stream.key(number, suffix), encode_json(data))


@pytest.fixture
def stream(tmp_path: Path) -> RecordStream:
    return RecordStream(open_store(tmp_path), "things")


def test_numbers_that_a_history_leads_to() -> None:
    assert near([]) == [] and near([3, 1, 2]) == [1, 2, 3]
    assert near([FAR, 2 * FAR, 1]) == [1, FAR, 2 * FAR], "a gap is legal: numbers may be left out"
    assert near([1, 2, FAR + 3, FAR + 4, LAST]) == [1, 2]
    assert near([LAST]) == []


@pytest.mark.parametrize("far", [FAR + 4, LAST])
def test_a_far_record_is_damage_and_no_change_is_refused(stream: RecordStream, far: int) -> None:
    for number in (1, 2):
        assert stream.append({"n": number}) == number
    plant(stream, far, {"n": "theirs"})
    for read in (stream.latest, lambda: list(stream.all()), lambda: list(stream.newest_first())):
        with pytest.raises(FormatError) as caught:
            read()
        assert caught.value.code == "damaged-record" and str(far) in caught.value.message
    assert stream.numbers() == [1, 2] and stream.append({"n": 3}) == 3
    history = [(one.number, one.data.get("error")) for one in stream.history()]
    assert history[-2:] == [(3, None), (far, "damaged-record")]
    stream.store.delete(stream.key(far))
    newest = stream.latest()
    assert newest is not None and newest.data == {"n": 3}, "nothing has to be done but to move it away"


def test_in_steps_it_takes_a_hundred_files_and_to_move_the_last_away(stream: RecordStream) -> None:
    assert stream.append({"n": 1}) == 1
    steps = [*range(FAR, LAST, FAR), LAST]
    assert len(steps) == 100, "fewer leave a gap that no history has"
    for number in steps[:-1]:
        plant(stream, number, {"n": "theirs"})
    assert stream.append({"n": 2}) == steps[-2] + 1
    plant(stream, LAST, {"n": "theirs"})
    with pytest.raises(FormatError) as caught:
        stream.append({"n": 3})
    assert caught.value.code == "damaged-record" and str(LAST) in caught.value.message
    stream.store.delete(stream.key(LAST))
    assert stream.append({"n": 3}) == steps[-2] + 2


def test_a_mark_that_uses_up_all_numbers_uses_up_none(stream: RecordStream) -> None:
    stream.append({"n": 1})
    plant(stream, LAST, {"pruned_up_to": LAST}, ".pruned")
    assert stream.pruned_up_to() == 0 and stream.append({"n": 2}) == 2
    newest = stream.latest()
    assert newest is not None and newest.number == 2


def test_what_was_pruned_is_no_gap(stream: RecordStream) -> None:
    """Honest: of many records the newest are there, a kept one, and the marks of the last two times."""
    mark = FAR - 10
    plant(stream, 3, {"n": "kept"})
    for number in (mark - 100, mark):
        plant(stream, number, {"pruned_up_to": number}, ".pruned")
    for number in range(mark + 1, mark + 4):
        plant(stream, number, {"n": number})
    assert stream.append({"n": "new"}) == mark + 4
    assert [one.number for one in stream.all()] == [3, *range(mark + 1, mark + 5)]


def site(number: int, state: Any = "active", at: str = STANDBY, was: str = PRIMARY) -> SiteRecord:
    return SiteRecord(number, state, at, was, False, BY, "", utc_now())


@pytest.fixture
def both(tmp_path: Path) -> tuple[Sites, Sites]:
    stores = (open_store(tmp_path / one).child("orders") for one in (PRIMARY, STANDBY))
    own, other = (Sites(JobControl(one, "orders")) for one in stores)
    agree(own, other, "orders")
    return own, other


def test_the_last_number_at_one_site_never_gets_to_the_other(both: tuple[Sites, Sites]) -> None:
    own, other = both
    plant(other.records, LAST, site(LAST).to_dict())
    for one, two in (both, (other, own)):
        with pytest.raises(FormatError) as caught:
            agree(one, two, "orders")
        assert caught.value.code == "damaged-record"
    assert own.records.numbers() == [1]
    other.control.store.delete(other.records.key(LAST))
    assert agree(own, other, "orders").active == PRIMARY, "once it is removed there, all is as it was"
    # Not in steps either, of which each is near at the one site.
    for number in range(FAR, 10 * FAR, FAR):
        plant(other.records, number, site(number).to_dict())
    with pytest.raises(FormatError):
        agree(own, other, "orders")
    assert own.records.numbers() == [1]


def test_a_site_that_was_away_for_many_fail_overs_learns_of_the_last(both: tuple[Sites, Sites]) -> None:
    own, other = both
    for number in range(2, 60, 2):
        other.write(site(number, "failing-over"))
        other.write(site(number + 1))
    assert agree(own, other, "orders").number == 59
    assert own.records.numbers() == [1, 59]


@pytest.mark.parametrize("number", [2, 7, "3", None, 3.5])
def test_a_record_of_a_site_is_that_of_its_number(both: tuple[Sites, Sites], number: object) -> None:
    own, other = both
    plant(other.records, 3, site(3).to_dict() | {"number": number})
    for ask in (other.newest, lambda: other.read(3), other.all):
        with pytest.raises(FormatError) as caught:
            ask()
        assert caught.value.code == "damaged-record"
    with pytest.raises(FormatError):
        agree(own, other, "orders")
    assert own.records.numbers() == [1]


def test_a_generation_is_that_of_its_number(tmp_path: Path) -> None:
    control = JobControl(open_store(tmp_path), "orders")
    first = control.generations().ensure_first("file:///ck", by=BY)
    plant(control.generations().records, 2, first.to_dict())
    for ask in (control.generation, control.generations().all):
        with pytest.raises(FormatError, match="says that it is number 1") as caught:
            ask()
        assert caught.value.code == "damaged-record"
    plant(control.generations().records, 2, first.to_dict() | {"generation": 2})
    assert [one.number for one in control.generations().all()] == [1, 2]


def test_a_lock_with_the_last_number_locks_nothing(tmp_path: Path) -> None:
    control = JobControl(open_store(tmp_path), "orders")
    with control.operation("start", by=BY):
        pass
    plant(control.operation_lock.claims.records, LAST, {"processes": []})
    with control.operation("start", by=BY) as held:
        assert isinstance(held.claim, Claim) and held.claim.epoch == 2


def test_a_driver_hears_requests_beside_the_last_number(tmp_path: Path) -> None:
    """It remembered how far it had read, and read nothing of what came after."""
    requests = JobControl(open_store(tmp_path), "orders").requests
    plant(requests.records, LAST, {"kind": "x", "epoch": 1, "at": "2026-11-29T21:00:00Z", "by": {}})
    assert requests.open(1) == []
    assert requests.post("stop", epoch=1, by=BY).number == 1
    assert [one.kind for one in requests.open(1)] == ["stop"] and requests.open(1, after=1) == []


@pytest.mark.parametrize("prefix", ["events", "desired", "lease", "generation/main", "launched", "restores"])
def test_the_state_of_a_job_is_an_answer_whatever_has_the_last_number(tmp_path: Path, prefix: str) -> None:
    fake_launcher(tmp_path)
    job = declare(tmp_path)
    control = job.records()
    control.set_desired("stopped", by=BY)
    control.generations().ensure_first(job.checkpoint, by=BY)
    control.record_event("driver-ended", launch_id="x", epoch=1, exit_code=0)
    data = {"kind": "driver-ended", "state": "running", "at": "2026-11-29T21:00:00Z", "by": {}}
    plant(RecordStream(control.store, prefix), LAST, data)
    assert control.record_event("driver-ended", launch_id="y", epoch=2, exit_code=0) == 2
    try:
        job_status(job, launcher=fake_launcher(tmp_path))
    except FormatError as error:
        assert error.code == "damaged-record" and str(LAST) in error.message


def test_a_marker_leads_to_no_generation_from_which_there_is_no_way_on(tmp_path: Path) -> None:
    checkpoint = f"file://{tmp_path}/ck"
    marker = Marker("orders", "main", LAST - 1, checkpoint, f"file://{tmp_path}/control")
    write_marker(checkpoint, marker)
    with pytest.raises(FormatError) as caught:
        read_marker(checkpoint)
    assert caught.value.code == "damaged-record"
    assert marked_generation(checkpoint, "orders/main") == marked_generation(checkpoint, "orders") == 0


def test_progress_goes_on_beside_the_last_number(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.write("progress/main/0000000001.jsonl", b"{}\n")
    store.write(f"progress/main/{LAST}.jsonl", b"{}\n")
    writer = SegmentWriter(store, "progress/main", max_bytes=100, max_files=4)
    writer.add(b'{"new": 1}')
    writer.flush()
    assert segment_numbers(store, "progress/main") == [1, 2]
    assert b"new" in store.read("progress/main/0000000002.jsonl")


def names_of(store: Store) -> list[str]:
    return list(store.names("marks/orders/b000001-aa"))


def test_a_pin_counts_beside_the_last_number(tmp_path: Path) -> None:
    """The next one had eleven digits, so nothing saw it."""
    store, of = open_store(tmp_path), ("orders", "b000001-aa")
    theirs = {
        "kind": "pin",
        "number": LAST,
        "job": of[0],
        "savepoint": of[1],
        "at": "",
        "by": {},
        "pinned": False,
    }
    store.write(f"marks/orders/b000001-aa/pin-{LAST}.json", encode_record(theirs, "blake3"))
    add_mark(store, "blake3", *of, "pin", fields={"pinned": True})
    newest = latest(names_of(store), "pin")
    assert newest == "pin-0000000001.json"
    assert read_mark(store, *of, newest).fields["pinned"] is True


def test_a_name_is_given_beside_the_last_number(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.write(f"names/orders/before-{LAST}.json", b"{}")
    given = give_name(store, "blake3", "orders", "before", "b000001-aa", holder=lambda: None)
    assert given == "b000001-aa"
    assert [one.number for one in records_of_name(store, "orders", "before")] == [1]
