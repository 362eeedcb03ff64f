"""Rows of state as text and as columns that any format can hold.

Some state has columns that neither JSON nor Parquet knows: of no type at all (dedup keeps no values), or
structs without fields (a global aggregation has no key). And the rows of a join's side have one field more
than the reader's schema says (`matched`), at which Spark fails where it writes the struct as a whole, so
structs are always taken apart and put together again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructType

JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def column(name: str) -> Column:
    """A column by its exact name."""
    return F.col(f"`{name.replace('`', '``')}`")


def storable(frame: DataFrame) -> DataFrame:
    """The frame with columns put together again, of types that can be written; empty structs are left out."""
    chosen = []
    for field in frame.schema.fields:
        kind = field.dataType
        if isinstance(kind, StructType) and not kind.fields:
            continue
        chosen.append(_anew(column(field.name), kind).alias(field.name))
    return frame.select(*chosen)


def _anew(value: Column, kind: DataType) -> Column:
    if isinstance(kind, StructType):
        named = zip(kind.names, fields_of(value, kind), strict=True)
        value = F.when(value.isNotNull(), F.struct(*(each.alias(name) for name, each in named)))
    typed = _typed(kind)
    return value if typed.simpleString() == kind.simpleString() else value.cast(typed)


def fields_of(value: Column, kind: StructType) -> list[Column]:
    """The fields of a struct, by place where names do not tell them apart."""
    names = [name.casefold() for name in kind.names]
    if len(set(names)) == len(names):
        return [value.getField(name) for name in kind.names]
    renamed = StructType()
    for place, field in enumerate(kind.fields):
        renamed.add(f"_{place}", field.dataType, field.nullable)
    numbered = value.cast(renamed)
    return [numbered.getField(name) for name in renamed.names]


def _typed(kind: DataType) -> DataType:
    """A type with text in the place of what has no type.

    Fields may be null, as those of what is put together again; Spark 3.5 says that windows are not.
    """
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_typed(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_typed(kind.keyType), _typed(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        named = StructType()
        for field in kind.fields:
            named.add(field.name, _typed(field.dataType))
        return named
    return kind


CHANGES = ("added", "removed", "changed", "same")


def change_of(differs: Column) -> Column:
    """What became of a key, one of `CHANGES`, by its `rows_before` and `rows`, and whether these differ."""
    return (
        F.when(F.col("rows_before").isNull(), "added")
        .when(F.col("rows").isNull(), "removed")
        .when(differs, "changed")
        .otherwise("same")
    )


def as_json(frame: DataFrame, names: Sequence[str]) -> Column:
    """Some columns of a `storable` frame as one JSON object."""
    there = [column(name) for name in names if name in frame.columns]
    return F.to_json(F.struct(*there), JSON_OPTIONS) if there else F.lit("{}")
