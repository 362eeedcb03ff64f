"""How the drills of a job ended: a round of drills of each savepoint is one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pytest

from streambank.control.control import JobControl
from streambank.control.drills import (
    called,
    drills_of,
    failure_of,
    outcomes,
    record_drill,
    record_round,
    round_over,
)
from streambank.storage.memory import MemoryStore


@pytest.fixture
def control() -> JobControl:
    return JobControl(MemoryStore(), "orders")


def drilled(control: JobControl, second: int, passed: bool = True, **more: Any) -> dict[str, Any]:
    why = {} if passed else {"failed_step": "restore", "error": "It is damaged.", "code": "savepoint-damaged"}
    report = {"started_at": f"2026-11-27T00:00:{second:02d}.000Z", "passed": passed, **why, **more}
    record_drill(control, report)
    return report


def in_round(control: JobControl, number: int, passed: bool = True, token: str = "a") -> dict[str, Any]:
    """A drill of a round, which began at 00:00:10."""
    savepoints = {"main": f"b00000{number}"}
    facts = {"id": f"20261127T000010Z-{token}", "number": number, "of": 3, "savepoints": savepoints}
    return drilled(control, 10 + number, passed, round=facts)


def over(control: JobControl, *reports: dict[str, Any], token: str = "a") -> None:
    failed = [failure_of(one) for one in reports if not one["passed"]]
    at = "2026-11-27T00:00:10.000Z"
    round_id = f"20261127T000010Z-{token}"
    record_round(control, {"round": round_id, "started_at": at, "passed": not failed, "failed": failed})


def seen(control: JobControl) -> list[tuple[str, bool, str]]:
    return [(one.started_at[17:19], one.passed, one.failed) for one in outcomes(control)]


def test_a_round_has_passed_once_it_is_over_and_each_drill_passed(control: JobControl) -> None:
    drilled(control, 1)
    reports = [in_round(control, 1), in_round(control, 2)]
    assert seen(control) == [("01", True, "")], "a round that goes on, or was killed, says nothing yet"
    over(control, *reports)
    assert seen(control) == [("10", True, ""), ("01", True, "")]


def test_a_round_in_which_the_newest_passes_and_an_older_one_fails_has_failed(control: JobControl) -> None:
    reports = [in_round(control, number, passed=number < 2) for number in (1, 2, 3)]
    says = (
        "of each savepoint failed: b000002 at the step restore: It is damaged; "
        "b000003 at the step restore: It is damaged."
    )
    assert seen(control) == [("11", False, says)], "before it is over, too"
    over(control, *reports)
    assert seen(control) == [("10", False, says)]
    drilled(control, 20, passed=False)
    assert seen(control)[0] == ("20", False, "failed at the step restore: It is damaged.")


def test_rounds_beside_each_other_stay_apart(control: JobControl) -> None:
    first, other = in_round(control, 1), in_round(control, 1, passed=False, token="b")
    second = in_round(control, 2)
    over(control, other, token="b")
    over(control, first, second)  # the one that began first ends last
    assert [passed for _, passed, _ in seen(control)] == [True, False, True]
    assert round_over(control, "20261127T000010Z-c") is None
    assert round_over(control, "../drills") is None


def test_of_many_that_failed_a_sentence_names_a_few(control: JobControl) -> None:
    over(control, *[in_round(control, number, passed=False) for number in range(1, 6)])
    ((_, _, says),) = seen(control)
    assert says.count("at the step") == 3 and says.endswith("; and 2 more.")


class CountingStore(MemoryStore):
    """Counts the files that are read."""

    reads = 0

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        self.reads += 1
        with super().open(key) as reader:
            yield reader


def test_of_a_round_that_is_over_one_report_is_read_and_its_record() -> None:
    store = CountingStore()
    control = JobControl(store, "orders")
    reports = [in_round(control, number) for number in range(1, 41)]
    store.reads = 0
    assert next(outcomes(control), None) is None and store.reads == 40, "the reads are counted"
    over(control, *reports)
    store.reads = 0
    assert next(outcomes(control)).passed
    assert store.reads == 2


def test_damaged_records_are_left_out(control: JobControl) -> None:
    first = in_round(control, 1, passed=False)
    control.store.write("drills/0000000002.json", b"{")
    second = in_round(control, 2)
    assert list(drills_of(control)) == [second, first]
    over(control, first, second)
    control.store.write("drill-rounds/20261127T000010Z-a/0000000001.json", b"{")
    assert round_over(control, "20261127T000010Z-a") is None
    assert [passed for _, passed, _ in seen(control)] == [False], "as of a round that is not over"


def test_savepoints_of_several_queries_stand_after_their_names() -> None:
    assert called({"main": "b000001"}) == "b000001"
    assert called({"days": "b000001", "hours": "b000002"}) == "days b000001, hours b000002"
    assert called({}) == ""
