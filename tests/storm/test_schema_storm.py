"""What `state schema --against` says of two schemas is what Spark says when the new query starts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.checkpoint.schema.compatibility import SchemaComparison, compare_schemas
from streambank.checkpoint.schema.query import QuerySchema
from streambank.savepoint.schema import schema_of_checkpoint
from streambank.storage import open_store
from tests.support.spark.queries import Query
from tests.support.spark.schema_changes import (
    AVRO,
    ON_HDFS,
    UNSAFE,
    pickle_by_value,
    run_a_batch,
    versions,
    write_file,
)
from tests.support.spark.sessions import HURRIED, prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAYOUTS = {"hdfs": ON_HDFS, "rocksdb": UNSAFE, "avro": AVRO}
OTHER_OPERATORS = "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
KEY, VALUE = "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"
EVOLUTION = "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION"
KIND, MODE = "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE", "STATE_STORE_INVALID_CONFIG_AFTER_RESTART"

CASES: dict[tuple[str, str], dict[str, str]] = {
    ("sums", "hdfs"): {
        "sums": "", "other aliases": "", "key renamed": "", "key never null": "", "value added": VALUE,
        "value dropped": VALUE, "value of another type": VALUE, "key added": KEY,
        "key of another type": KEY, "distinct": OTHER_OPERATORS, "two operators": OTHER_OPERATORS,
        "none": OTHER_OPERATORS,
    },
    ("sums", "rocksdb"): {"other aliases": "", "value added": VALUE, "key renamed": ""},
    ("distinct", "hdfs"): {"distinct by two": KEY, "distinct of less": ""},
    ("none", "hdfs"): {"sums": "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"},
    ("two operators", "hdfs"): {"sums": OTHER_OPERATORS},
    ("one value", "avro"): {
        "one value": "", "column added": "", "column dropped": "", "column renamed": "",
        "column widened": "", "column narrowed": EVOLUTION, "column of another type": EVOLUTION,
        "columns turned round": "", "a list": KIND, "variable added": "", "variable renamed": "",
        "timed": MODE,
    },
    ("one value", "rocksdb"): {
        "column added": VALUE, "column dropped": VALUE, "column renamed": "", "column widened": VALUE,
        "columns turned round": VALUE, "a list": KIND, "variable added": "", "timed": MODE,
    },
    ("timed", "avro"): {"with a ttl": ""},
    ("timed", "rocksdb"): {"with a ttl": VALUE},
}  # fmt: skip
"""What was kept, and how -> the new query -> the error class with which Spark refuses it; empty where not."""


class Bench:
    """Queries of one way to keep state: each begun once, and continued by others from copies."""

    def __init__(self, base: SparkSession, layout: str, folder: Path) -> None:
        self.folder = folder
        self.session = base.newSession()
        for name, value in {**HURRIED, **LAYOUTS[layout]}.items():
            self.session.conf.set(name, value)

    def begun(self, query: Query) -> Path:
        place = self.folder / query.name.replace(" ", "-")
        if not place.exists():
            write_file(place / "in", 0)
            run_a_batch(self.session, query, place)
        return place

    def schema(self, query: Query) -> QuerySchema:
        return schema_of_checkpoint(open_store(self.begun(query) / "checkpoint"))[1]

    def refused(self, old: Query, new: Query) -> str:
        """What Spark says when the one goes on from the other's state; empty for nothing."""
        from pyspark.errors import StreamingQueryException

        begun = self.begun(old)
        kept = self.folder / "kept"
        shutil.move(begun / "checkpoint", kept)
        shutil.copytree(kept, begun / "checkpoint")
        write_file(begun / "in", 1)
        try:
            run_a_batch(self.session, new, begun)
        except StreamingQueryException as error:
            return str(error)
        finally:
            shutil.rmtree(begun / "checkpoint")
            shutil.move(kept, begun / "checkpoint")
        return ""


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Callable[[str], Bench]:
    prepare(spark)
    pickle_by_value()
    return lambda layout: Bench(spark, layout, tmp_path)


@pytest.mark.parametrize(("old", "layout"), CASES, ids=lambda value: str(value).replace(" ", "-"))
def test_spark_refuses_what_the_comparison_calls_incompatible_and_nothing_else(
    bench: Callable[[str], Bench], old: str, layout: str
) -> None:
    queries, place = versions(), bench(layout)
    wrong: Mapping[str, tuple[str, SchemaComparison]] = {}
    for new, error in CASES[old, layout].items():
        said = place.refused(queries[old], queries[new])
        found = compare_schemas(place.schema(queries[old]), place.schema(queries[new]))
        assert (error in said) if error else not said, (new, said)
        if (found.verdict == "incompatible") is not bool(said) or found.verdict == "unknown":
            wrong = {**wrong, new: (said, found)}
        if new == old:
            assert found.verdict == "same"
    assert not wrong
