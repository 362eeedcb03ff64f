"""The largest key of a query's state, kept among the job's records: `sla/hot-keys/<query>/`.

Only Spark's state reader can tell it (`inspect_state.py --record`), and judging must not need
Spark. The key itself is not kept: it may be somebody's name, and verdicts go to mail and chats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streambank.control.control import JobControl
from streambank.control.records import RecordStream
from streambank.core.errors import FormatError
from streambank.core.names import MAIN
from streambank.core.shape import decode
from streambank.core.units import to_json_time, utc_now
from streambank.sla.fact import Fact


def keep_hot_keys(
    control: JobControl, query: str | None, *, of: str, batch: int, operators: Iterable[Mapping[str, Any]]
) -> None:
    """Keep what was found.

    Args:
        operators: Of each stateful operator `operator`, `keys` (how many), and of its largest key
            `times_mean`, `rows` and `partitions`; the last three are None where it has no keys.
    """
    _stream(control, query).append(
        {"at": to_json_time(utc_now()), "of": of, "batch": batch, "operators": list(operators)}
    )


def read_hot_keys(control: JobControl, query: str | None = None) -> list[Fact] | None:
    """The largest key of each operator against the mean, as it was found last; None where nobody looked.

    Raises:
        FormatError: The newest record is damaged (code `damaged-record`).
    """
    records = _stream(control, query)
    record = records.latest()
    if record is None:
        return None
    what = f"record of the largest keys of job {control.name}"
    hint = f"Look at {records.describe(record.number)}, or find the keys again."
    found = decode(_Found, record.data, what, hint=hint)
    facts = []
    for one in found.operators:
        if one.times_mean is None:
            continue
        if one.rows is None or one.partitions is None:
            problem = f"operator {one.operator} has a largest key without its rows and partitions"
            raise FormatError(f"The {what} cannot be read: {problem}.", code="damaged-record", hint=hint)
        said = (
            f"It has {one.rows:,} rows, in partition {', '.join(map(str, one.partitions))}, and is one of "
            f"{one.keys:,} keys of {found.of} (batch {found.batch}): the program inspect_state names it."
        )
        facts.append(Fact(found.at, one.times_mean, f"operator {one.operator}", said))
    return facts


@dataclass(frozen=True, slots=True)
class _LargestKey:
    operator: int
    keys: int
    times_mean: float | None
    rows: int | None
    partitions: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class _Found:
    at: datetime
    of: str
    batch: int
    operators: tuple[_LargestKey, ...]


def _stream(control: JobControl, query: str | None) -> RecordStream:
    return control.stream(f"sla/hot-keys/{query or MAIN}")
