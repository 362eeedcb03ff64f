"""Histories to be judged, and their verdicts by objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from streambank.declaration.sla import Declared, SlaPolicy
from streambank.sla.history.point import History, Point
from streambank.sla.judge.facts import Facts
from streambank.sla.judge.judge import judge
from streambank.sla.verdict import Verdict
from tests.support.sla.series import both, leak, noisy, points, wave

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def batches(
    values: Sequence[Mapping[str, float]],
    *,
    until: datetime = NOW,
    every: timedelta = MINUTE,
    operators: Sequence[Mapping[int, Mapping[str, float]]] = (),
    **more: Any,
) -> list[Point]:
    """The newest of them a second before the end."""
    begin = until - timedelta(seconds=1) - every * (len(values) - 1)
    return [
        Point(
            begin + every * number,
            number,
            values=one,
            operators=operators[number] if operators else {},
            **{"run_id": "run", "epoch": 1, **more},
        )
        for number, one in enumerate(values)
    ]


def verdicts(
    history: Sequence[Point] | Iterator[Point],
    policy: SlaPolicy | None = None,
    facts: Facts | None = None,
    now: datetime = NOW,
) -> dict[str, Verdict]:
    return {one.objective: one for one in judge("flights", History("main", history), policy, now, facts)}


def declare(**objectives: Declared) -> SlaPolicy:
    return SlaPolicy(objectives)


STEADY = {
    "state_bytes": 1e9,
    "state_memory_bytes": 1e8,
    "state_rows": 1e6,
    "checkpoint_bytes": 2e9,
    "checkpoint_s": 2.0,
    "batch_s": 10.0,
    "get_ms": 0.01,
    "put_ms": 0.02,
    "watermark_lag_s": 60.0,
    "source_lag_rows": 10.0,
    "dropped_rows": 0.0,
    "snapshot_age_batches": 5.0,
    "gap_s": 45.0,
}


def days_of(policy: SlaPolicy | None = None, **more: Any) -> dict[str, Verdict]:
    shape = both(leak(2e9, 30e9), wave(5e9))
    history = points("state_bytes", noisy(shape, 1e8, 1), days=8)
    return verdicts(history, policy, now=history[-1].at + MINUTE, **more)
