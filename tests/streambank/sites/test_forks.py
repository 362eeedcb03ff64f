from __future__ import annotations

from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.sites.forks import left_after, why_left
from streambank.sites.records import SiteRecord


def active(number: int, site: str, was: str, batch: int | None = None, left: str = "") -> SiteRecord:
    savepoints = {} if batch is None else {"main": f"b{batch:06d}-0123456789ab"}
    where = {"main": left} if left else {}
    return SiteRecord(number, "active", site, was, True, {}, "", utc_now(), savepoints, {}, where)


OUT, BACK = active(3, STANDBY, PRIMARY, 57, "p1"), active(5, PRIMARY, STANDBY, 70, "s2")


def test_each_fail_over_leaves_a_checkpoint_after_a_batch() -> None:
    first = active(1, PRIMARY, PRIMARY)
    assert left_after([], "main") == left_after([first], "main") == {}
    left = left_after([first, OUT, BACK], "main")
    assert left == {"p1": 57, "s2": 70}
    assert left_after([first, OUT], "other") == {}
    assert why_left(left, "p1", 58) and not why_left(left, "p1", 57)
    assert not why_left(left, "p2", 75), "the primary goes on in a new directory"


def test_a_site_that_goes_on_in_its_own_checkpoint_has_not_left_it() -> None:
    decided = active(5, PRIMARY, PRIMARY)
    assert left_after([OUT, decided], "main") == {}
    given_up = active(8, PRIMARY, PRIMARY)
    assert left_after([OUT, BACK, given_up], "main") == {"p1": 57, "s2": 70}, "it had come back before"
