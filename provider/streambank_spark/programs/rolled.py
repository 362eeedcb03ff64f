"""The Parquet files of a roll-up: what is in them, how far they go, and how one is added.

`job=<job>/day=<YYYY-MM-DD>/<query>.<HH>.parquet` holds the hours of a day from hour HH on, as far as the file
itself says (docs/formats/rollup.md). A file never changes, is created exclusively, and those of a query are
created in the order of time: the newest tells how far the roll-up goes.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streambank.core.errors import FormatError
from streambank.core.units import from_json_time, to_json_time
from streambank.sla.metrics import METRICS
from streambank.storage.store import Store

HOUR_S = 3600
FORMAT = 1
_KEY = b"streambank"
_NAME = re.compile(r"(.+)\.([0-9]{2})\.parquet")
_MOST = 64

SCHEMA = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("hour", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("operator", pa.int32()),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("minimum", pa.float64(), nullable=False),
        pa.field("median", pa.float64(), nullable=False),
        pa.field("p95", pa.float64(), nullable=False),
        pa.field("maximum", pa.float64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class HourRow:
    """One metric of one hour of a query.

    Attributes:
        hour: Hours since 1970.
        operator: Of which stateful operator; None for all.
        metric: Which.
        count: Of how many batches it is known.
        minimum: The smallest value.
        median: The middle one.
        p95: The nearest rank.
        maximum: The largest.
    """

    hour: int
    operator: int | None
    metric: str
    count: int
    minimum: float
    median: float
    p95: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the roll-up of a query goes, and what the next one needs to know.

    Attributes:
        through: Everything before this is rolled up; None for nothing yet.
        seen: How many records the newest files of records had then, by key.
        runs: The first batch of the newest runs.
    """

    through: datetime | None = None
    seen: Mapping[str, int] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)


def marks(store: Store, job: str, queries: Iterable[str]) -> dict[str, Mark]:
    """How far the roll-up of each query of a job goes, by its newest file.

    Args:
        store: The roll-up.
        job: The job.
        queries: Its queries.

    Raises:
        FormatError: Such a file cannot be read (code `damaged-roll-up`).
    """
    found: dict[str, Mark] = {}
    sought = set(queries)
    for day in sorted(store.names(f"job={job}"), reverse=True):
        if not sought:
            break
        newest: dict[str, str] = {}
        for name in store.names(f"job={job}/{day}") if day.startswith("day=") else ():
            match = _NAME.fullmatch(name)
            if match and match[1] in sought:
                newest[match[1]] = name  # names are sorted: the last hour stays
        for query, name in newest.items():
            found[query] = _mark(store, f"job={job}/{day}/{name}")
            sought.remove(query)
    return {**dict.fromkeys(sought, Mark()), **found}


def _mark(store: Store, key: str) -> Mark:
    try:
        metadata = pq.read_schema(io.BytesIO(store.read(key))).metadata or {}
        said = json.loads(metadata[_KEY])
        if said["format"] != FORMAT:
            raise ValueError(f"format {said['format']}")
        seen = {str(name): int(count) for name, count in said["seen"].items()}
        runs = {str(name): int(batch) for name, batch in said["runs"].items()}
        return Mark(from_json_time(said["through"]), seen, runs)
    except (pa.ArrowException, KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"{store.uri}/{key} does not say how far it goes: {str(error).splitlines()[0]}.",
            code="damaged-roll-up",
            hint="Move it away, and its hours are rolled up again as far as their records are still kept.",
        ) from error


def add(
    store: Store,
    job: str,
    query: str,
    rows: Sequence[HourRow],
    *,
    begin: datetime | None,
    mark: Mark,
) -> str:
    """Create the file of one day.

    Args:
        store: The roll-up.
        job: The job.
        query: The query.
        rows: The hours of one day.
        begin: What is before is in other files; None for nothing.
        mark: What the file says of itself; its `through` may be later than the day.

    Returns:
        The file's key.

    Raises:
        ConflictError: Somebody else has rolled up these hours meanwhile (code `exists`).
    """
    day_begin = moment(rows[0].hour).replace(hour=0)
    first = day_begin if begin is None else max(day_begin, begin)
    day_end = day_begin + timedelta(days=1)
    said = {
        "format": FORMAT,
        "job": job,
        "query": query,
        "through": to_json_time(min(day_end, mark.through or day_end)),
        "seen": dict(sorted(mark.seen.items())[-_MOST:]),
        "runs": dict(list(mark.runs.items())[-_MOST:]),
    }
    key = f"job={job}/day={day_begin:%Y-%m-%d}/{query}.{first:%H}.parquet"
    store.write(key, _parquet(query, rows, said), exclusive=True)
    return key


def _parquet(query: str, rows: Sequence[HourRow], said: Mapping[str, Any]) -> bytes:
    columns = {
        "query": [query] * len(rows),
        "hour": [moment(row.hour) for row in rows],
        "unit": [METRICS[row.metric].unit for row in rows],
        **{
            name: [getattr(row, name) for row in rows]
            for name in ("operator", "metric", "count", "minimum", "median", "p95", "maximum")
        },
    }
    table = pa.table(columns, schema=SCHEMA.with_metadata({_KEY: json.dumps(said).encode()}))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def moment(hour: int) -> datetime:
    """When an hour begins."""
    return datetime.fromtimestamp(hour * HOUR_S, UTC)
