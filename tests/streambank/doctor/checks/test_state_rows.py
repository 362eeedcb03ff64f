"""What rows that batches wrote say: each mistake is found where it was made, and right queries are not."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.checkpoint.closure import ClosurePlanner
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.listing import list_checkpoint
from streambank.checkpoint.schema.store import Columns, Variables
from streambank.checkpoint.state.changes import RowChange
from streambank.core.finding import Finding
from streambank.doctor.checks.state_growth import StateColumns, columns_of
from streambank.doctor.checks.state_rows import (
    LONG_LIST,
    Written,
    check_hot,
    check_lists,
    check_numbers,
    check_sessions,
    check_state_rows,
    written,
)
from streambank.storage import open_store
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.archives import unpack_tar
from tests.support.checkpoint.doctor_inputs import columns, found, planned, skipped
from tests.support.checkpoint.recorded import PLANNED, checkpoint
from tests.support.paths import ROOT

WRONG = ROOT / "tests/data/wrong"
LIST = {"type": "struct", "fields": [{"name": "v", "type": "long"}]}
KEY = {"type": "struct", "fields": [{"name": "k", "type": "string"}]}


def wrong(program: str, folder: Path) -> tuple[Store, list[Written], int | None]:
    """What a wrong program wrote: the checkpoint, its kinds of rows, and the watermark."""
    unpack_tar(WRONG / f"{program}.tar.xz", folder)
    store = open_store(str(folder / "checkpoint"))
    planner = ClosurePlanner(CheckpointIndex.build(list_checkpoint(store)), store.read)
    closure = planner.plan()
    (operator,) = columns_of(closure, planner)
    assert isinstance(operator, StateColumns)
    kinds = [one for one in written(store, closure, planner, operator) if isinstance(one, Written)]
    assert found(check_state_rows(store, closure, planner, [operator]))
    return store, kinds, closure.watermark_ms


def only(seen: Any) -> Finding:
    (one,) = seen
    assert isinstance(one, Finding)
    return one


def of(
    variables: Variables | None, value: Any, *changes: tuple[int, RowChange], family: str = "rows"
) -> Written:
    kept = Columns(family, KEY, value)
    return Written(StateColumns(0, "transformWithState", (kept,), variables), kept, changes)


def texts(*values: str, **kinds: str) -> bytes:
    head, rest = bytes(8), b""
    for value in values:
        at = 8 + 8 * len(values) + len(rest)
        head += struct.pack("<II", len(value), at)
        rest += value.encode() + bytes(-len(value) % 8)
    return b"\x00" + head + rest


def put(key: bytes, value: bytes = b"") -> RowChange:
    return RowChange("put", 2, key, value)


@pytest.mark.parametrize("name", [one for one in PLANNED if one.startswith("4.3.0/") or "session" in one])
def test_right_queries_of_every_kind_are_left_alone(name: str) -> None:
    closure, planner = planned(name)
    if closure.operators:
        store = checkpoint(name).into(MemoryStore())
        assert not found(check_state_rows(store, closure, planner, columns(name)))


def test_a_session_that_has_been_open_for_a_day_is_found(tmp_path: Path) -> None:
    _, (rows,), watermark_ms = wrong("session_never_closes", tmp_path)
    assert watermark_ms is not None
    finding = only(check_sessions(rows, watermark_ms))
    assert (finding.code, finding.severity) == ("endless-session", "warning")
    assert "Of 3 open sessions" in finding.cause and "1 d 15 h" in finding.cause


def test_sessions_that_close_are_short_or_have_a_long_gap_are_not(tmp_path: Path) -> None:
    _, (rows,), watermark_ms = wrong("session_never_closes", tmp_path)
    assert watermark_ms is not None
    assert not [*check_sessions(rows, watermark_ms + 3_600_000)], "the watermark has passed their ends"
    assert not [*check_sessions(rows, watermark_ms - 3 * 3_600_000)], "a gap of hours: 20 of them are more"
    first = min(version for version, _ in rows.changes)
    early = tuple(one for one in rows.changes if one[0] == first)
    assert not [*check_sessions(replace(rows, changes=early), watermark_ms - 30 * 3_600_000)], "ten hours"
    gone = tuple((99, replace(change, action="delete", value=b"")) for _, change in rows.changes)
    assert not [*check_sessions(replace(rows, changes=gone + rows.changes), watermark_ms)], "they were closed"
    assert not [*check_sessions(rows, None)]


def test_a_list_that_only_grows_is_found(tmp_path: Path) -> None:
    _, kinds, _ = wrong("append_only_list", tmp_path)
    (rows,) = (one for one in kinds if one.columns.family == "readings")
    finding = only(check_lists(rows))
    assert (finding.code, finding.severity, finding.file) == (
        "append-only-list",
        "warning",
        "state/0, readings",
    )
    assert "2,800 elements" in finding.cause and "1,400 elements" in finding.cause
    assert rows.operator.variables is not None
    timed = replace(
        rows,
        operator=replace(rows.operator, variables=replace(rows.operator.variables, time_mode="EventTime")),
    )
    assert only(check_lists(timed)).severity == "info"


def test_a_list_that_is_put_cleared_short_or_with_a_ttl_is_not() -> None:
    element = struct.pack("<i", 17) + bytes(17)
    appended = [(batch, RowChange("merge", 2, b"k", element * LONG_LIST)) for batch in range(5)]
    endless = Variables("NoTime", ("rows",), (), ("rows",))
    assert found(check_lists(of(endless, LIST, *appended)))
    for other in (put(b"k", element), RowChange("delete", 2, b"k", b"")):
        assert not found(check_lists(of(endless, LIST, (5, other), *appended)))
    assert not found(check_lists(of(endless, LIST, *appended[:2]))), "too few batches"
    few = [(batch, replace(change, value=element)) for batch, change in appended]
    assert not found(check_lists(of(endless, LIST, *few)))
    assert not found(check_lists(of(Variables("NoTime", (), ("rows",), ("rows",)), LIST, *appended)))
    assert not found(check_lists(of(Variables("NoTime", ("rows",), ()), LIST, *appended))), "no list"


def test_a_hot_key_is_found_and_not_named(tmp_path: Path) -> None:
    _, kinds, _ = wrong("hot_keys", tmp_path)
    (rows,) = (one for one in kinds if one.columns.family == "visits")
    finding = only(check_hot(rows))
    assert (finding.code, finding.severity) == ("hot-key", "warning")
    assert "1,080 (90%) belong to one of 31 keys" in finding.cause
    assert "market" not in str(finding.to_dict())
    finer = tuple(
        (batch, replace(change, key=struct.pack("<i", 8) + b"%08d" % place))
        for place, (batch, change) in enumerate(rows.changes)
    )
    assert not found(check_hot(replace(rows, changes=finer))), "by merchant and customer"


def test_few_keys_and_few_rows_are_not_hot() -> None:
    hot = [(1, put(b"hot")) for _ in range(2000)]
    others = [(1, put(b"k%d" % number)) for number in range(30)]
    assert found(check_hot(of(None, LIST, *hot, *others)))
    assert not found(check_hot(of(None, LIST, *hot, *others[:10])))
    assert not found(check_hot(of(None, LIST, *hot[:500], *others)))
    assert not found(check_hot(of(None, LIST, *hot, *others * 100)))


def test_rows_of_a_session_and_of_a_join_belong_to_their_key_without_the_last_field() -> None:
    for name in ("4.3.0/hdfs-session", "4.3.0/ids-changelog-join3"):
        closure, planner = planned(name)
        store = checkpoint(name).into(MemoryStore())
        for rows in written(store, closure, planner, columns(name)[0]):
            assert isinstance(rows, Written)
            if rows.last_of_key in ("sessionStartTime", "index"):
                units = {rows.unit(change) for _, change in rows.changes}
                assert None not in units and 1 < len(units) <= 7


def test_numbers_in_strings_are_found(tmp_path: Path) -> None:
    _, kinds, _ = wrong("numbers_as_strings", tmp_path)
    (rows,) = (one for one in kinds if one.columns.family == "totals")
    finding = only(check_numbers(rows))
    assert (finding.code, finding.severity) == ("numbers-as-strings", "warning")
    assert "total (120 values), largest (120 values)" in finding.cause


def test_identifiers_words_and_few_values_are_not() -> None:
    kind = {"type": "struct", "fields": [{"name": "a", "type": "string"}]}

    def seen(*values: str) -> dict[str, Finding]:
        return found(check_numbers(of(None, kind, *((1, put(b"k", texts(one))) for one in values))))

    assert seen(*(f"{number}.5" for number in range(30)))["numbers-as-strings"].severity == "warning"
    whole = seen(*map(str, range(90, 130)))["numbers-as-strings"]
    assert whole.severity == "info" and "If these are identifiers, strings are right." in whole.cause
    assert not seen(*(f"{number:05d}" for number in range(30))), "leading zeros"
    assert not seen(*map(str, range(4000, 4030))), "of one length"
    assert not seen(*(f"{number}.5" for number in range(30)), "unknown")
    assert not seen(*(f"{number}.5" for number in range(10)))
    assert not seen(*(f"2026-05-{number:02d}" for number in range(1, 30)))
    assert not seen(*[""] * 30)


def test_a_column_of_the_key_is_not_looked_at() -> None:
    kind = {"type": "struct", "fields": [{"name": "k", "type": "string"}]}
    rows = of(None, kind, *((1, put(b"k", texts(f"{number}.5"))) for number in range(30)))
    assert not found(check_numbers(rows))


def test_what_cannot_be_read_is_said() -> None:
    closure, planner = planned("4.3.0/rocksdb-window")
    store = checkpoint("4.3.0/rocksdb-window").into(MemoryStore())
    (told,) = skipped(check_state_rows(store, closure, planner, columns("4.3.0/rocksdb-window")))
    assert "changelogCheckpointing.enabled=true" in told.hint
    files = checkpoint("4.3.0/hdfs-session")
    newest = max(path for path in files.files if path.startswith("state/0/0/") and path.endswith(".delta"))
    closure, planner = planned(files)
    damaged = files.having({newest: b"LZ4Block?"}).into(MemoryStore())
    (told,) = skipped(check_state_rows(damaged, closure, planner, columns(files)))
    assert newest in told.why
