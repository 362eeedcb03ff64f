"""Which keys the state of an operator belongs to: the largest ones, and those that changed most.

A key's size is the length of its rows as JSON text: good for comparing keys of any layout with each other,
and not what they take on disk, where they are compressed. Keys are told apart by that text, too, so that
those of several state variables, of both sides of a join and of two savepoints come together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streambank.core.errors import InputError
from streambank.core.json_text import loads
from streambank.core.shape import JsonObject
from streambank_spark.failures import first_line
from streambank_spark.state.columns import CHANGES, JSON_OPTIONS, change_of
from streambank_spark.state.state import PARTITION

HOT = 10.0
"""A key is called hot from so many times the mean on."""


@dataclass(frozen=True, slots=True)
class KeySizes(JsonObject):
    """The state of one operator by key.

    Attributes:
        bytes: Their size as JSON text.
        partitions: Of each partition that has rows its number, keys, rows and bytes.
        top: The largest keys: `key`, `rows`, `bytes`, `times_mean` (by bytes, or by rows where that is more),
            `hot`, `partitions`.
    """

    keys: int
    rows: int
    bytes: int
    partitions: list[dict[str, int]]
    top: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Changes(JsonObject):
    """What became of keys between two moments.

    Attributes:
        changed: How many have other rows than before.
        top: Those that changed most in size: `key`, `change`, `rows_before`, `rows`, `bytes_before`, `bytes`.
    """

    added: int
    removed: int
    changed: int
    same: int
    top: list[dict[str, Any]]


def by_key(frames: Sequence[DataFrame], by: str = "key") -> DataFrame:
    """Rows of state grouped: `key` (JSON text), partition, `rows`, `bytes`, and a digest of their content.

    Args:
        frames: What `QueryState.frame` gives, of one operator.
        by: What counts as the key: an SQL expression over the columns.

    Raises:
        InputError: The expression cannot be used.
    """
    texts = [_texts(frame, by) for frame in frames]
    every = reduce(DataFrame.unionByName, texts)
    return every.groupBy("key", PARTITION).agg(
        F.count("*").alias("rows"),
        F.sum(F.octet_length("row")).alias("bytes"),
        # A sum does not depend on the order of rows, and notices one that is there twice.
        F.sum(F.xxhash64("row").cast("decimal(38,0)")).alias("digest"),
    )


def _texts(frame: DataFrame, by: str) -> DataFrame:
    content = F.struct(*_flat(frame))
    try:
        return frame.select(
            _text(F.struct(F.expr(by).alias("key"))).alias("key"), PARTITION, _text(content).alias("row")
        )
    except AnalysisException as error:
        columns = ", ".join(frame.columns)
        raise InputError(
            f"State cannot be grouped by {by!r}: {first_line(error)}",
            hint=f"Give an SQL expression over the columns {columns}, such as key.origin.",
        ) from error


def _flat(frame: DataFrame) -> Iterator[Column]:
    """All columns but the partition, a struct's fields in its place.

    The rows of a join's side have one field more than the reader's schema says (`matched`, StateManager's
    format 2), at which `to_json` of the whole struct fails.
    """
    for column in frame.schema.fields:
        if column.name == PARTITION:
            continue
        if isinstance(column.dataType, StructType):
            for name in column.dataType.names:
                yield F.col(column.name).getField(name).alias(f"{column.name}.{name}")
        else:
            yield F.col(column.name)


def _text(column: Column) -> Column:
    return F.to_json(column, JSON_OPTIONS)


def sizes(grouped: DataFrame, top: int) -> KeySizes:
    """The largest keys, and what partitions hold, of `by_key`: read three times, so best persisted."""
    parts = grouped.groupBy(PARTITION).agg(
        F.count("*").alias("keys"), F.sum("rows").alias("rows"), F.sum("bytes").alias("bytes")
    )
    partitions = [
        {"partition": row[PARTITION], "keys": row["keys"], "rows": row["rows"], "bytes": row["bytes"]}
        for row in parts.orderBy(PARTITION).collect()
    ]
    rows = sum(each["rows"] for each in partitions)
    size_bytes = sum(each["bytes"] for each in partitions)
    keyed = _keyed(grouped)
    keys = keyed.count()
    # Of all bytes or of all rows, whichever share is larger: a key can be hot by either.
    share = F.greatest(F.col("bytes") / (size_bytes or 1), F.col("rows") / (rows or 1))
    largest = keyed.orderBy(share.desc(), "key").limit(top).collect()
    return KeySizes(
        keys, rows, size_bytes, partitions, [_sized(row, keys, rows, size_bytes) for row in largest]
    )


def _keyed(grouped: DataFrame) -> DataFrame:
    return grouped.groupBy("key").agg(
        F.sum("rows").alias("rows"),
        F.sum("bytes").alias("bytes"),
        F.sum("digest").alias("digest"),
        F.sort_array(F.collect_set(PARTITION)).alias("partitions"),
    )


def _sized(row: Any, keys: int, rows: int, size_bytes: int) -> dict[str, Any]:
    times = max(row["bytes"] * keys / size_bytes, row["rows"] * keys / rows)
    return {
        "key": _key(row["key"]),
        "rows": row["rows"],
        "bytes": row["bytes"],
        "times_mean": round(times, 3),
        "hot": times >= HOT,
        "partitions": list(row["partitions"]),
    }


def changes(before: DataFrame, after: DataFrame, top: int) -> Changes:
    """What changed between two moments."""
    old = _keyed(before).select("key", *(F.col(name).alias(f"{name}_before") for name in _COMPARED))
    new = _keyed(after).select("key", *_COMPARED)
    differs = (F.col("digest") != F.col("digest_before")) | (F.col("rows") != F.col("rows_before"))
    joined = old.join(new, "key", "full_outer").withColumn("change", change_of(differs))
    filled = joined.fillna(0, subset=["rows_before", "rows", "bytes_before", "bytes"]).persist()
    try:
        counts = {row["change"]: row["count"] for row in filled.groupBy("change").count().collect()}
        by_size = F.desc(F.abs(F.col("bytes") - F.col("bytes_before")))
        most = filled.where("change <> 'same'").orderBy(by_size, "key").limit(top).collect()
    finally:
        filled.unpersist()
    return Changes(
        **{name: counts.get(name, 0) for name in CHANGES},
        top=[{"key": _key(row["key"])} | {name: row[name] for name in _SHOWN} for row in most],
    )


_COMPARED = ("rows", "bytes", "digest")
_SHOWN = ("change", "rows_before", "rows", "bytes_before", "bytes")


def _key(text: str) -> Any:
    return loads(text)["key"]
