"""The output that `origin_delays.py` must have written, computed without Spark, compared with its topic.

Spark's Kafka sink does not write exactly once: after a restore a window may be there twice. Windows that are
equal in every column count once here. The number of repeated ones is returned, to compare it with the number
that the restore has announced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

HOUR = timedelta(hours=1)
WATERMARK = timedelta(hours=12)
DELAYED_MIN = 15
COLUMNS = ("hour_s", "origin", "scheduled", "departed", "delayed", "delay_min_total")

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TopicComparison:
    """A topic against expectation.

    Attributes:
        expected: Rows that were due.
        missing: Rows that are due but not there.
        wrong: Rows that are there but not due.
        again: Records that repeat another one.
    """

    expected: int
    missing: tuple[Row, ...]
    wrong: tuple[Row, ...]
    again: int

    @property
    def equal(self) -> bool:
        """Whether every row that was due is there, and nothing else, however often."""
        return not self.missing and not self.wrong


def origin_delays(
    flights: Iterable[Mapping[str, Any]], closing: str | None = None, watermark: timedelta = WATERMARK
) -> list[Row]:
    """The rows that are due, as in `COLUMNS`.

    Args:
        flights: Departures as `replay.departures` gives them, each once.
        closing: Event time of the closing record, where it was written.
        watermark: The application's `--watermark`.
    """
    groups: dict[tuple[datetime, str], list[Any]] = {}
    latest = datetime.min.replace(tzinfo=UTC)
    for flight in flights:
        at = datetime.fromisoformat(flight["event_time"])
        latest = max(latest, at)
        hour = at.replace(minute=0, second=0, microsecond=0)
        groups.setdefault((hour, flight["origin"]), []).append(flight["dep_delay_min"])
    if closing is not None:
        latest = max(latest, datetime.fromisoformat(closing))
    return [
        _row(hour, origin, delays)
        for (hour, origin), delays in groups.items()
        if hour + HOUR <= latest - watermark
    ]


def _row(hour: datetime, origin: str, delays: list[int | None]) -> Row:
    known = [delay for delay in delays if delay is not None]
    delayed = sum(delay >= DELAYED_MIN for delay in known)
    return (
        int(hour.timestamp()), origin, len(delays), len(known), delayed, sum(known) if known else None
    )  # fmt: skip


def compare_topic(expected: Iterable[Row], values: Iterable[Mapping[str, Any]]) -> TopicComparison:
    """Compare what is due with the values of a topic.

    Args:
        expected: Rows that are due.
        values: The records' JSON values.
    """
    due = set(expected)
    there = Counter(tuple(value.get(name) for name in COLUMNS) for value in values)
    return TopicComparison(
        expected=len(due),
        missing=tuple(sorted(due - set(there), key=str)),
        wrong=tuple(sorted(set(there) - due, key=str)),
        again=sum(count - 1 for count in there.values()),
    )
