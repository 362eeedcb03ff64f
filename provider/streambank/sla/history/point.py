"""What was measured of a query: a point for each batch, and a history of them, oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a point tells besides, that stands for the batches of an hour.

    Attributes:
        began: When the first of them was committed.
        lowest: The smallest value of each metric; its time and batch are those of the newest.
    """

    count: int
    began: datetime
    first: int
    lowest: Point
    highest: Point


@dataclass(frozen=True, slots=True)
class Point:
    """One batch of one query as measured; what is not known is not in `values`.

    Or all batches of a run within an hour: then values are medians, and all else is that of the newest.

    Attributes:
        at: When it was committed, aware and in UTC.
        run_id: Spark's id of the run; None where only the checkpoint tells.
        epoch: The driver's epoch of the lease; None where only the checkpoint tells.
        watermark: The event-time watermark that the batch ran with; None for none.
        stretch: What else is known where it stands for several batches; None for one.
    """

    at: datetime
    batch: int
    run_id: str | None = None
    epoch: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    operators: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    watermark: datetime | None = None
    stretch: Stretch | None = None


@dataclass(frozen=True, slots=True)
class History:
    """What is known of a query's batches.

    Attributes:
        points: Its batches, oldest first, by times that never go back; may be gone through again and again.
        notes: What was odd: damaged lines, lost batches, torn files, clock jumps, interleaved epochs.
    """

    query: str
    points: Iterable[Point] = ()
    runs: int = 0
    notes: tuple[str, ...] = ()


def over_all(operators: Mapping[int, Mapping[str, float]], summed: Iterable[str]) -> dict[str, float]:
    """Values over all operators: sums of what each one tells, and the age of the oldest newest snapshot."""
    values: dict[str, float] = {}
    for name in summed:
        known = [operator[name] for operator in operators.values() if name in operator]
        if known and len(known) == len(operators):
            values[name] = sum(known)
    age = "snapshot_age_batches"
    ages = [operator[age] for operator in operators.values() if age in operator]
    return values | ({age: max(ages)} if ages else {})
