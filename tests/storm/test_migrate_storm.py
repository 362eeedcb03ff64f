"""A query goes on from HDFS-backed state that became RocksDB as from the state it had: output for output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.checkpoint.shape import PROVIDER
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.schema import schema_of_checkpoint
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.rewrite.derive import SourceSavepoint
from streambank_spark.rewrite.migrate import ROCKSDB
from streambank_spark.rewrite.request import carry_out
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.state.staging import Staging
from tests.support.spark.queries import QUERIES, Query, events, write_input
from tests.support.spark.sessions import prepare, read_batches, run_to_end, run_until, session_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    # Spark 4.3 warns of every pandas from 3.0 on, whatever is used of it.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

BATCHES = 14
LAST = 7


def _global(session: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as f

    return events(session, folder / "left").groupBy().agg(f.count("*"), f.sum("value"))


def _chain(session: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as f

    once = events(session, folder / "left").dropDuplicates(["id", "at"])
    return once.groupBy(f.window("at", "20 seconds"), "key").agg(f.count("*").alias("rows"))


KEPT = [
    *(query for query in QUERIES.values() if "hdfs" in query.layouts and not query.file_sink),
    Query("global", _global, "update"),
    Query("chain", _chain),
]


def after(output: Path) -> dict[int, list[str]]:
    return {batch: rows for batch, rows in read_batches(output).items() if batch > LAST}


# Every second query gets other partitions on its way.
@pytest.mark.parametrize(
    ("query", "partitions"),
    [pytest.param(query, (None, 5)[number % 2], id=query.name) for number, query in enumerate(KEPT)],
)
def test_a_query_goes_on_from_rocksdb_as_if_it_had_always_been_there(
    spark: SparkSession, query: Query, partitions: int | None, tmp_path: Path
) -> None:
    prepare(spark)
    write_input(tmp_path / "in", BATCHES)
    begun = (tmp_path / "in", tmp_path / "checkpoint", tmp_path / "out")
    run_until(session_for(spark, "hdfs"), query, *begun, LAST)
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    savepoint = take(TakeRequest(open_store(tmp_path / "checkpoint"), repository, "job")).savepoint
    order = RewriteRequest(operation="migrate", provider="rocksdb", partitions=partitions)
    workshop = Staging("local[2]", str(tmp_path / "work"), print)
    migrated = carry_out(SourceSavepoint(spark, repository, "job", savepoint, workshop), order).savepoint
    assert migrated is not None

    place = tmp_path / "migrated"
    restore(
        RestoreRequest(repository, migrated, job="job", into=open_store(place / "checkpoint"), sink="accept")
    )
    # The session still asks for HDFS-backed state: what the checkpoint says wins.
    run_to_end(session_for(spark, "hdfs"), query, tmp_path / "in", place / "checkpoint", place / "out")
    run_to_end(session_for(spark, "hdfs"), query, *begun)
    assert after(place / "out") == after(tmp_path / "out"), "an ordinary restart"
    assert len(after(place / "out")) >= BATCHES - LAST - 1
    conf = schema_of_checkpoint(open_store(place / "checkpoint"))[1].conf
    assert conf[PROVIDER] == ROCKSDB and not list((place / "checkpoint/state").rglob("*.delta"))
