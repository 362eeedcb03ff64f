from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from streambank.control.control import JobControl
from streambank.core.errors import FormatError, RefusedError, StorageError
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.sites.records import SiteRecord, Sites, SiteState, agree, fenced_at, newer
from streambank.storage.memory import MemoryStore
from tests.support.refuses import refuses


def sites() -> Sites:
    return Sites(JobControl(MemoryStore(), "orders"))


def record(number: int, site: str, *, begun: bool = False, unfenced: bool = False) -> SiteRecord:
    state: SiteState = "failing-over" if begun else "active"
    return SiteRecord(
        number, state, site, PRIMARY, unfenced, {"user": "ann"}, "", utc_now().replace(microsecond=0)
    )


def test_sites_meet_and_know_each_other() -> None:
    own, other = sites(), sites()
    met = agree(own, other, "orders")
    assert (met.number, met.active) == (1, PRIMARY)
    assert own.newest() == other.newest()


def test_the_site_that_is_behind_learns_the_newest_record_with_its_number() -> None:
    own, other = sites(), sites()
    agree(own, other, "orders")
    begun, active = record(2, STANDBY, begun=True), record(3, STANDBY, unfenced=True)
    assert own.write(begun) and own.write(active)
    assert agree(own, other, "orders") == other.newest() == active
    assert [one.number for one in other.all()] == [1, 3]
    assert begun.active is None and active.active == STANDBY
    assert fenced_at(own.control, active) is not None, "the other one knows it now"
    assert agree(other, own, "orders") == active


def test_a_number_is_taken_once() -> None:
    one = sites()
    first = record(2, STANDBY)
    assert one.write(first) and one.write(first), "a second run writes the same"
    assert not one.write(replace(first, site=PRIMARY))


def test_a_second_run_writes_the_same_to_a_site_that_learnt_of_it_meanwhile() -> None:
    own, other = sites(), sites()
    mine = replace(record(2, STANDBY, begun=True), at=datetime(2026, 1, 2, 3, 4, 5, 678901, UTC))
    other.control.record_event("anything")
    assert own.write(mine)
    agree(own, other, "orders")
    assert other.write(mine), "though a record has no microseconds"
    assert other.write(record(3, STANDBY))
    assert other.write(mine), "and though another one came after it"


def test_two_decisions_under_one_number_are_seen() -> None:
    own, other = sites(), sites()
    own.write(record(2, STANDBY))
    other.write(record(2, PRIMARY))
    with refuses(RefusedError, "sites-disagree"):
        agree(own, other, "orders")
    assert newer(None, own.newest(), "orders") == own.newest()


def test_a_site_without_any_record_does_not_answer_where_there_should_be_some() -> None:
    own, other = sites(), sites()
    own.write(record(2, STANDBY))
    with refuses(StorageError, "site-empty"):
        agree(own, other, "orders")
    other.control.record_event("anything")
    assert agree(own, other, "orders") == other.newest()


def test_a_damaged_record_is_not_passed_over() -> None:
    one = sites()
    one.records.create(1, {"number": 1, "state": "asleep"})
    with refuses(FormatError, "damaged-record"):
        one.newest()
