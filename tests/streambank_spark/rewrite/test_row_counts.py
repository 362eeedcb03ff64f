"""A join whose state is rewritten counts its rows once, in the snapshots and in the query that goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.state.rocksdb import ZipMetadata, read_zip_metadata
from streambank.storage import open_store
from streambank.storage.store import Store
from streambank_spark.private.state_rewriter import quiet_session
from streambank_spark.rewrite.rewrite import rewrite
from streambank_spark.rewrite.row_counts import count_once
from streambank_spark.state.state import QueryState
from streambank_spark.state.store_rows import store_rows
from tests.support.checkpoint.recorded import maker
from tests.support.spark.saved_state import SavedState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STATE = "spark.sql.streaming.stateStore."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
JOIN = "spark.sql.streaming.join.stateFormatVersion"


@contextmanager
def settings(spark: SparkSession, more: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for a query whose state is in RocksDB."""
    session = spark.newSession()
    wanted = {f"{STATE}providerClass": ROCKSDB, "spark.sql.shuffle.partitions": "2"}
    for key, value in {**wanted, **more}.items():
        session.conf.set(key, value)
    yield session


def run(session: SparkSession, folder: Path, checkpoint: Path) -> list[Any]:
    """Let the query read all that is there; the rows that its state has after each batch."""
    frame, mode = maker().build(session, "join", folder)
    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint)).format("noop")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress["stateOperators"][0]["numRowsTotal"] for progress in query.recentProgress]


def snapshots(store: Store) -> dict[str, ZipMetadata]:
    closure = CheckpointReader(store).closure(None, "minimal")
    zips = [file for file in closure.files if file.path.endswith(".zip")]
    return {file.path: read_zip_metadata(file.path, file.size_bytes, store.read) for file in zips}


def keys(store: Store) -> int:
    found = [one.keys for one in snapshots(store).values()]
    assert found and None not in found
    return sum(one for one in found if one is not None)


@pytest.mark.storm
@pytest.mark.parametrize("partitions", [None, 3])
def test_a_query_goes_on_from_a_rewritten_join_with_the_counts_of_one_never_rewritten(
    partitions: int | None, spark: SparkSession, tmp_path: Path
) -> None:
    cell = maker().CELLS["rocksdb-changelog-join3"]
    maker().write_input(cell, tmp_path, 0, 4)
    with settings(spark, {JOIN: "3"}) as session:
        live = tmp_path / "live"
        run(session, tmp_path, live)
        state = QueryState(spark, str(live))
        target = open_store(str(tmp_path / "rewritten"))
        rewrite(spark, state, target, derived_from="a test", partitions=partitions)
        assert keys(target) == keys(state.store) > 0
        assert not [path for path, one in snapshots(target).items() if one.counted_twice]
        maker().write_input(cell, tmp_path, 4, 6)
        rewritten = tmp_path / "rewritten"
        if partitions is None:
            assert run(session, tmp_path, rewritten) == run(session, tmp_path, live)
        else:
            assert run(session, tmp_path, rewritten)[-1] == run(session, tmp_path, live)[-1]


@pytest.mark.storm
@pytest.mark.parametrize("name", ["rocksdb-changelog-join3", "ids-changelog-join3"])
def test_recorded_joins_of_format_3(name: str, spark: SparkSession, tmp_path: Path) -> None:
    saved = SavedState(spark, name, tmp_path)
    with saved.state(saved.savepoint) as state:
        session = quiet_session(spark, state.closure.spark.checkpoint_format)
        (store,) = store_rows(session, state)
        primary = store.frame.where("column_family_name NOT LIKE '%-keyToNumValues'")
        expected = primary.select("column_family_name", "key_bytes").distinct().count()
        target = open_store(str(tmp_path / "rewritten"))
        rewrite(spark, state, target, derived_from="a test")
    assert keys(target) == expected > 0
    found = CheckpointReader(target).closure(None, "minimal")
    (written,) = store_rows(session, QueryState(spark, target.uri))
    before = {path: target.read(path) for path in found.paths}
    count_once(target, found, [written])
    assert before == {path: target.read(path) for path in found.paths}, "what is right stays"
    assert all(f"{path}.crc" in before for path in before if path.endswith(".zip")) == name.startswith("ids")
