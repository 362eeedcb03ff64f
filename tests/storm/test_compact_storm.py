"""After a compaction or a rescale of its state a query goes on as a model says: every kind, every layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.core.errors import RefusedError
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from tests.storm.cells import cells_of
from tests.support.spark.queries import QUERIES, TO_FILES, Query
from tests.support.spark.rewritten_state import (
    COMPACTED,
    LAST,
    ExpectedOutputs,
    IsPast,
    RewrittenQuery,
    after_last,
    as_table,
    given,
    unheard_of_in_last,
)
from tests.support.spark.sessions import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    # Spark 4.3 warns of every pandas from 3.0 on, whatever is used of it.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

NAMES = ("k0", "k3", "k7", "k11")
BY_KEY = "key.key IN ('k0', 'k3', 'k7', 'k11')"
WHERE = {
    "drop-duplicates": "key.id % 5 = 0",
    "drop-duplicates-within-watermark": "key.id % 5 = 0",
    "join": "key.field0 IN ('k0', 'k3', 'k7', 'k11')",
}
JOIN_3 = {"spark.sql.streaming.join.stateFormatVersion": "3"}
WIDE = RewriteRequest(operation="rescale", partitions=5)


@pytest.fixture(autouse=True)
def prepared(spark: SparkSession) -> None:
    prepare(spark)


@pytest.fixture(scope="module")
def models(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ExpectedOutputs:
    prepare(spark)
    return ExpectedOutputs(spark, tmp_path_factory.mktemp("models"))


def is_past(query: Query) -> IsPast:
    """What `WHERE` says, of a row of the input."""
    if query.name.startswith("drop-duplicates"):
        return lambda row: bool(row["id"] % 5 == 0)
    return lambda row: row["key"] in NAMES


def compaction(query: Query) -> RewriteRequest:
    return RewriteRequest(operation="compact", where=WHERE.get(query.name, BY_KEY))


def _cells(verb: str) -> Iterator[Any]:
    for query, layout in cells_of(verb):
        yield pytest.param(QUERIES[query], layout, {}, id=f"{query}-{layout}")


@pytest.mark.parametrize(
    ("query", "layout", "conf"),
    [*_cells("compact"), pytest.param(QUERIES["join"], "rocksdb-changelog", JOIN_3, id="join-v3")],
)
def test_a_query_goes_on_from_compacted_state_as_the_models_say(
    spark: SparkSession,
    models: ExpectedOutputs,
    query: Query,
    layout: str,
    conf: dict[str, str],
    tmp_path: Path,
) -> None:
    expected = after_last(models.of(query, "expired", is_past(query)))
    assert expected != after_last(models.of(query)), "control: what expires shows"
    course = RewrittenQuery(spark, query, layout, tmp_path, conf)
    savepoint, _ = course.saved()

    compacted = course.made(savepoint, compaction(query))

    assert after_last(given(course.go_on(compacted))) == expected


@pytest.mark.parametrize(
    ("query", "layout", "conf"),
    [*_cells("rescale"), pytest.param(QUERIES["join"], "format-v2", JOIN_3, id="join-v3")],
)
def test_a_query_goes_on_from_rescaled_state_as_the_models_say(
    spark: SparkSession,
    models: ExpectedOutputs,
    query: Query,
    layout: str,
    conf: dict[str, str],
    tmp_path: Path,
) -> None:
    course = RewrittenQuery(spark, query, layout, tmp_path, conf)
    savepoint, _ = course.saved()

    rescaled = course.made(savepoint, WIDE)

    assert after_last(given(course.go_on(rescaled))) == after_last(models.of(query))


def test_hdfs_backed_state_keeps_its_partitions(spark: SparkSession, tmp_path: Path) -> None:
    course = RewrittenQuery(spark, QUERIES["aggregation"], "hdfs", tmp_path)
    savepoint, _ = course.saved()
    with pytest.raises(RefusedError) as caught:
        course.made(savepoint, WIDE)
    assert caught.value.code == "hdfs-backed" and caught.value.hint


# What a file sink holds does not depend on how state is kept; HDFS-backed state is not rescaled.
@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("closed-windows", "hdfs"),
        ("closed-windows", "rocksdb-changelog"),
        ("transform-with-state-to-files", "format-v2"),
    ],
)
def test_a_file_sink_holds_every_row_once_after_its_query_was_compacted_or_rescaled(
    spark: SparkSession, models: ExpectedOutputs, name: str, layout: str, tmp_path: Path
) -> None:
    query = TO_FILES[name]
    ordinary, expired = models.of(query), models.of(query, "expired", is_past(query))
    expected = as_table(ordinary, expired)
    assert expected != as_table(ordinary, ordinary), "control: what expires shows"
    course = RewrittenQuery(spark, query, layout, tmp_path)
    savepoint, _ = course.saved()

    compacted = course.made(savepoint, compaction(query))
    course.go_on(compacted)
    assert (course.sink / COMPACTED).exists(), "no batch was missing when it was compacted"
    assert course.table() == expected

    untouched = savepoint if layout == "hdfs" else course.made(savepoint, WIDE)
    with pytest.raises(RefusedError):
        course.go_on(untouched)
    course.go_on(untouched, sink="rollback")
    assert course.table() == as_table(ordinary, ordinary)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("apply-in-pandas-with-state", "hdfs"),
        ("apply-in-pandas-with-state", "format-v2"),
        ("transform-with-state", "rocksdb-changelog"),
    ],
)
def test_keys_that_were_idle_since_another_savepoint_start_from_zero(
    spark: SparkSession, models: ExpectedOutputs, name: str, layout: str, tmp_path: Path
) -> None:
    query = QUERIES[name]
    course = RewrittenQuery(spark, query, layout, tmp_path)
    savepoint, before = course.saved(also=LAST - 1)
    expected = after_last(models.of(query, "idle", unheard_of_in_last(course.source)))
    assert expected != after_last(models.of(query)), "control: what was idle shows"
    compacted = course.made(savepoint, RewriteRequest(operation="compact", idle_since=before))
    assert after_last(given(course.go_on(compacted))) == expected
