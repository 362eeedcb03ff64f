"""What a comparison of two schemas says, from the files of real checkpoints and from made-up columns."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from streambank.checkpoint.schema.compatibility import ENCODING, SchemaComparison, compare_schemas
from streambank.checkpoint.schema.query import OperatorSchema, QuerySchema, StoreSchema
from streambank.checkpoint.schema.store import Columns
from streambank.repository.repository import Repository
from streambank.savepoint.schema import schema_of_checkpoint, schema_of_savepoint
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank

AVRO = {ENCODING: "avro"}
FORMAT = "spark.sql.streaming.aggregation.stateFormatVersion"


def struct(*columns: str, nullable: bool = True) -> dict[str, Any]:
    fields = (one.split() for one in columns)
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": nullable, "metadata": {}} for name, kind in fields
        ],
    }


def store(*versions: tuple[Columns, ...]) -> StoreSchema:
    return StoreSchema("default", versions)


def query(*stores: StoreSchema, name: str = "stateStoreSave", conf: Any = None, **more: Any) -> QuerySchema:
    return QuerySchema((OperatorSchema(0, name, stores, **more),), conf or {})


def sums(*value: str, key: str = "k string") -> QuerySchema:
    return query(store((Columns("default", struct(key), struct(*value)),)))


def keeps(*versions: str, value_id: int = 0) -> QuerySchema:
    """A transformWithState with one variable, whose columns were these, oldest first."""
    columns = [(Columns("seen", struct("k string"), struct(*one.split(", ")), value_id),) for one in versions]
    return query(
        store(*columns), name="transformWithStateInPandasExec", conf=AVRO, variables={"seen": "ValueState"}
    )


def said(found: SchemaComparison) -> list[tuple[str | None, str]]:
    return [(one.column, one.verdict) for one in found.differences]


@pytest.mark.parametrize(
    ("before", "after", "verdict", "columns"),
    [
        (sums("n long"), sums("n long"), "same", []),
        (sums("n long"), sums("m long"), "compatible", ["value.m"]),
        (sums("n long"), sums("n long", "m long"), "incompatible", ["value.m"]),
        (sums("n long", "m long"), sums("n long"), "incompatible", ["value.m"]),
        (sums("n integer"), sums("n long"), "incompatible", ["value.n"]),
        (sums("n long"), sums("n long", key="k long"), "incompatible", ["key.k"]),
        (keeps("n integer"), keeps("n long"), "compatible", ["value.n"]),
        (keeps("n long"), keeps("n integer"), "incompatible", ["value.n"]),
        (keeps("n long"), keeps("n long, m string"), "compatible", ["value.m"]),
        (keeps("n long"), keeps("m long"), "compatible", ["value.n", "value.m"]),
        (keeps("n long", "n long, m string"), keeps("n long, m string"), "same", []),
    ],
)
def test_columns(before: QuerySchema, after: QuerySchema, verdict: str, columns: list[str]) -> None:
    found = compare_schemas(before, after)
    assert (found.verdict, [one.column for one in found.differences]) == (verdict, columns)
    for one in found.differences:
        assert one.why and (one.do or one.verdict == "compatible")


@pytest.mark.parametrize(
    ("wanted", "loses"),
    [
        ("n long, m string", False), ("m string, n long", False), ("n long, m string, o long", False),
        ("n double, m string", True), ("n timestamp, m string", True), ("n long", True),
        ("n long, o string", True),
    ],
)  # fmt: skip
def test_what_spark_takes_and_loses_is_told_apart(wanted: str, loses: bool) -> None:
    found = compare_schemas(keeps("n long, m string"), keeps(wanted))
    assert found.verdict in ("same", "compatible") and found.loses is loses


def test_what_was_stored_long_ago_has_to_be_readable_too() -> None:
    found = compare_schemas(keeps("n long", "m string", value_id=1), keeps("n string, m string"))
    assert ("value.n", "incompatible") in said(found), "n was a long before it was dropped"


def test_a_value_evolves_so_many_times_and_no_more() -> None:
    assert compare_schemas(keeps("n integer", value_id=14), keeps("n long")).verdict == "compatible"
    found = compare_schemas(keeps("n integer", value_id=15), keeps("n long"))
    assert found.verdict == "incompatible" and "Threshold" in found.differences[-1].do


def test_the_encoding_of_the_state_decides_and_not_that_of_the_new_query() -> None:
    old = keeps("n integer")
    plain = QuerySchema(old.operators, {})
    found = compare_schemas(plain, keeps("n long"))
    assert found.verdict == "incompatible"
    assert [one.to_dict() for one in found.settings] == [
        {"setting": ENCODING, "before": "unsaferow", "after": "avro"}
    ]


def test_only_a_transform_with_state_goes_by_name() -> None:
    before = QuerySchema(sums("n integer").operators, AVRO)
    assert compare_schemas(before, sums("n long")).verdict == "incompatible"


def test_values_of_a_deduplication_are_not_compared() -> None:
    one, two = (
        query(store((Columns("default", struct("k string"), struct(*value)),)), name="dedupe")
        for value in (("a long",), ("a long", "b long"))
    )
    assert compare_schemas(one, two).verdict == "same"


def test_operators_variables_and_modes() -> None:
    old = keeps("n long")
    (kept,) = old.operators
    as_list = OperatorSchema(0, kept.name, kept.stores, variables={"seen": "ListState"})
    timed = OperatorSchema(0, kept.name, kept.stores, {"timeMode": "EventTime"}, kept.variables)
    untimed = OperatorSchema(0, kept.name, kept.stores, {"timeMode": "NoTime"}, kept.variables)
    more = OperatorSchema(1, "dedupe", ())
    assert compare_schemas(old, QuerySchema((as_list,), AVRO)).verdict == "incompatible"
    assert (
        compare_schemas(QuerySchema((timed,), AVRO), QuerySchema((untimed,), AVRO)).verdict == "incompatible"
    )
    assert compare_schemas(old, sums("n long")).verdict == "incompatible"
    both = QuerySchema((kept, more), AVRO)
    for before, after in ((old, both), (both, old), (old, QuerySchema((), AVRO))):
        assert compare_schemas(before, after).verdict == "incompatible"


def test_a_variable_may_come_and_go() -> None:
    one = Columns("seen", struct("k string"), struct("n long"))
    other, hidden = Columns("other", one.key, one.value), Columns("$ttl_other", one.key, one.value)
    name = "transformWithStateInPandasExec"
    before, after = query(store((one,)), name=name), query(store((other, hidden)), name=name)
    found = compare_schemas(before, after)
    assert [(each.family, each.verdict) for each in found.differences] == [
        ("other", "compatible"),
        ("seen", "compatible"),
    ]


def test_what_nobody_can_tell_is_said() -> None:
    other = QuerySchema(sums("n long").operators, {FORMAT: "1"})
    ours = QuerySchema(sums("n long").operators, {FORMAT: "2"})
    assert compare_schemas(ours, other).verdict == "unknown"
    assert compare_schemas(query(store()), sums("n long")).verdict == "unknown", "no schema file"


@pytest.mark.parametrize(
    "name",
    [
        "4.3.0/hdfs-join", "4.3.0/rocksdb-changelog-join3", "4.3.0/rocksdb-transform", "4.3.0/hdfs-chain",
        "4.0.5/rocksdb-transform", "3.5.9/hdfs-window", "4.3.0/stateless",
    ],
)  # fmt: skip
def test_a_savepoint_has_the_schema_of_its_checkpoint(name: str, tmp_path: Path) -> None:
    checkpoint = open_store(unpack(name, tmp_path) / "checkpoint")
    repository = Repository.open(open_store(tmp_path / "savepoints"), create=True)
    savepoint = take(TakeRequest(checkpoint, repository, "orders")).savepoint
    batch, schema = schema_of_checkpoint(checkpoint)
    assert schema_of_savepoint(repository, "orders", savepoint) == (batch, schema)
    assert bool(schema.operators) is (name != "4.3.0/stateless")
    assert all(one.versions for operator in schema.operators for one in operator.stores)
    assert compare_schemas(schema, schema).verdict == "same"


def test_the_command_needs_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pyspark" else there(name, *rest)
    )
    window = unpack("4.3.0/rocksdb-window", tmp_path / "one") / "checkpoint"
    join = unpack("4.3.0/hdfs-join", tmp_path / "two") / "checkpoint"
    repository = Repository.open(open_store(tmp_path / "savepoints"), create=True)
    old, new = (
        take(TakeRequest(open_store(window), repository, "orders", batch=batch)).savepoint for batch in (3, 7)
    )
    place = ("-r", tmp_path / "savepoints")
    same = streambank("state", "schema", old, *place, "--against", new, "--json")
    assert (same.code, same.document["verdict"]) == (0, "same")
    other = streambank("state", "schema", new, *place, "--against", join, "--json")
    assert (other.code, other.document["verdict"]) == (1, "incompatible")
    assert other.document["after"] == {"of": open_store(join).uri, "batch": other.document["after"]["batch"]}
    told = streambank("state", "schema", window, "--against", join)
    assert told.code == 1 and "symmetricHashJoin" in told.out and "providerClass" in told.out
