"""State whose columns have the same names, or names that SQL quotes, or maps for keys, with real Spark.

Each verb takes the second of two columns of one name as `sum_2`, and says so before a job is stopped for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import RefusedError, StreambankError
from streambank.recovery import foresee
from streambank.storage import open_store
from streambank_spark.rewrite import migrate, rewrite
from streambank_spark.rewrite.derive import SourceSavepoint
from streambank_spark.rewrite.expiry import KeySelection
from streambank_spark.rewrite.key_locations import NO, YES, holds_key
from streambank_spark.rewrite.request import carry_out, validate
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.rewrite.validate_request import ValidateRequest
from streambank_spark.state.query import read_query
from streambank_spark.state.read import RowChoice, export_state, read_rows
from streambank_spark.state.staging import materialized_savepoint
from streambank_spark.state.state import QueryState
from tests.storm.test_make_state_storm import FIVE, LOOSE, ODD_KEYS, Line
from tests.support.spark.queries import Query, events
from tests.support.spark.sessions import prepare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(3600)]


@pytest.fixture(autouse=True)
def prepared(spark: SparkSession) -> None:
    prepare(spark)


def rewritten(line: Line, **order: Any) -> Any:
    request = RewriteRequest(**order)
    return carry_out(_source(line), request)


def _source(line: Line) -> SourceSavepoint:
    return SourceSavepoint(line.base, line.repository, "job", line.savepoint, line.staging)


def foreseen(line: Line, where: str) -> None:
    """What is said of an expression before the job is stopped; nothing where it can be used."""
    checkpoint = open_store(str(line.folder / "checkpoint"))
    closure = CheckpointReader(checkpoint).closure(None, "minimal")
    foresee._check_columns(checkpoint, closure, {"operation": "compact", "where": where})


def counted(line: Line, savepoint: str | None, where: str = "true") -> int:
    assert savepoint is not None
    rows: int = line.read(savepoint, None, lambda frame: frame.where(where).count())
    return rows


def _quoted(session: SparkSession, folder: Path) -> DataFrame:
    named = events(session, folder / "left").withColumnRenamed("key", "user-id")
    return named.groupBy("user-id").count()


@pytest.mark.parametrize("layout", ["rocksdb", "hdfs"])
def test_a_key_whose_name_sql_quotes_is_removed(spark: SparkSession, layout: str, tmp_path: Path) -> None:
    line = Line(spark, Query("q", _quoted, "complete"), layout, tmp_path, conf=FIVE)
    where = "key.`user-id` = 'k1'"
    there = counted(line, line.savepoint)
    assert counted(line, line.savepoint, where) == 1
    made = rewritten(line, operation="compact", where=where).savepoint
    assert counted(line, made) == there - 1 and counted(line, made, where) == 0


@pytest.mark.parametrize("layout", ["rocksdb", "hdfs"])
def test_a_key_with_two_columns_of_one_name_is_erased(
    spark: SparkSession, layout: str, tmp_path: Path
) -> None:
    query, _ = ODD_KEYS["columns of one name"]
    line = Line(spark, query, layout, tmp_path, conf=FIVE)

    def of_k1(frame: DataFrame) -> int:
        second: int = frame.where("key.key = 'k1'").select("key.KEY_2").collect()[0][0]
        return second

    second = line.read(line.savepoint, None, of_k1)
    texts = {
        f'{{"KEY_2": {second}}}': f"key.KEY_2 = {second}",
        f'{{"key": "k1", "KEY_2": {second}}}': f"key.key = 'k1' AND key.KEY_2 = {second}",
    }
    for text, where in texts.items():
        going = rewritten(line, operation="erase", key=text, dry_run=True).going
        assert [one.keys for one in going] == [counted(line, line.savepoint, where)] != [0], text
        foreseen(line, where)
    made = rewritten(line, operation="erase", key='{"key": "k1"}').savepoint
    assert counted(line, made, "key.key = 'k1'") == 0 < counted(line, made)


def _two_sums(session: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as f

    return events(session, folder / "left").groupBy("key").agg(f.sum("value"), f.sum("id"))


def test_two_columns_of_one_name_can_be_named_before_a_stop_and_in_rules(
    spark: SparkSession, tmp_path: Path
) -> None:
    line = Line(spark, Query("two", _two_sums, "complete"), "rocksdb", tmp_path, conf=FIVE)
    foreseen(line, "value.sum_2 > 1000 AND value.sum > 0")
    with pytest.raises(StreambankError) as caught:
        foreseen(line, "value.sum_3 > 1000")
    assert caught.value.code == "bad-expression" and "value.sum_2" in caught.value.hint
    broken = counted(line, line.savepoint, "NOT value.sum_2 < 100")
    assert broken
    with materialized_savepoint(line.repository, "job", line.savepoint, line.staging) as laid:
        state = QueryState(spark, laid.location)
        rows, _ = read_rows(state, RowChoice(where="NOT value.sum_2 < 100"), 0)
        assert len(rows) == broken and all(one["value"]["sum_2"] >= 100 for one in rows)
        _, (answer,), _ = read_query(state, "SELECT count(*) AS n FROM state WHERE NOT value.sum_2 < 100", 1)
        assert answer == {"n": broken}
        (exported,) = export_state(spark, state, str(tmp_path / "exported"), RowChoice())
        assert "sum_2" in exported.columns
    asked = ValidateRequest.from_dict({"rules": ["value.sum_2 < 100"], "repairs": ["value.sum_2 = 1"]})
    told = validate(_source(line), asked)
    assert told["rules"][0]["broken"] == broken
    assert counted(line, told["savepoint"], "value.sum_2 = 1") == broken


def _by_map(session: SparkSession, folder: Path) -> DataFrame:
    return events(session, folder / "left").selectExpr("map(key, value) AS pairs").groupBy("pairs").count()


def test_a_key_with_a_map_is_refused_before_state_is_migrated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(spark, Query("m", _by_map, "complete"), "hdfs", tmp_path, conf=FIVE)
    written: list[Any] = []
    monkeypatch.setattr(migrate, "rewrite_stores", lambda *given: written.append(given))
    monkeypatch.setattr(rewrite, "rewrite_stores", lambda *given: written.append(given))
    with pytest.raises(RefusedError) as caught:
        rewritten(line, operation="migrate", provider="rocksdb")
    assert caught.value.code == "key-type" and not written


def _with_a_map_elsewhere(session: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as f

    once = events(session, folder / "left").dropDuplicatesWithinWatermark(["id"])
    return once.groupBy(f.window("at", "10 seconds"), f.expr("map(key, value)")).count()


def test_a_key_is_found_beside_an_operator_with_a_map_in_its_key(spark: SparkSession, tmp_path: Path) -> None:
    line = Line(spark, Query("e", _with_a_map_elsewhere), "rocksdb", tmp_path)
    with materialized_savepoint(line.repository, "job", line.savepoint, line.staging) as laid:
        state = QueryState(spark, laid.location)
        by_map, once = state.operators()
        assert "dedupe" in (once.name or "")
        there = state.frame(state.parts(once)[0]).selectExpr("max(key.id)").collect()[0][0]
        others = {(by_map.operator, by_map.name)}
        for operator in (None, once.operator):
            assert holds_key(state, KeySelection(f'{{"id": {there}}}', operator), others) == YES
            assert holds_key(state, KeySelection(f'{{"id": {there + 999}}}', operator), others) == NO
        assert "no plain value" in holds_key(state, KeySelection('{"_groupingmapsort": "x"}'), set())
    with pytest.raises(RefusedError) as caught:
        rewritten(line, operation="erase", key=f'{{"id": {there}}}')
    assert caught.value.code == "key-type"


def _joined(session: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as f

    left = events(session, folder / "left").repartition("key").alias("l")
    right = events(session, folder / "right").alias("r")
    near = "r.at BETWEEN l.at - INTERVAL 5 SECONDS AND l.at + INTERVAL 5 SECONDS"
    return left.join(right, f.expr(f"l.key = r.key AND l.value = r.value AND {near}")).select("l.id")


def _by_one_column(session: SparkSession, folder: Path) -> DataFrame:
    return events(session, folder / "left").groupBy("key").count()


LOOSE_BUT_PLACED = {
    "join": Query("j", _joined, oracle="restart"),
    "one column": Query("o", _by_one_column, "complete"),
}


@pytest.mark.parametrize("name", LOOSE_BUT_PLACED)
def test_loose_state_whose_key_says_where_it_lies_gets_other_partitions(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    line = Line(spark, LOOSE_BUT_PLACED[name], "rocksdb", tmp_path, conf={**FIVE, **LOOSE})
    made = rewritten(line, operation="rescale", partitions=7).savepoint
    assert made is not None and line.go_on(made, "more") == line.expected()
