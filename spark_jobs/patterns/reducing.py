"""Reducing and aggregating state: values are folded in, and only the fold is kept.

    spark-submit reducing.py --input DIR --output DIR [--builtin]

Flink has two kinds of state that Spark has no class for. Both are a `ValueState` and a function:

* *reducing*: two values of one type give one of the same type. Here the warmest reading.
* *aggregating*: an accumulator, which may be of another type than the values, and a result that is computed
  from it. Here count, sum, least and greatest are kept; mean and span come out. Keep the accumulator, never
  the result: two means cannot be merged, two sums can.

The state is one row a device, however many readings came, and is kept for ever (add a time to live, see
`state_variables.py`, if devices come and go). The readings of a batch are folded in memory first, so the
state is read once and written once (`batched.py`).

`--builtin` computes the same by `groupBy(...).agg(...)`. Prefer that wherever Spark has the function: it
keeps the same accumulator in one row, and folds a batch before the shuffle, so that one row of each key and
task travels, while `transformWithState` sends every reading to a Python worker. Write your own for a fold
that Spark lacks, or that decides something. The function must be associative and commutative, since rows of a
batch come in any order. In Flink: `ReducingState` and `AggregatingState`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import application
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, ValueState

READINGS = "event_time TIMESTAMP, device STRING, milli_degrees BIGINT"
FOLDED = "device STRING, warmest BIGINT, readings BIGINT, mean DOUBLE, span BIGINT"

Tuple = tuple[Any, ...]


class Folded:
    """A fold on a `ValueState`: reducing state, and the accumulator of aggregating state.

    Args:
        state: Where the fold is kept.
        merge: Makes one of two.
    """

    def __init__(self, state: ValueState, merge: Callable[[Tuple, Tuple], Tuple]) -> None:
        """Keep both."""
        self.state = state
        self.merge = merge

    def add(self, values: Iterable[Tuple]) -> Tuple:
        """Fold values in; one read and one write of the state. Returns what is kept now."""
        before = self.state.get()
        after = functools.reduce(self.merge, values if before is None else [before, *values])
        self.state.update(after)
        return after


def _warmer(one: Tuple, other: Tuple) -> Tuple:
    return max(one, other)


def _merged(one: Tuple, other: Tuple) -> Tuple:
    return (one[0] + other[0], one[1] + other[1], min(one[2], other[2]), max(one[3], other[3]))


class Devices(StatefulProcessor):
    """Keeps a reducing and an aggregating state of each device."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open both."""
        accumulator = "readings BIGINT, total BIGINT, least BIGINT, greatest BIGINT"
        self.warmest = Folded(handle.getValueState("warmest", "milli_degrees BIGINT"), _warmer)
        self.summary = Folded(handle.getValueState("summary", accumulator), _merged)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Fold the readings of a batch in, and write the results."""
        degrees = [row.milli_degrees for row in rows]
        (warmest,) = self.warmest.add((one,) for one in degrees)
        readings, total, least, greatest = self.summary.add((1, one, one, one) for one in degrees)
        mean, span = total / readings, greatest - least
        yield Row(device=key[0], warmest=warmest, readings=readings, mean=mean, span=span)

    def close(self) -> None:
        """Nothing is held."""


def folded(readings: DataFrame) -> DataFrame:
    """The newest results of each device that a batch touches."""
    return readings.groupBy("device").transformWithState(Devices(), FOLDED, "Update", "None")


def builtin(readings: DataFrame) -> DataFrame:
    """The same, by Spark's own functions."""
    degrees = F.col("milli_degrees")
    return readings.groupBy("device").agg(
        F.max(degrees).alias("warmest"),
        F.count("*").alias("readings"),
        F.avg(degrees).alias("mean"),
        (F.max(degrees) - F.min(degrees)).alias("span"),
    )


def main() -> None:
    """Read readings, write the results of each batch's devices."""
    parser = application.arguments(__doc__)
    parser.add_argument("--builtin", action="store_true", help="by groupBy(...).agg(...)")
    args = parser.parse_args()
    readings = application.events(application.session("reducing"), args, READINGS)
    application.replace_batches((builtin if args.builtin else folded)(readings), args, "reducing")


if __name__ == "__main__":
    main()
