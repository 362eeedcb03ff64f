from __future__ import annotations

from dataclasses import dataclass

import pytest

from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.sites.forks import QueryLines, left_after, why_left
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


def test_a_checkpoint_that_was_left_is_known_by_each_name_of_its_service() -> None:
    left = {"s3a://lake/ck": 57, "s3://lake/ck": 60, "hdfs://nn:8020/ck": 7}
    assert why_left(left, "s3n://lake/ck", 58) and not why_left(left, "s3://lake/ck", 57)
    assert why_left(left, "hdfs://NN/ck", 8) and not why_left(left, "s3://lake/ck.g0002", 99)


def test_a_site_that_goes_on_in_its_own_checkpoint_has_not_left_it() -> None:
    decided = active(5, PRIMARY, PRIMARY)
    assert left_after([OUT, decided], "main") == {}
    given_up = active(8, PRIMARY, PRIMARY)
    assert left_after([OUT, BACK, given_up], "main") == {"p1": 57, "s2": 70}, "it had come back before"


@dataclass(frozen=True)
class Taken:
    """A savepoint, as far as it is asked."""

    query_id: str
    checkpoint: str
    batch: int = 7


OWN = (Taken("first", "s3a://lake/ck"), Taken("second", "s3://lake/ck.g0002"), Taken("there", "s3://pond/ck"))
TEST = Taken("test", "s3://lake/test/ck")


def known(*more: Taken, told: str = "test", here: str = "here", own: tuple[Taken, ...] = OWN) -> QueryLines:
    """Lines of a job with two sites, of whose records and marker somebody has made what is `told`."""
    lines = QueryLines({}, frozenset({told}), frozenset({here}), frozenset({"s3://lake/ck", "s3://pond/ck"}))
    return lines.knowing([*own, TEST, *more])


@pytest.mark.parametrize(
    "honest",
    [
        *OWN,
        Taken("first", "file:///backup/copy"),  # imported, or of before the checkpoint was moved
        Taken("there", "s3://lake/old-name/ck"),  # of before the job was renamed and its place with it
        Taken("here", "file:///backup/of/today"),  # of a query that began anew and was not saved since
        Taken("begun-anew", "s3://lake/ck"),  # with a new id in the same checkpoint
        Taken("forked", "s3://lake/ck.g0003"),  # a generation keeps no id where it was forked
        Taken("", "s3://elsewhere/ck"),  # of a version that did not say it
    ],
)
def test_what_is_of_the_job_counts_whatever_its_records_say(honest: Taken) -> None:
    for lines in (known(honest), known(honest, told="first"), known(honest, told="here")):
        assert lines.why_not(honest) == "" == lines.why_unknown(honest)
        assert lines.why_not(TEST), "and what is not does not"


def test_where_nothing_was_saved_in_its_own_place_the_records_say_which_is_its() -> None:
    brought = Taken("first", "file:///backup/copy")
    assert known(brought, told="first", own=()).why_not(brought) == ""
    assert known(brought, told="first", own=()).why_not(TEST)


def test_where_nothing_says_it_all_count_and_only_several_are_doubtful() -> None:
    nothing = QueryLines(checkpoints=frozenset({"s3://lake/ck"}))
    one = nothing.knowing([TEST, Taken("test", "s3://lake/other/ck")])
    assert one.why_not(TEST) == "" == one.why_unknown(TEST)
    two = nothing.knowing([TEST, Taken("first", "s3://lake/old/ck")])
    assert two.why_not(TEST) == "" and "of 2 queries" in two.why_unknown(TEST)
    assert QueryLines().knowing([TEST, *OWN]).why_unknown(TEST) == "", (
        "nobody has declared where the job works"
    )
