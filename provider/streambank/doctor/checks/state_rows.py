"""Anti-patterns that the newest changes of the state show: what single batches wrote, row by row.

Spark's deltas and changelogs are read without Spark, the newest ones first and a few megabytes at most: a
sample, whose size each finding names. RocksDB without changelog has its rows in files that are not read here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.closure import Closure, ClosurePlanner
from streambank.checkpoint.grammar import Kind
from streambank.checkpoint.index import OperatorFiles
from streambank.checkpoint.schema.store import WATERMARK, Columns
from streambank.checkpoint.state.changelog import UnreadableLineageError
from streambank.checkpoint.state.changes import RowChange, elements, head_of_changes
from streambank.checkpoint.state.unsafe_row import Leaf, leaves
from streambank.core.errors import ConflictError, FormatError, NotFoundError
from streambank.core.finding import Finding
from streambank.core.units import from_epoch_ms, say_count, say_duration, say_minute
from streambank.doctor.checks.rocksdb import CHANGELOG
from streambank.doctor.checks.state_growth import StateColumns
from streambank.doctor.subject import CheckResult, SkippedCheck
from streambank.storage.store import Store

GUIDE = "docs/guide/anti-patterns.md"
HEAD_BYTES = 1 << 18
PLAIN_BYTES = 1 << 20
MOST_PLAIN_BYTES = 1 << 22
MOST_FILES = 400
"""What is read: the head of a file, and how much of it is unpacked; so much and so many files an operator."""
LONG_SESSION_S = 24 * 3600.0
MANY_GAPS = 20
"""A session that has been open for a day, and for so many times its gap, is not one visit any more."""
LONG_LIST = 1000
"""So many elements in the list of one key are read and decoded whenever the list is."""
MIN_BATCHES = 3
"""In so many batches a list was appended to before it is said that nothing is taken from it."""
HOT_SHARE = 0.5
HOT_MIN_KEYS, HOT_MIN_ROWS = 20, 1000
"""One key has most of the rows, and at least ten times the mean; of few keys or rows that says nothing."""
MIN_VALUES = 20
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
_SESSION_START = "sessionStartTime"
_WHAT = (
    "what the rows of the state show (endless sessions, lists that only grow, hot keys, numbers in strings)"
)


@dataclass(frozen=True, slots=True)
class Written:
    """What the newest batches wrote to one kind of an operator's rows: the newest first, with versions."""

    operator: StateColumns
    columns: Columns
    changes: tuple[tuple[int, RowChange], ...]

    @property
    def batches(self) -> int:
        return len({version for version, _ in self.changes})

    @property
    def where(self) -> str:
        """The operator's folder, with the kind of rows where there are several."""
        name = self.columns.family
        return f"state/{self.operator.operator}" + ("" if name == "default" else f", {name}")

    @property
    def last_of_key(self) -> str | None:
        """The last field of the key; None where all input is one group."""
        fields = self.columns.key["fields"]
        return str(fields[-1]["name"]) if fields else None

    def unit(self, change: RowChange) -> object:
        """The key that the input is grouped by, of a row of which a key may have many; None where unknown."""
        if [field["name"] for field in self.columns.key["fields"]] == [
            "key",
            "userKey",
        ]:  # of a MapState: size and bytes of the one, and then the other
            size = int.from_bytes(change.key[:4], "little")
            return change.key[4 : 4 + size]
        if self.last_of_key in (_SESSION_START, "index"):
            found = row(change.key, self.columns.key)
            return None if found is None else found[:-1]
        return change.key

    @property
    def is_list(self) -> bool:
        variables = self.operator.variables
        return variables is not None and self.columns.family in variables.lists

    def values(self) -> Iterator[tuple[Leaf, ...]]:
        """What was written and can be decoded: values, and elements of lists."""
        for _, change in self.changes:
            for element in elements(change.value) if self.is_list else (change.value,):
                if (found := row(element, self.columns.value)) is not None:
                    yield found


def row(data: bytes, kind: Mapping[str, Any]) -> tuple[Leaf, ...] | None:
    """The fields of a key or value; RocksDB's begin with a byte for their encoding."""
    if len(data) % 8 == 1 and data[0] == 0:
        data = data[1:]
    return leaves(data, kind)


def check_state_rows(
    store: Store, closure: Closure, planner: ClosurePlanner, operators: Sequence[StateColumns]
) -> Iterator[CheckResult]:
    """Sessions that do not end, lists that only grow, hot keys, numbers in strings."""
    for operator in operators:
        for rows in written(store, closure, planner, operator):
            if isinstance(rows, SkippedCheck):
                yield rows
                continue
            yield from check_sessions(rows, closure.watermark_ms)
            yield from check_lists(rows)
            yield from check_hot(rows)
            yield from check_numbers(rows)


def written(
    store: Store, closure: Closure, planner: ClosurePlanner, operator: StateColumns
) -> Iterator[Written | SkippedCheck]:
    """What the newest batches wrote, by kind of rows."""
    files = planner.index.operators.get(operator.operator, OperatorFiles())
    found = sorted(_changed_files(files, closure.batch + 1), reverse=True)[:MOST_FILES]
    if not found:
        yield SkippedCheck(
            _WHAT,
            f"The state of {operator.called} has no deltas or changelogs: only Spark can read its snapshots.",
            f"Set {CHANGELOG}=true, or look at rows with Spark: docs/howto/state.md.",
        )
        return
    numbers = _families(files, planner)
    by_name: dict[str, list[tuple[int, RowChange]]] = {}
    room = MOST_PLAIN_BYTES
    for version, _, name, path in found:
        if room <= 0:
            break
        try:
            head = store.read(path, 0, HEAD_BYTES)
            whole = len(head) < HEAD_BYTES
            changes = head_of_changes(head, path, PLAIN_BYTES if whole else HEAD_BYTES * 7 // 8)
        except (NotFoundError, ConflictError):  # the query cleans up behind itself
            continue
        except (FormatError, UnreadableLineageError) as error:
            why = error.message if isinstance(error, FormatError) else f"The codec of {path} is not known."
            yield SkippedCheck(_WHAT, why, "Look at rows with Spark: docs/howto/state.md.")
            return
        room -= sum(len(change.key) + len(change.value) for change in changes)
        for change in reversed(changes):
            family = name if change.family is None else numbers.get(change.family, "")
            by_name.setdefault(family, []).append((version, change))
    for columns in operator.columns:
        if columns.family in by_name:
            yield Written(operator, columns, tuple(by_name[columns.family]))


def _changed_files(files: OperatorFiles, newest: int) -> Iterator[tuple[int, int, str, str]]:
    """Version, partition, store and path of each delta and changelog up to a version, one a version."""
    for (partition, name), of_store in files.stores.items():
        paths: dict[int, str] = {}
        for kind in (Kind.DELTA, Kind.CHANGELOG):
            paths.update({version: path for (version, _), path in of_store.of(kind).items()})
        yield from ((version, partition, name, path) for version, path in paths.items() if version <= newest)


def _families(files: OperatorFiles, planner: ClosurePlanner) -> dict[int, str]:
    """The column families by number: the same in all partitions, as the newest snapshot of one says."""
    for of_store in files.stores.values():
        for _, path in sorted(of_store.of(Kind.ZIP).items(), key=lambda one: one[0][0], reverse=True):
            try:
                return {number: name for name, number in planner.files.zip_metadata(path).families.items()}
            except (FormatError, ConflictError):
                continue
    return {}


def check_sessions(rows: Written, watermark_ms: int | None) -> Iterator[Finding]:
    """Session windows that stay open since each event extends them."""
    if rows.last_of_key != _SESSION_START or watermark_ms is None:
        return
    last: dict[bytes, tuple[float, float]] = {}
    gone: set[bytes] = set()
    for _, change in rows.changes:
        if change.key in last or change.key in gone:
            continue
        found = row(change.value, rows.columns.value) if change.action == "put" else None
        times = {name: value for name, _, value in found or ()}
        start, end = times.get("session_window.start"), times.get("session_window.end")
        if start is None or end is None:
            gone.add(change.key)
        else:
            last[change.key] = (start / 1e6, end / 1e6)
    opened = [(start, end) for start, end in last.values() if end * 1000 > watermark_ms]
    if not opened:
        return
    delays = [(field.get("metadata") or {}).get(WATERMARK) for field in rows.columns.value["fields"]]
    delay_ms = max((delay for delay in delays if isinstance(delay, int)), default=0)
    # The watermark is the newest event without its delay, and the newest session ends a gap after that event.
    gap_s = max(0.0, max(end for _, end in opened) - (watermark_ms + delay_ms) / 1000)
    long = [
        (end - gap_s - start, start)
        for start, end in opened
        if end - gap_s - start >= max(LONG_SESSION_S, MANY_GAPS * gap_s)
    ]
    if not long:
        return
    longest_s, start = max(long)
    since = from_epoch_ms(round(start * 1000))
    yield Finding(
        "endless-session",
        "warning",
        rows.where,
        f"Of {say_count(len(opened), 'open session')} that the newest {say_count(rows.batches, 'batch')} "
        f"wrote, {len(long)} last for {say_duration(LONG_SESSION_S)} or longer"
        + (f", the longest since {say_minute(since)}: {say_duration(longest_s)}." if since else "."),
        "Each event extends its session, so none closes: append mode never writes it, and its row, with all "
        "that it collects, stays in the state.",
        "Keep heartbeats and the like out of the session, or end each session after a longest duration "
        f"(transformWithState with a timer): {GUIDE}#a-session-that-never-closes.",
    )


def check_lists(rows: Written) -> Iterator[Finding]:
    """A ListState without TTL to which elements are appended, and from which none is taken."""
    variables, name = rows.operator.variables, rows.columns.family
    if variables is None or not rows.is_list or name in variables.with_ttl or rows.batches < MIN_BATCHES:
        return
    appended: Counter[bytes] = Counter()
    for _, change in rows.changes:
        if change.action != "merge":
            return
        appended[change.key] += len(elements(change.value))
    most = max(appended.values(), default=0)
    if most < LONG_LIST:
        return
    timers = variables.time_mode != "NoTime"
    yield Finding(
        "append-only-list",
        "info" if timers else "warning",
        rows.where,
        f"In the newest {say_count(rows.batches, 'batch')} {say_count(appended.total(), 'element')} were "
        f"appended to the ListState {name}, and no list was replaced or cleared; one key alone got "
        f"{say_count(most, 'element')}." + (" A timer may still clear them." if timers else ""),
        "A list is read as a whole, decoded and passed on to Python: batches take longer and longer, though "
        "the number of keys stays the same.",
        "Put back only the part that is needed, keep a sum instead of the elements, or give the list a TTL: "
        f"{GUIDE}#an-append-only-list.",
    )


def check_hot(rows: Written) -> Iterator[Finding]:
    """A key to which most of the written rows belong."""
    if rows.columns.keyless or rows.columns.family.startswith("$"):
        return
    units: Counter[object] = Counter()
    for _, change in rows.changes:
        unit = None if change.action == "delete" else rows.unit(change)
        if unit is not None:
            units[unit] += len(elements(change.value)) if rows.is_list else 1
    count = units.total()
    if count < HOT_MIN_ROWS or len(units) < HOT_MIN_KEYS:
        return
    (_, most), *_ = units.most_common(1)
    if most < HOT_SHARE * count:
        return
    yield Finding(
        "hot-key",
        "warning",
        rows.where,
        f"Of {count:,} rows that {rows.operator.called} wrote in the newest "
        f"{say_count(rows.batches, 'batch')}, {most:,} ({most / count:.0%}) belong to one of {len(units):,} "
        "keys. The program inspect_state names it.",
        "One task has most of the work, and a batch takes as long as it does.",
        "Group by a finer key, spread the key by a salt and add up in a second step, or take it out: "
        f"docs/howto/skew.md, {GUIDE}#hot-keys.",
    )


def check_numbers(rows: Written) -> Iterator[Finding]:
    """Columns of strings whose values are all numbers."""
    in_key = {name.rpartition(".")[2] for name in _strings(rows.columns.key)}
    columns: dict[str, list[str]] = {}
    for found in rows.values():
        for name, kind, value in found:
            if kind == "string" and value and name.rpartition(".")[2] not in in_key:
                columns.setdefault(name, []).append(value)
    quantities: list[str] = []
    perhaps: list[str] = []
    for name, values in columns.items():
        if len(values) < MIN_VALUES or not all(map(_NUMBER.fullmatch, values)):
            continue
        said = f"{name.removeprefix('value.')} ({say_count(len(values), 'value')})"
        if not all(map(str.isdecimal, values)):  # a sign, a fraction, an exponent: no identifier has these
            quantities.append(said)
        elif all(map(_WHOLE.fullmatch, values)) and len(set(map(len, values))) > 1:
            perhaps.append(said)
    for names in (quantities, perhaps):
        if not names:
            continue
        yield Finding(
            "numbers-as-strings",
            "warning" if names is quantities else "info",
            rows.where,
            f"The state of {rows.operator.called} keeps numbers in strings: {', '.join(names)}; every value "
            "that was sampled is a number."
            + ("" if names is quantities else " If these are identifiers, strings are right."),
            "Strings compare as text ('9.5' is larger than '10.0'), are parsed for each sum, and take 16 "
            "bytes or more of a row, where a number takes 8.",
            "Read them as BIGINT, DECIMAL or DOUBLE, and let the state keep that; a migration changes what "
            f"is stored: {GUIDE}#numbers-kept-as-strings.",
        )


def _strings(kind: object) -> Iterable[str]:
    for field in kind.get("fields", ()) if isinstance(kind, dict) else ():
        if field["type"] == "string":
            yield field["name"]
        yield from _strings(field["type"])
