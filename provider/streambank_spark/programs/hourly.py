"""Hours of many histories, by Spark: each task measures a portion of one, with the engine's own code.

What a task gives is small: the values of each metric by hour. Spark brings those of an hour together and
takes minimum, median, 95th percentile and maximum of them, the same as `streambank.sla.history.summary` does.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark import Broadcast
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streambank.sla.history.clock_order import Heads
from streambank.sla.history.sharded import Portion, PortionScan, seen_before
from streambank.storage import open_store
from streambank_spark.programs.rolled import HOUR_S, HourRow, Mark
from streambank_spark.submit.bundle import use_packages

_VALUES = pa.schema(
    [
        pa.field("source", pa.int32()),
        pa.field("hour", pa.int64()),
        pa.field("operator", pa.int32()),
        pa.field("metric", pa.string()),
        pa.field("values", pa.list_(pa.float64())),
    ]
)
_VALUES_DDL = "source int, hour long, operator int, metric string, values array<double>"
_COUNTS = ("records", "late", "lost", "duplicates", "damaged", "torn", "stale")


@dataclass(frozen=True, slots=True)
class Source:
    """A query whose hours are to be rolled up.

    Attributes:
        job: Its job.
        query: Its name, or `main`.
        location: URI of the job's records.
        heads: The files of interest, and how they begin.
        end: Hours before this are over.
        mark: How far it was rolled up before.
    """

    job: str
    query: str
    location: str
    heads: Heads
    end: datetime
    mark: Mark = field(default_factory=Mark)

    @property
    def begin(self) -> datetime | None:
        """From where on; None for the beginning."""
        return self.mark.through


@dataclass(frozen=True, slots=True)
class Counted:
    """What was seen of a portion, or of several.

    Attributes:
        counts: Records that went into hours; late, lost, duplicate, stale records; damaged lines, torn files.
        seen: How many records each file has, by key.
        runs: The first batch of each run.
    """

    counts: Mapping[str, int]
    seen: Mapping[str, int]
    runs: Mapping[str, int]


class Told(AccumulatorParam[dict[int, Counted]]):
    """What tasks counted, by portion: one that ran twice counts once."""

    def zero(self, value: dict[int, Counted]) -> dict[int, Counted]:
        """Nothing."""
        return {}

    def addInPlace(self, value1: dict[int, Counted], value2: dict[int, Counted]) -> dict[int, Counted]:
        """Both."""
        return {**value1, **value2}


class Listening(Told):
    """The same on the driver, which tells how many portions are done.

    Args:
        tell: Told with each portion.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell

    def __reduce__(self) -> tuple[type[Told], tuple[()]]:
        # Executors get the other half.
        return Told, ()

    def addInPlace(self, value1: dict[int, Counted], value2: dict[int, Counted]) -> dict[int, Counted]:
        """Both; tells how many there are."""
        both = super().addInPlace(value1, value2)
        if value2:
            self._tell(len(both))
        return both


def rolled_hours(
    spark: SparkSession,
    sources: Sequence[Source],
    work: Sequence[tuple[int, Portion]],
    gathered: Accumulator[dict[int, Counted]],
) -> Iterator[tuple[int, HourRow]]:
    """Rows by source, hour, operator and metric; what was counted is there when the first one comes.

    Args:
        spark: Where.
        sources: The queries.
        work: Portions, each with the place of its source.
        gathered: Gets what each task counts.
    """
    context = spark.sparkContext
    plan = context.broadcast((tuple(sources), tuple(work)))
    frame = (
        spark.range(0, len(work), 1, max(1, len(work)))
        .mapInArrow(_measurer(plan, gathered), _VALUES_DDL)
        .groupBy("source", "hour", "operator", "metric")
        .agg(F.sort_array(F.flatten(F.collect_list("values"))).alias("sorted"))
        .select("source", "hour", "operator", "metric", *_figures())
    )
    ordered = frame.repartition(min(len(sources), 32), "source").sortWithinPartitions(
        "source", "hour", "operator", "metric"
    )
    try:
        yield from _rows(ordered)
    finally:
        plan.destroy()


def _rows(frame: DataFrame) -> Iterator[tuple[int, HourRow]]:
    for row in frame.toLocalIterator():
        source, *rest = row
        yield source, HourRow(*rest)


def _figures() -> list[Any]:
    """As `streambank.sla.history.summary` takes them, in whole numbers: ranks are exact."""
    size = "cast(size(sorted) as bigint)"

    def ranked(place: str) -> str:
        return f"element_at(sorted, cast({place} as int))"

    return [
        F.expr(f"{size} as count"),
        F.expr(f"{ranked('1')} as minimum"),
        F.expr(f"({ranked(f'({size} - 1) div 2 + 1')} + {ranked(f'{size} div 2 + 1')}) / 2 as median"),
        F.expr(f"{ranked(f'({size} * 95 + 99) div 100')} as p95"),
        F.expr(f"{ranked(size)} as maximum"),
    ]


def _measurer(
    plan: Broadcast[tuple[tuple[Source, ...], tuple[tuple[int, Portion], ...]]],
    gathered: Accumulator[dict[int, Counted]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        use_packages()
        sources, work = plan.value
        for batch in batches:
            for number in batch.column(0).to_pylist():
                place, portion = work[number]
                values, counted = measured(sources[place], portion)
                gathered.add({number: counted})
                yield _as_arrow(place, values)

    return measure


Values = dict[tuple[int, int | None, str], "array[float]"]


def measured(source: Source, portion: Portion) -> tuple[Values, Counted]:
    """The values of each metric of a portion, by hour, operator and metric."""
    scan = PortionScan(open_store(source.location), source.heads, portion)
    values: Values = {}
    records = late = 0
    seen = source.mark.seen
    for place, number, point in scan:
        if source.begin is not None and point.at < source.begin:
            late += not seen_before(source.heads, place, number, seen)
            continue
        if point.at >= source.end:
            continue
        records += 1
        hour = int(point.at.timestamp()) // HOUR_S
        for name, value in point.values.items():
            values.setdefault((hour, None, name), array("d")).append(value)
        for operator, of_operator in point.operators.items():
            for name, value in of_operator.items():
                values.setdefault((hour, operator, name), array("d")).append(value)
    files = scan.files
    numbers = (records, late, scan.lost, scan.duplicates, files.damaged, files.torn, files.stale)
    return values, Counted(
        dict(zip(_COUNTS, numbers, strict=True)),
        {source.heads[place][0]: count for place, count in files.readable.items() if place >= portion.begin},
        scan.runs,
    )


def _as_arrow(place: int, values: Values) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "source": [place] * len(values),
            "hour": [hour for hour, _, _ in values],
            "operator": [operator for _, operator, _ in values],
            "metric": [metric for _, _, metric in values],
            "values": [one.tolist() for one in values.values()],
        },
        schema=_VALUES,
    )


def together(portions: Sequence[Counted], before: Mark) -> Counted:
    """What was counted of a source, its portions in order; the first batch of a run is the earliest said."""
    runs = dict(before.runs)
    for one in portions:
        for run, batch in one.runs.items():
            runs.setdefault(run, batch)
    return Counted(
        {name: sum(one.counts[name] for one in portions) for name in _COUNTS},
        {key: count for one in portions for key, count in one.seen.items()},
        runs,
    )
