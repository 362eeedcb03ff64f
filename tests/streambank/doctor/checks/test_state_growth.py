"""State that nothing bounds: known by its schema, and a warning only where it grew."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from streambank.checkpoint.schema.store import Columns, Variables
from streambank.doctor.checks.state_growth import StateColumns, check_bounded, columns_of
from streambank.sla.history.history import HistoryScan
from streambank.sla.history.point import Point
from streambank.storage.memory import MemoryStore
from tests.support.checkpoint.doctor_inputs import columns, found, planned, skipped
from tests.support.checkpoint.recorded import checkpoint
from tests.support.sla.progress_records import line, operator, seen, written

BOUNDED = [
    "3.5.9/hdfs-dedup",
    "3.5.9/hdfs-join",
    "3.5.9/rocksdb-changelog-within",
    "4.3.0/hdfs-chain",
    "4.3.0/hdfs-global",
    "4.3.0/hdfs-join",
    "4.3.0/hdfs-limit",
    "4.3.0/hdfs-session",
    "4.3.0/ids-changelog-join3",
    "4.3.0/rocksdb-changelog-within",
    "4.3.0/rocksdb-window",
]


def history(rows: Iterable[int], *, removed: int = 0) -> list[Point]:
    """Batches with so many rows in the state."""
    lines = [
        line(batch, 60.0 * batch, stateOperators=[operator(numRowsTotal=count, numRowsRemoved=removed)])
        for batch, count in enumerate(rows)
    ]
    _, scan = seen(written(MemoryStore(), lines))
    return [*HistoryScan(scan._records)]


@pytest.mark.parametrize("name", BOUNDED)
def test_state_with_a_watermark_a_timeout_or_one_row_is_bounded(name: str) -> None:
    assert not [*check_bounded(columns(name), history(range(10, 20)))]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("4.3.0/rocksdb-empty-state", "its key (k) has no event time with a watermark"),
        ("4.3.0/hdfs-pandas-state", "operator 0 (applyInPandasWithState): its key (k)"),
        ("4.3.0/rocksdb-transform", "its time mode is NoTime, so it has no timers"),
    ],
)
def test_state_without_is_a_warning_only_where_it_grew(name: str, why: str) -> None:
    grew = found(check_bounded(columns(name), history(range(10, 20))))["unbounded-state"]
    assert grew.severity == "warning" and why in grew.cause
    assert "It had 10 rows after batch 0" in grew.cause and "19 after batch 9" in grew.cause
    assert "none was removed" in grew.cause
    for rows in ([10] * 9, [], [10, 11, 12], [10, 19, 19, 19, 19, 19]):
        calm = found(check_bounded(columns(name), history(rows)))["unbounded-state"]
        assert calm.severity == "info" and "rows after batch" not in calm.cause
    removing = found(check_bounded(columns(name), history(range(10, 20), removed=1)))
    assert removing["unbounded-state"].severity == "info", "the application removes rows itself"


def test_timers_and_ttl_bound_a_transform_with_state() -> None:
    kept = columns("4.3.0/rocksdb-transform")[0].columns
    for variables in (Variables("EventTime", ("seen",), ()), Variables("NoTime", (), ("seen",))):
        assert StateColumns(0, "transformWithStateExec", kept, variables).kept_for_ever() is None


def test_one_side_of_a_join_without_event_time_is_enough() -> None:
    (join,) = columns("4.3.0/hdfs-join")
    assert join.kept_for_ever() is None
    bare = tuple(
        Columns(one.family, one.key, {"fields": [{"name": "v", "type": "long"}]})
        if one.family.startswith("right")
        else one
        for one in join.columns
    )
    assert "of right-keyWithIndexToValue" in str(StateColumns(0, "symmetricHashJoin", bare).kept_for_ever())


def test_a_schema_that_is_missing_or_damaged_is_said_and_nothing_guessed() -> None:
    whole = checkpoint("4.3.0/rocksdb-window")
    path = "state/0/0/_metadata/schema"
    for files in (whole.but(path), whole.having({path: b"\x00\x02v7"})):
        (told,) = skipped(columns_of(*planned(files)))
        assert told.what == "whether the state of operator 0 is bounded" and told.hint
