"""State that only grows: nothing in its schema lets Spark remove a row, and none was removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streambank.checkpoint.closure import Closure, ClosurePlanner
from streambank.checkpoint.schema.store import Columns, Variables, parse_state_schema, parse_variables
from streambank.core.errors import StreambankError
from streambank.core.finding import Finding
from streambank.core.units import to_json_time
from streambank.doctor.subject import CheckResult, SkippedCheck
from streambank.sla.history.point import Point

MIN_POINTS = 5
"""So many batches (or hours of them) have to be known before state is said to grow."""
_ROW_COUNTS = "keyToNumValues"
"""A join's stores that count rows of others, and lose theirs with them."""
_NO_REMOVAL = (
    "Give the query a watermark on event time that is part of what it groups by (or joins or deduplicates "
    "by), a timeout, or a TTL; or shrink it from time to time with a compaction of its state."
)


@dataclass(frozen=True, slots=True)
class StateColumns:
    """What a stateful operator keeps."""

    operator: int
    name: str | None  # Spark 3.5 leaves none
    columns: tuple[Columns, ...]
    variables: Variables | None = None

    @property
    def called(self) -> str:
        return f"operator {self.operator}" + (f" ({self.name})" if self.name else "")

    def kept_for_ever(self) -> str | None:
        """Why Spark never removes rows of it by itself; None where it may, or where there is but one row."""
        if self.variables is not None:
            if self.variables.time_mode != "NoTime" or not self.variables.without_ttl:
                return None
            names = ", ".join(self.variables.without_ttl)
            return f"its time mode is NoTime, so it has no timers, and state variables have no TTL ({names})"
        rows = [column for column in self.columns if _ROW_COUNTS not in column.family]
        if not rows or all(row.keyless for row in rows) or all(row.event_time or row.timeout for row in rows):
            return None
        (without, *_) = [row for row in rows if not (row.event_time or row.timeout)]
        where = "" if without.family == "default" else f" of {without.family}"
        keys = ", ".join(str(field["name"]) for field in without.key["fields"])
        return f"its key{where} ({keys}) has no event time with a watermark, and no timeout is kept"


def columns_of(closure: Closure, planner: ClosurePlanner) -> Iterator[StateColumns | SkippedCheck]:
    """What each operator keeps, by the schemas in a closure.

    Raises:
        ConflictError: The checkpoint moved meanwhile.
    """
    files = {file.path: file.role for file in closure.files}
    for operator in closure.operators:
        folder = f"state/{operator.operator}/"
        schemas = [path for path, role in files.items() if role == "schema" and path.startswith(folder)]
        try:
            columns = tuple(
                Columns(_family(path, one.family), one.key, one.value)
                for path in sorted(schemas)
                for one in parse_state_schema(planner.files.read(path), path)
            )
            metadata = next(
                (path for path in files if path.startswith(f"{folder}_metadata/v2/") and path[-4:] != ".crc"),
                None,
            )
            variables = None if metadata is None else parse_variables(planner.files.read(metadata), metadata)
        except StreambankError as error:
            if error.retryable:
                raise
            yield SkippedCheck(
                f"whether the state of operator {operator.operator} is bounded",
                error.message,
                error.hint,
            )
            continue
        if not columns:
            yield SkippedCheck(
                f"whether the state of operator {operator.operator} is bounded",
                "No state schema shows its columns.",
                "Spark writes the schema again when the query starts.",
            )
            continue
        yield StateColumns(operator.operator, operator.name, columns, variables)


def check_bounded(operators: Sequence[StateColumns], points: Sequence[Point]) -> Iterator[CheckResult]:
    """Operators from which nothing is ever removed: a warning where they grew, else worth knowing."""
    for operator in operators:
        why = operator.kept_for_ever()
        if why is None:
            continue
        grew = _growth(operator.operator, points)
        cause = f"Nothing lets Spark remove rows of {operator.called}: {why}."
        yield Finding(
            "unbounded-state",
            "info" if grew is None else "warning",
            f"state/{operator.operator}",
            cause if grew is None else f"{cause} {grew}",
            "It holds a row for each key that it ever met: as long as new keys come, it grows without end.",
            _NO_REMOVAL,
        )


def _growth(operator: int, points: Sequence[Point]) -> str | None:
    """How an operator grew without losing a row; None where it did not, or too little is known."""
    rows: list[tuple[Point, float]] = []
    told = True
    for point in points:
        values = point.operators.get(operator, {})
        if _removed(operator, point) > 0:
            rows.clear()
        told = told and "removed_rows" in values
        if "state_rows" in values:
            rows.append((point, values["state_rows"]))
    if len(rows) < MIN_POINTS or any(two[1] < one[1] for one, two in pairwise(rows)):
        return None
    (first, before), (last, after) = rows[0], rows[-1]
    middle = rows[len(rows) // 2][1]
    if not before < after or not before < middle or not middle < after:
        return None
    removed = "none was removed" if told else "there never were fewer than before"
    return (
        f"It had {before:,.0f} rows after batch {first.batch} ({to_json_time(first.at)}), {middle:,.0f} half "
        f"way, and {after:,.0f} after batch {last.batch} ({to_json_time(last.at)}); {removed}."
    )


def _removed(operator: int, point: Point) -> float:
    of: Mapping[str, float] = (
        point.operators if point.stretch is None else point.stretch.highest.operators
    ).get(operator, {})
    return of.get("removed_rows", 0.0)


def _family(path: str, family: str) -> str:
    """The store's name where a file of version 1 or 2 names it by its folder only."""
    parts = path.split("/")
    return parts[3] if len(parts) == 6 and parts[4] == "_metadata" else family
