"""The largest key of a query's state, kept among the job's records: `sla/hot-keys/<query>/`.

Only Spark's state reader can tell it (`inspect_state.py --record`), and judging must not need
Spark. The key itself is not kept: it may be somebody's name, and verdicts go to mail and chats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streambank.control.control import JobControl
from streambank.control.records import RecordStream
from streambank.core.errors import FormatError
from streambank.core.names import MAIN
from streambank.core.units import from_json_time, to_json_time, utc_now
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
    try:
        return list(_facts(record.data))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"The record of the largest keys of job {control.name} cannot be read: {error!r}.",
            code="damaged-record",
            hint=f"Look at {records.describe(record.number)}, or find the keys again.",
        ) from error


def _facts(data: Mapping[str, Any]) -> Iterable[Fact]:
    at = from_json_time(str(data["at"]))
    for one in data["operators"]:
        if one["times_mean"] is not None:
            partitions = ", ".join(map(str, one["partitions"]))
            yield Fact(
                at,
                float(one["times_mean"]),
                f"operator {one['operator']}",
                f"It has {one['rows']:,} rows, in partition {partitions}, and is one of {one['keys']:,} keys "
                f"of {data['of']} (batch {data['batch']}): the program inspect_state names it.",
            )


def _stream(control: JobControl, query: str | None) -> RecordStream:
    return RecordStream(control.store, f"sla/hot-keys/{query or MAIN}")
