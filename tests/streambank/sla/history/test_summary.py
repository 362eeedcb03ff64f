"""A history in a few numbers."""

from __future__ import annotations

import json

import pytest

from streambank.sla.history.point import History, Point
from streambank.sla.history.summary import HistoryMetrics
from streambank.sla.metrics import METRICS
from tests.support.sla.progress_records import RECORDED, at, held, recorded


def gathered(*values: float) -> HistoryMetrics:
    points = [Point(at(n), n, values={"batch_s": value}) for n, value in enumerate(values)]
    return HistoryMetrics.of(History("main", points))


@pytest.mark.parametrize(
    ("values", "median", "p95"),
    [((3,), 3, 3), ((1, 9), 5, 9), ((9, 1, 5), 5, 9), (tuple(range(1, 21)), 10.5, 19), (range(101), 50, 95)],
)
def test_the_newest_the_middle_a_high_one_and_the_highest(
    values: tuple[float, ...], median: float, p95: float
) -> None:
    one = gathered(*values).summaries()["batch_s"]
    assert (one.newest, one.median, one.p95, one.maximum) == (list(values)[-1], median, p95, max(values))
    assert (one.unit, one.batches) == ("s", len(values))


@pytest.mark.parametrize("name", RECORDED)
def test_a_history_as_json(name: str) -> None:
    history = held(recorded(name))
    answer = HistoryMetrics.of(history).to_dict()
    json.dumps(answer)
    assert (answer["query"], answer["runs"], answer["notes"]) == (name, history.runs, list(history.notes))
    assert list(answer["metrics"]) == [metric for metric in METRICS if metric in answer["metrics"]]
    assert answer["from"] < answer["to"]


def test_nothing_at_all() -> None:
    assert gathered().to_dict() == {
        "query": "main",
        "batches": 0,
        "runs": 0,
        "from": None,
        "to": None,
        "metrics": {},
        "operators": [],
        "notes": [],
    }
