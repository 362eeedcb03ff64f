"""State of every kind of query in every layout: the same rows by digest, and all of it readable.

The same query over the same input ends with the same state, whatever keeps it; and the command line by
itself, in a process that starts its own Spark, answers on stdout with nothing of Spark's between.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.state.diff import diff_states
from streambank_spark.state.digest import StoreDigest, digest_of
from streambank_spark.state.read import RowChoice, read_rows
from streambank_spark.state.staging import Staging, materialized_checkpoint
from streambank_spark.state.state import QueryState
from streambank_spark.state.verify import look_deep
from tests.support.checkpoint.recorded import unpack
from tests.support.spark.queries import QUERIES, Query, write_input
from tests.support.spark.sessions import prepare, run_to_end, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 5
JOIN_3 = {"spark.sql.streaming.join.stateFormatVersion": "3"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("input")
    write_input(folder, BATCHES)
    return folder


@pytest.fixture(autouse=True)
def prepared(spark: SparkSession) -> None:
    prepare(spark)


def runs(query: Query) -> Iterator[tuple[str, dict[str, str]]]:
    for layout in query.layouts:
        yield layout, {}
        if query.name == "join" and layout != "hdfs":
            yield layout, JOIN_3


STATEFUL = [query for query in QUERIES.values() if not query.file_sink]


@pytest.mark.spark
@pytest.mark.parametrize("query", STATEFUL, ids=lambda query: query.name)
def test_every_layout_of_a_query_has_one_digest(
    spark: SparkSession, source: Path, tmp_path: Path, query: Query
) -> None:
    digests: dict[str, list[StoreDigest]] = {}
    rows: dict[str, list[str]] = {}
    staging = Staging("local[2]", None, print)
    for number, (layout, more) in enumerate(runs(query)):
        folder = tmp_path / str(number)
        # Another number of partitions in every second layout.
        conf = more | {"spark.sql.shuffle.partitions": "3" if number % 2 else "2"}
        run_to_end(session_for(spark, layout, conf), query, source, folder / "checkpoint", folder / "output")
        name = f"{layout} {sorted(more)}"
        with materialized_checkpoint(str(folder / "checkpoint"), None, staging) as found:
            state = QueryState(spark, found.location)
            digests[name] = digest_of(state)
            told, more_rows = read_rows(state, RowChoice(), 0)
            assert not more_rows
        content = [{key: value for key, value in row.items() if key != "partition"} for row in told]
        rows[name] = sorted(json.dumps(row, sort_keys=True) for row in content)
        repository = Repository.open(open_store(folder / "savepoints"), create=True)
        taken = take(TakeRequest(open_store(folder / "checkpoint"), repository, "orders"))
        findings = look_deep(spark, repository, "orders", taken.savepoint, staging)
        assert {finding.code for finding in findings} <= {"rows-not-counted"}, findings
    first = next(iter(rows))
    assert rows[first], "there is state to compare"
    for name in rows:
        assert rows[name] == rows[first], name
        assert digests[name] == digests[first], name
    assert sum(each.rows for each in digests[first]) == len(rows[first])
    if query.name == "transform-with-state":
        assert sorted(each.store for each in digests[first]) == ["newest", "rows", "timers"]


@pytest.mark.spark
def test_the_order_of_a_list_counts(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    query = QUERIES["transform-with-state"]
    run_to_end(session_for(spark, "rocksdb"), query, source, tmp_path / "checkpoint", tmp_path / "output")
    with materialized_checkpoint(
        str(tmp_path / "checkpoint"), None, Staging("local[2]", None, print)
    ) as found:
        state = QueryState(spark, found.location)
        (operator,) = state.operators()
        (newest,) = state.parts(operator, "newest")
        from streambank_spark.state.digest import digest_frame

        whole = state.whole(newest)
        turned = whole.withColumn("list_value", F.reverse("list_value"))
        assert digest_frame(whole) != digest_frame(turned)


@pytest.mark.spark
def test_diff_across_layouts_and_of_one_changed_value(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [
        unpack(f"4.3.0/{name}", tmp_path / name) / "checkpoint"
        for name in ("hdfs-window", "ids-changelog-window")
    ]
    before, after = (QueryState(spark, str(folder)) for folder in folders)
    (same,) = diff_states(before, after, None, None, 10)
    assert same.equal and same.same == 13
    whole = QueryState.whole

    def one_bit(state: QueryState, part: Any) -> Any:
        frame = whole(state, part)
        if state is before:
            return frame
        value = F.col("value.sum")
        low = frame.select(F.min(value)).collect()[0][0]
        return frame.withColumn(
            "value", F.struct(F.when(value == low, value + 1).otherwise(value).alias("sum"))
        )

    monkeypatch.setattr(QueryState, "whole", one_bit)
    (other,) = diff_states(before, after, None, None, 10)
    assert (other.added, other.removed, other.same) == (0, 0, 13 - other.changed)
    assert other.changed == len(other.samples) >= 1
    for sample in other.samples:
        assert sample["after"][0]["value"]["sum"] == sample["before"][0]["value"]["sum"] + 1
    assert digest_of(before) != digest_of(after)


@pytest.mark.spark
def test_a_process_of_its_own_answers_with_json_alone(tmp_path: Path, project_root: Path) -> None:
    checkpoint = unpack("4.3.0/rocksdb-window", tmp_path) / "checkpoint"
    code = (
        "import sys, pytest\n"
        "from tests.support.declared_commands import install_commands\n"
        "from streambank.cli.run import run\n"
        "install_commands(pytest.MonkeyPatch())\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        paths = f"{project_root / 'provider'}:{project_root}"
        return subprocess.run(
            [sys.executable, "-c", code, "state", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": paths, "TMPDIR": str(temporary)},
        )

    master = ("--master", "local[2]", "--spark-conf", "spark.sql.shuffle.partitions=2")
    answer = run("digest", checkpoint, *master, "--json")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["operators"][0]["rows"] == 13
    said = answer.stderr.splitlines()
    assert "starting Spark" in said and "reading state" in said
    assert not [line for line in said if "WARN" in line or "log4j" in line], "Spark is quiet"
    assert not list(temporary.glob("streambank-*")), "nothing is left"
    failed = run("read", checkpoint, "--where", "raise_error('on purpose') IS NULL", *master, "--json")
    assert failed.returncode == 7
    told = json.loads(failed.stdout)
    assert told["error"] == "spark-failed" and "on purpose" in told["message"]
    (log,) = temporary.glob("streambank-spark-*.log")
    assert str(log) in told["hint"]
