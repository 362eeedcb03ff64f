"""A history in a few numbers for each metric: the newest value, the middle one, a high one, the highest."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from streambank.core.shape import JsonName, JsonObject
from streambank.core.units import to_json_time
from streambank.sla.history.point import History, Point
from streambank.sla.metrics import METRICS, unit_of

HIGH = 0.95


@dataclass(frozen=True, slots=True)
class Summary(JsonObject):
    """One metric over a history; 95 % are not above `p95` (the nearest rank)."""

    unit: str
    batches: int
    newest: float
    median: float
    p95: float
    maximum: Annotated[float, JsonName("max")]


@dataclass(slots=True)
class HistoryMetrics:
    """Metrics of a history, gathered in one pass."""

    query: str
    batches: int = 0
    begin: datetime | None = None
    end: datetime | None = None
    metrics: dict[str, array[float]] = field(default_factory=dict)
    operators: dict[int, dict[str, array[float]]] = field(default_factory=dict)
    runs: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, history: History) -> HistoryMetrics:
        gathered = cls(history.query, runs=history.runs, notes=history.notes)
        gathered.take(history.points)
        return gathered

    def take(self, points: Iterable[Point]) -> None:
        for point in points:
            self.batches += 1
            self.begin = self.begin or point.at
            self.end = point.at
            for name, value in point.values.items():
                self.metrics.setdefault(name, array("d")).append(value)
            for operator, values in point.operators.items():
                columns = self.operators.setdefault(operator, {})
                for name, value in values.items():
                    columns.setdefault(name, array("d")).append(value)

    def summaries(self, operator: int | None = None) -> dict[str, Summary]:
        """Each metric that is known, in the order of the table in the docs."""
        columns = self.metrics if operator is None else self.operators[operator]
        return {name: _summary(name, columns[name]) for name in METRICS if name in columns}

    def to_dict(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "batches": self.batches,
            "runs": self.runs,
            "from": to_json_time(self.begin) if self.begin else None,
            "to": to_json_time(self.end) if self.end else None,
            "metrics": {name: one.to_dict() for name, one in self.summaries().items()},
            "operators": [
                {
                    "operator": operator,
                    "metrics": {name: one.to_dict() for name, one in self.summaries(operator).items()},
                }
                for operator in sorted(self.operators)
            ],
            "notes": list(self.notes),
        }


def _summary(name: str, values: array[float]) -> Summary:
    ordered = sorted(values)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    # The smallest whole number of values that is at least 95 % of them, in whole numbers.
    rank = -(-count * round(HIGH * 100) // 100)
    return Summary(unit_of(name), count, values[-1], middle, ordered[rank - 1], ordered[-1])
