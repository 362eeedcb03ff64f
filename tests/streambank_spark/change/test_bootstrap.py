"""A table becomes the rows of state, each where Spark finds it; a table that cannot is refused before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.core.errors import IntegrityError, StreambankError
from streambank_spark.change import bootstrap
from streambank_spark.change.carry_out import carry_out
from streambank_spark.change.request import BootstrapRequest
from tests.streambank_spark.rewrite.test_repair import Bench
from tests.support.cli import streambank
from tests.support.declared_commands import install_commands
from tests.support.refuses import refuses
from tests.support.spark.saved_state import JOB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
BOTH, ONE = "SELECT 1 AS sum, 2 AS count FROM source", "SELECT 1 AS n FROM source"
SOME = "'k' AS c, 1 AS s"
AT = "timestamp '2024-01-01 02:00:00'"


def made(bench: Bench, sql: str, **asked: Any) -> dict[str, Any]:
    """State from a table of one row, `n` 1, by the SQL over it."""
    table = bench.folder / "table.json"
    table.write_text('{"n": 1}\n')
    request = BootstrapRequest.from_dict({"table": str(table), "query": sql, "existing": "replace"} | asked)
    return carry_out(bench.source(), request)


def windows(*rows: str) -> str:
    """A table for state of windows: of each row its key and its sum."""
    structs = [f"struct({row}, {AT} AS b, {AT} + interval 20 minutes AS e)" for row in rows]
    return f"SELECT c, s, b, e FROM source LATERAL VIEW inline(array({', '.join(structs)})) made"


WINDOW = {"keys": ["window.start = b", "window.end = e", "k = c"], "values": ["sum = s"]}


def by_key(bench: Bench, savepoint: str) -> dict[str, Any]:
    rows = bench.rows(savepoint)["default"]
    return {key.partition(", 'partition_id")[0]: value for key, value in rows}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert not list((tmp_path / "work").rglob("*")), "what was staged is gone"


@pytest.mark.storm
@pytest.mark.parametrize("name", ["hdfs-window", "rocksdb-window"])
@pytest.mark.parametrize("existing", ["replace", "keep", "overwrite"])
def test_rows_that_are_there_go_or_stay_as_was_said(
    spark: SparkSession, name: str, existing: str, folder: Path
) -> None:
    bench = Bench(spark, name, folder)
    before = by_key(bench, bench.savepoint)
    old = min(before)
    start = re.findall(r"datetime\(([^)]*)\)", old)[0]
    at = "{}-{}-{} {}:{}:00".format(*start.split(", "))
    sql = windows("'k0' AS c, 5 AS s", "'new' AS c, 6 AS s").replace("2024-01-01 02:00:00", at)
    done = made(bench, sql, existing=existing, **WINDOW)
    after = by_key(bench, done["savepoint"])
    expected = {"replace": {old: {"sum": 5}}, "keep": before, "overwrite": {**before, old: {"sum": 5}}}
    new = old.replace("'k0'", "'new'")
    assert "'k0'" in old and after == {**expected[existing], new: {"sum": 6}}
    assert done["rows"] == (1 if existing == "keep" else 2)
    assert bench.repository.load(JOB, done["savepoint"]).taken_by["reason"] == "bootstrap"


@pytest.mark.parametrize(
    ("name", "sql", "asked", "code", "says"),
    [
        ("hdfs-global", BOTH, {"existing": None}, "state-not-empty", "1 rows"),
        ("hdfs-global", "SELECT 1 AS sum FROM source", {}, "bad-table", "value.count"),
        ("hdfs-global", BOTH, {"values": ["x = 1"]}, "bad-table", "value.x"),
        (
            "hdfs-global",
            "SELECT 1 AS sum, null AS count FROM source",
            {},
            "bad-table",
            "value.count (bigint) of 1",
        ),
        ("hdfs-global", BOTH.replace("2", "'secret'"), {}, "bad-table", "of 1"),
        (
            "hdfs-global",
            BOTH.replace("1", "explode(array(1, 2))"),
            {},
            "bad-table",
            "2 rows",
        ),
        ("hdfs-global", "SELECT 1 AS sum, 2 AS count FROM source WHERE false", {}, "bad-table", "no rows"),
        ("hdfs-global", "SELECT FROM", {}, "bad-query", "cannot be run"),
        ("hdfs-global", BOTH, {"values": ["sum = rand()"]}, "bad-expression", ""),
        ("hdfs-global", BOTH, {"values": ["sum = 1.9D"]}, "bad-table", "value.sum (bigint) of 1"),
        ("hdfs-global", BOTH, {"values": ["sum = null"]}, "bad-table", "value.sum (bigint) of 1"),
        (
            "hdfs-global",
            BOTH.replace("1", "unix_micros(current_timestamp())"),
            {},
            "bad-table",
            "read again",
        ),
        ("hdfs-global", BOTH, {"format": "delta"}, "bad-table", "read as delta"),
        ("hdfs-window", windows("'k' AS c, 1 AS s", "'k' AS c, 2 AS s"), WINDOW, "bad-table", "1 keys"),
        ("hdfs-window", windows("null AS c, 1 AS s"), WINDOW, "bad-table", "key.k (string) of 1"),
        ("hdfs-window", windows(SOME), {"values": ["sum = s"]}, "bad-table", "key.window.start"),
        ("hdfs-session", ONE, {}, "cannot-make-state", "repeats its key"),
        ("hdfs-chain", ONE, {}, "which-operator", "several"),
        ("hdfs-join", ONE, {"part": "left"}, "cannot-make-state", "counters"),
        ("ids-changelog-transform", ONE, {"part": "last"}, "cannot-make-state", "several"),
    ],
)
@pytest.mark.storm
def test_a_table_that_is_not_state_is_refused_by_name_and_quotes_no_value(
    spark: SparkSession, name: str, sql: str, asked: dict[str, Any], code: str, says: str, folder: Path
) -> None:
    bench = Bench(spark, name, folder)
    with refuses(StreambankError, code) as caught:
        made(bench, sql, **asked)
    assert caught.value.hint, caught.value
    assert says in caught.value.message and "secret" not in caught.value.message
    assert len(list(bench.repository.manifests(JOB))) == 1


@pytest.mark.storm
def test_a_table_that_gives_other_rows_than_a_plan_showed_is_refused(
    spark: SparkSession, folder: Path
) -> None:
    bench = Bench(spark, "hdfs-global", folder)
    planned = made(bench, BOTH, dry_run=True)["table_digest"]
    assert planned.startswith("1:")
    with refuses(StreambankError, "approval-outdated") as caught:
        made(bench, BOTH.replace("2", "3"), table_digest=planned)
    assert "they are not the 1 that" in caught.value.message
    assert made(bench, BOTH, dry_run=True, table_digest=planned)["table_digest"] == planned
    assert len(list(bench.repository.manifests(JOB))) == 1


def test_a_table_without_a_column_is_refused(spark: SparkSession, folder: Path) -> None:
    bench = Bench(spark, "hdfs-global", folder)
    with refuses(StreambankError, "bad-table") as caught:
        made(bench, "SELECT n AS sum FROM source")
    assert "value.count" in caught.value.message


@pytest.mark.storm
@pytest.mark.parametrize("name", ["hdfs-window", "rocksdb-window"])
@pytest.mark.parametrize("wrong", ["value", "partition"])
def test_a_row_that_is_not_the_table_s_makes_no_savepoint(
    spark: SparkSession, name: str, wrong: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes say something else than the table: the read of what was written has to find it."""
    from pyspark.sql import functions as F

    bench = Bench(spark, name, folder)
    honest = bootstrap._encoded

    def careless(state: Any, rows: Any, *more: Any) -> Any:
        if wrong == "partition":
            return honest(state, rows, *more).withColumn("partition", 1 - F.col("partition"))
        value = F.col("value").withField("sum", F.col("value.sum") + 1)
        return honest(state, rows.withColumn("value", value), *more)

    monkeypatch.setattr(bootstrap, "_encoded", careless)
    with refuses(IntegrityError, "rewrite-differs"):
        made(bench, windows("'k' AS c, 1 AS s", "'l' AS c, 1 AS s", "'m' AS c, 1 AS s"), **WINDOW)
    assert len(list(bench.repository.manifests(JOB))) == 1


@pytest.mark.storm
def test_the_command_makes_a_savepoint_from_a_file_with_a_header(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_commands(monkeypatch)
    bench = Bench(spark, "hdfs-pandas-state", folder)
    table = folder / "table.csv"
    table.write_text("k,visits\nk1,7\nk2,8\n")
    asked = ("state", "bootstrap", bench.savepoint, "-r", folder / "repository", "--work", folder / "work",
             "--from", table, "--value", "groupState.n = visits", "--existing", "replace")  # fmt: skip
    dry = streambank(*asked, "--dry-run", "--json")
    assert dry.code == 0 and dry.document["savepoint"] is None, dry.out
    assert {"key": {"k": "k1"}, "value": {"groupState": {"n": 7}}} in dry.document["samples"]
    done = streambank(*asked)
    assert done.code == 0 and "2 rows made from 2 rows of the table" in done.out and "Restore b" in done.out
    (new,) = (one.savepoint for one in bench.repository.manifests(JOB) if one.savepoint != bench.savepoint)
    assert [value["groupState"]["n"] for _, value in bench.rows(new)["default"]] == [7, 8]
