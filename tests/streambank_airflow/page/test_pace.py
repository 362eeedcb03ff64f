"""How often pages are kept: as often as a bounded share of a process allows."""

from __future__ import annotations

import pytest

from streambank_airflow.page.pace import (
    LINE_EVERY_S,
    LINES_TO_ALL,
    MOST_EVERY_S,
    PROCESSOR_SHARE,
    THREADS,
    THREADS_SHARE,
    WatchPace,
)


class Watch:
    """What takes part."""


def paced(count: int, **cost: float) -> tuple[WatchPace, list[Watch]]:
    """The pace of so many watches, whose lines cost this, and whose other parts cost nothing."""
    pace, watches = WatchPace(), [Watch() for _ in range(count)]
    for one in watches:
        pace.join(one, 0.0)
    pace.line.processor_s, pace.line.thread_s = cost.get("processor_s", 0.0), cost.get("thread_s", 0.0)
    pace.whole.processor_s = pace.whole.thread_s = 0.0
    return pace, watches


@pytest.mark.parametrize(
    ("count", "cost", "every_s"),
    [
        (1, {"processor_s": 0.2}, LINE_EVERY_S),
        (1000, {"processor_s": 0.01}, LINE_EVERY_S),
        (1000, {"processor_s": 0.2}, 1000 * 0.2 / PROCESSOR_SHARE),
        (1000, {"thread_s": 1.0}, 1000 * 1.0 / (THREADS * THREADS_SHARE)),
        (1000, {"processor_s": 100.0}, MOST_EVERY_S),
    ],
    ids=["one", "cheap", "processor", "storage that answers late", "bounded"],
)
def test_the_interval_stretches_where_a_minute_would_cost_too_much(
    count: int, cost: dict[str, float], every_s: float
) -> None:
    pace, watches = paced(count, **cost)
    assert pace.every_s() == pytest.approx(every_s)
    if every_s != LINE_EVERY_S and every_s != MOST_EVERY_S:
        assert count / pace.every_s() * cost.get("processor_s", 0.0) <= PROCESSOR_SHARE + 1e-9
    watches.clear()
    assert pace.every_s() == LINE_EVERY_S, "watches that have ended do not count"


def test_all_parts_count_with_their_share() -> None:
    pace, watches = paced(1000)
    pace.whole.processor_s = 1.0
    assert pace.every_s() == pytest.approx(len(watches) / LINES_TO_ALL / PROCESSOR_SHARE)


def test_what_a_page_costs_is_the_mean_of_the_newest() -> None:
    pace, watches = paced(1000, processor_s=1.0)
    slow = pace.every_s()
    for _ in range(200):
        pace.kept(False, 0.001, 0.01)
    assert pace.every_s() == LINE_EVERY_S < slow
    for _ in range(200):
        pace.kept(True, 30.0, 30.0)
    assert pace.every_s() == MOST_EVERY_S
    assert len(watches) == 1000


def test_the_first_lines_of_a_triggerer_come_one_after_the_other() -> None:
    pace = WatchPace()
    pace.line.processor_s, pace.line.thread_s = 0.02, 0.0
    watches = [Watch() for _ in range(1000)]
    due_at = [pace.join(one, 100.0) for one in watches]
    assert due_at[0] == 100.0
    assert due_at == sorted(set(due_at)), "no two at one moment"
    assert due_at[-1] - due_at[0] == pytest.approx(999 * 0.02 / PROCESSOR_SHARE)
    assert pace.join(Watch(), 10_000.0) == 10_000.0, "one that comes later is due at once"


def test_watches_that_keep_at_one_moment_do_not_stay_together() -> None:
    pace, _ = paced(1)
    drawn = [pace.next_s() for _ in range(1000)]
    assert all(0.9 * LINE_EVERY_S <= one <= 1.1 * LINE_EVERY_S for one in drawn)
    assert len({round(one, 1) for one in drawn}) > 50
