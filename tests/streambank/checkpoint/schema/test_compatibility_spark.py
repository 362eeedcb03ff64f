"""The two rules of compatibility.py say of every pair of types what Spark's own functions say of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from streambank.checkpoint.schema.compatibility import changes_by_name, changes_by_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDL = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp",
    "timestamp_ntz", "string", "binary", "void", "decimal(4,2)", "decimal(5,2)", "decimal(9,0)",
    "decimal(18,2)", "decimal(19,2)", "decimal(38,18)", "string collate UTF8_LCASE",
    "interval day to second", "array<int>", "array<bigint>", "array<string>", "array<array<int>>",
    "array<struct<a: int>>", "map<string,int>", "map<string,bigint>", "map<int,int>",
    "struct<a: int>", "struct<a: int not null>", "struct<b: int>", "struct<a: bigint>",
    "struct<a: int, b: string>", "struct<b: string, a: int>", "struct<a: struct<b: int>>",
    "struct<a: map<int,int>>", "array<map<string,float>>",
)  # fmt: skip


def structs(spark: SparkSession) -> list[Any]:
    """Each type as the only column of a struct, as JSON, and three again in which nothing may be null."""
    made = []
    for ddl in DDL:
        (field,) = spark.createDataFrame([], f"c {ddl}").schema.jsonValue()["fields"]
        made.append({"type": "struct", "fields": [field]})
    (never_null,) = spark.createDataFrame([], "c int").schema.jsonValue()["fields"]
    made.append({"type": "struct", "fields": [{**never_null, "nullable": False}]})
    for kind, flag in (("array<int>", "containsNull"), ("map<string,int>", "valueContainsNull")):
        (field,) = spark.createDataFrame([], f"c {kind}").schema.jsonValue()["fields"]
        made.append({"type": "struct", "fields": [{**field, "type": {**field["type"], flag: False}}]})
    return made


def wrong(
    spark: SparkSession, ours: Callable[[Any, Any], bool], theirs: Callable[[Any, Any], bool]
) -> list[tuple[str, str, bool]]:
    """Pairs of which the two say another thing; what is equal nobody asks about."""
    jvm: Any = spark._jvm
    parse = jvm.org.apache.spark.sql.types.DataType.fromJson
    types = [(each, parse(json.dumps(each))) for each in structs(spark)]
    found = []
    for (old, stored), (new, wanted) in itertools.permutations(types, 2):
        mine = ours(old, new)
        if mine != theirs(stored, wanted):
            found.append((json.dumps(old["fields"]), json.dumps(new["fields"]), mine))
    return found


def test_columns_by_place_are_taken_as_spark_takes_them(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    companion = getattr(getattr(jvm, "org.apache.spark.sql.types.DataType$"), "MODULE$")
    rule = companion.equalsIgnoreNameAndCompatibleNullability

    def ours(old: Any, new: Any) -> bool:
        return all(change.allowed for change in changes_by_place(old, new, "value"))

    assert wrong(spark, ours, lambda stored, wanted: bool(rule(wanted, stored))) == []


def test_columns_by_name_are_taken_as_avro_takes_them(spark: SparkSession) -> None:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j ships no types

    jvm: Any = spark._jvm
    converter = jvm.org.apache.spark.sql.avro.SchemaConverters
    # What SchemaValidatorBuilder().canReadStrategy() asks, without an exception for each no.
    grammar = jvm.org.apache.avro.io.parsing.ResolvingGrammarGenerator()
    symbol = jvm.org.apache.avro.io.parsing.Symbol
    avro: dict[str, Any] = {}

    def schema(kind: Any) -> Any:
        text = str(kind.json())
        if text not in avro:
            try:
                avro[text] = converter.toAvroTypeWithDefaults(kind)
            except Py4JJavaError:
                avro[text] = None
        return avro[text]

    def theirs(stored: Any, wanted: Any) -> bool:
        before, after = schema(stored), schema(wanted)
        if before is None or after is None:
            return False
        return not symbol.hasErrors(grammar.generate(before, after))

    def ours(old: Any, new: Any) -> bool:
        return all(change.allowed for change in changes_by_name(old, new, "value"))

    assert wrong(spark, ours, theirs) == []
