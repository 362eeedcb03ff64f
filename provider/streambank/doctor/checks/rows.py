"""Rows that cost much: collections in the state that are rewritten with each change, and hot keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streambank.checkpoint.closure import Closure
from streambank.core.finding import Finding
from streambank.core.units import number_or_none, say_bytes, to_json_time
from streambank.declaration.objectives import PROMISES
from streambank.doctor.checks.state_growth import StateColumns
from streambank.doctor.subject import NO_PROGRESS, CheckResult, SkippedCheck
from streambank.sla.fact import Fact
from streambank.sla.skew.report import skew_of_closure
from streambank.sla.skew.skew import DEFAULT_LIMIT

LARGE_ROW_BYTES = 10_000
"""A row of so many bytes on average, with a collection in it, is worth splitting."""
SLOW_UPDATE_MS = 1.0
"""So long an update of one row is worth looking at: RocksDB takes some microseconds."""
MIN_UPDATES = 1000
"""A mean over fewer updates says nothing."""
_SIZES = ("rocksdbSstFileSize", "stateOnCurrentVersionSizeBytes")


def check_nested(
    operators: Sequence[StateColumns], reported: Mapping[int, Sequence[Mapping[str, object]]]
) -> Iterator[CheckResult]:
    """Arrays and maps within a row, where rows have become large or updates slow."""
    for operator in operators:
        nested = [text for column in operator.columns for text in column.collections]
        if not nested:
            continue
        said = reported.get(operator.operator)
        if not said:
            yield SkippedCheck("what the collections in state rows cost", *NO_PROGRESS)
            continue
        costs = [text for text in (_row_size(said[-1]), _update_time(said)) if text is not None]
        if costs:
            yield Finding(
                "nested-state",
                "warning",
                f"state/{operator.operator}",
                f"Rows of {operator.called} hold collections ({', '.join(nested)}), and "
                f"{' and '.join(costs)}.",
                "Spark reads, decodes, encodes and writes the whole row for each change of one element.",
                "Keep the elements as separate rows: ListState or MapState of transformWithState, or a "
                "finer key.",
            )


def _row_size(said: Mapping[str, object]) -> str | None:
    rows, custom = _number(said, "numRowsTotal"), said.get("customMetrics")
    sizes = [_number(custom, name) for name in _SIZES] if isinstance(custom, dict) else []
    size_bytes = max(sizes, default=0.0)
    if rows <= 0 or size_bytes / rows < LARGE_ROW_BYTES:
        return None
    return (
        f"a row has {say_bytes(size_bytes / rows)} on average ({say_bytes(size_bytes)} in {rows:,.0f} rows)"
    )


def _update_time(said: Sequence[Mapping[str, object]]) -> str | None:
    updated = sum(_number(one, "numRowsUpdated") for one in said)
    took_ms = sum(_number(one, "allUpdatesTimeMs") for one in said)
    if updated < MIN_UPDATES or took_ms / updated < SLOW_UPDATE_MS:
        return None
    return (
        f"an update of one took {took_ms / updated:.3g} ms on average ({updated:,.0f} of {len(said)} batches)"
    )


def _number(data: Mapping[str, object], name: str) -> float:
    return number_or_none(data.get(name)) or 0.0


def check_hot_keys(
    keys: Sequence[Fact] | None, why: str = "", *, declared: bool = False, without: str = ""
) -> Iterator[CheckResult]:
    """Keys that have many times the rows of the others, as Spark found them last.

    Args:
        keys: The largest key of each operator against the mean; None where they were never counted.
        why: Why traffic was not measured, without a full stop; empty where it was or nothing asks for it.
        without: The launch of the driver that runs, where that does not measure it; else empty.
    """
    if declared and without:
        yield SkippedCheck(
            "hot keys by traffic",
            f"The driver of launch {without} does not count: it was launched without the table hot_keys, "
            "which the job declares now.",
            "Restart the job: a driver samples from its start on.",
        )
    elif why:
        yield SkippedCheck(
            "hot keys by traffic", f"{why}.", "What is sampled, and what is not: docs/howto/skew.md."
        )
    elif keys is None and declared:
        yield SkippedCheck(
            "hot keys by traffic",
            "The job declares the table hot_keys, and no batch was measured yet.",
            "A driver samples from its start on.",
        )
    elif keys is None:
        yield SkippedCheck(
            "hot keys",
            "Only Spark can count rows by key, and no such count was made.",
            "Declare the table hot_keys of the job, or run the program inspect_state with --record: "
            "docs/howto/skew.md.",
        )
    limit = PROMISES["hot_key"].warn or 0.0
    for key in keys or ():
        if key.value > limit:
            yield Finding(
                "hot-key",
                "warning",
                key.subject,
                f"Its largest key has {key.value:.3g} times the mean, as of {to_json_time(key.at)}. "
                f"{key.what}",
                "One task has most of the work, and a batch takes as long as it does.",
                "Spread the key by a salt and add up in a second step, or take it out: docs/howto/skew.md.",
            )


def check_skew(closure: Closure, location: str) -> Iterator[Finding]:
    """Stores of which one partition has much more than the others."""
    for store in skew_of_closure(location, closure, limit=DEFAULT_LIMIT).stores:
        if store.uneven:
            yield Finding(
                "uneven-state",
                "warning",
                f"state/{store.operator}" + ("" if store.store == "default" else f", {store.store}"),
                f"{store.advice.partition('. ')[0].rstrip('.')}.",
                "One task has most of the work, and a batch takes as long as it does.",
                "`streambank skew` shows each partition, and the program inspect_state names the keys: "
                "docs/howto/skew.md.",
            )
