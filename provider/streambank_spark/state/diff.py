"""What changed between two states, key by key: added, removed, changed, and some of them with both values.

Keys and rows are compared by hashes of their content (digest.py), so that state of any type, layout and
number of partitions can be compared; only what is shown is read as text, in a second pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streambank.core.errors import InputError
from streambank.core.json_text import loads
from streambank.core.shape import JsonObject
from streambank_spark.state.columns import CHANGES, as_json, change_of, storable
from streambank_spark.state.read import KEY, RowChoice, chosen_parts
from streambank_spark.state.row_hash import hashes, row_hash
from streambank_spark.state.state import PARTITION, QueryState, StatePart

ROWS_A_KEY = 20
"""Of a key with more rows, as a join's side may have, so many are shown."""
_KEY_COLUMNS = ("key_1", "key_2")
_ROWS = ("row_1", "row_2")
_HALF_BITS = 32
_SUMS = tuple(f"{name}_{half}" for name in _ROWS for half in ("low", "high"))


@dataclass(frozen=True, slots=True)
class PartDiff(JsonObject):
    """What changed in one part.

    Attributes:
        note: What makes all of it differ: one state has no such part, or of other types.
        rows_before: Its rows in the first state; a list or a map is one.
        added: How many keys only the second has.
        removed: How many keys only the first has.
        samples: Some that are not: `key`, `change`, `before`, `after` (the rows, without the key).
    """

    operator: int
    part: str
    note: str
    rows_before: int
    rows: int
    added: int
    removed: int
    changed: int
    same: int
    samples: list[dict[str, Any]]

    @property
    def equal(self) -> bool:
        return not (self.added or self.removed or self.changed)


def diff_states(
    before: QueryState, after: QueryState, operator: int | None, part: str | None, samples: int
) -> list[PartDiff]:
    """Compare two states part by part.

    Raises:
        InputError: Neither has such an operator or part.
        FormatError: State of a type that is not known (code `unknown-type`).
    """
    old, new = _parts(before, operator, part), _parts(after, operator, part)
    wanted = sorted({*old, *new})
    if not wanted and (operator, part) != (None, None):
        chosen_parts(after, RowChoice(operator, part))
    return [_compare(before, old.get(key), after, new.get(key), samples) for key in wanted]


def _parts(state: QueryState, operator: int | None, part: str | None) -> dict[tuple[int, str], StatePart]:
    """The parts that are asked for; none where this state has no such operator or part."""
    try:
        return {(each.operator, each.name): each for each in chosen_parts(state, RowChoice(operator, part))}
    except InputError:
        return {}


def _compare(
    before: QueryState, old: StatePart | None, after: QueryState, new: StatePart | None, samples: int
) -> PartDiff:
    frames = (before.whole(old) if old else None, after.whole(new) if new else None)
    some = old or new
    assert some is not None
    counts = dict.fromkeys(CHANGES, 0)
    rows = [0, 0]
    shown: list[Any] = []
    compared = _joined(*frames).persist()
    try:
        found = compared.groupBy("change").agg(
            F.count(F.lit(1)).alias("keys"), F.sum("rows_before").alias("old"), F.sum("rows").alias("new")
        )
        for row in found.collect():
            counts[row["change"]] = row["keys"]
            rows[0] += row["old"] or 0
            rows[1] += row["new"] or 0
        if samples and counts["same"] < sum(counts.values()):
            ordered = compared.where("change <> 'same'").orderBy("change", *_KEY_COLUMNS)
            shown = ordered.limit(samples).collect()
    finally:
        compared.unpersist()
    return PartDiff(
        operator=some.operator,
        part=some.name,
        note=_note(*frames),
        rows_before=rows[0],
        rows=rows[1],
        **counts,
        samples=_samples(frames, shown),
    )


def _note(before: DataFrame | None, after: DataFrame | None) -> str:
    if before is None or after is None:
        return f"Only the {'second' if before is None else 'first'} has this part."
    types = [[field.dataType.simpleString() for field in frame.schema.fields] for frame in (before, after)]
    return "" if types[0] == types[1] else "The types or names of its columns differ."


def _joined(before: DataFrame | None, after: DataFrame | None) -> DataFrame:
    """Keys of both, each with its `change` and how many rows it has."""
    one = before if before is not None else after
    assert one is not None
    old = _by_key(before if before is not None else one.where("false"))
    new = _by_key(after if after is not None else one.where("false"))
    renamed = old.select(*_KEY_COLUMNS, *(F.col(name).alias(f"{name}_before") for name in ("rows", *_SUMS)))
    differs = F.col("rows") != F.col("rows_before")
    for name in _SUMS:
        differs = differs | (F.col(name) != F.col(f"{name}_before"))
    joined = renamed.join(new, list(_KEY_COLUMNS), "full_outer")
    return joined.select(*_KEY_COLUMNS, change_of(differs).alias("change"), "rows_before", "rows")


def _by_key(frame: DataFrame) -> DataFrame:
    rows = [each.alias(name) for each, name in zip(row_hash(frame), _ROWS, strict=True)]
    hashed = frame.select(*_key_hashes(frame), *rows)
    # In halves, whose sums no number of rows of one key makes overflow.
    halves = [half for name in _ROWS for half in _halves(F.col(name))]
    sums = (F.sum(half).alias(name) for half, name in zip(halves, _SUMS, strict=True))
    return hashed.groupBy(*_KEY_COLUMNS).agg(F.count(F.lit(1)).alias("rows"), *sums)


def _halves(column: Column) -> tuple[Column, Column]:
    low = column.bitwiseAND(F.lit((1 << _HALF_BITS) - 1).cast("long"))
    return low, F.shiftrightunsigned(column, _HALF_BITS)


def _key_hashes(frame: DataFrame) -> list[Column]:
    return [each.alias(name) for each, name in zip(hashes(frame, [KEY]), _KEY_COLUMNS, strict=True)]


def _samples(frames: Sequence[DataFrame | None], shown: Sequence[Any]) -> list[dict[str, Any]]:
    """The keys to show, each with its rows in both states."""
    if not shown:
        return []
    wanted = {(row["key_1"], row["key_2"]): row["change"] for row in shown}
    values: list[dict[tuple[int, int], list[Any]]] = []
    keys: dict[tuple[int, int], Any] = {}
    for frame in frames:
        found: dict[tuple[int, int], list[Any]] = {}
        for row in _told(frame, wanted) if frame is not None else ():
            which = (row["key_1"], row["key_2"])
            keys[which] = loads(row["key"]).get(KEY)
            rows = found.setdefault(which, [])
            if len(rows) < ROWS_A_KEY:
                rows.append(loads(row["row"]))
        values.append(found)
    return [
        {
            "key": keys[which],
            "change": change,
            "before": values[0].get(which, []),
            "after": values[1].get(which, []),
        }
        for which, change in wanted.items()
        if which in keys
    ]


def _told(frame: DataFrame, wanted: dict[tuple[int, int], str]) -> list[Any]:
    hashed = frame.select("*", *_key_hashes(frame))
    few = hashed.where(F.col("key_1").isin([first for first, _ in wanted]))
    written = storable(few)
    names = [name for name in written.columns if name not in (KEY, PARTITION, *_KEY_COLUMNS)]
    told = written.select(
        *_KEY_COLUMNS, as_json(written, [KEY]).alias("key"), as_json(written, names).alias("row")
    )
    return [row for row in told.collect() if (row["key_1"], row["key_2"]) in wanted]
