"""Settings that a checkpoint keeps: what is declared otherwise has no effect, and that is said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.schema.kept_settings import kept_settings
from streambank.storage import open_store
from tests.support.checkpoint.recorded import checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def test_what_is_declared_as_it_is_kept_or_not_at_all_has_nothing_to_say() -> None:
    closure = checkpoint("4.3.0/hdfs-window").plan()
    same = {name: closure.offset_conf[name] for name in (PARTITIONS, PROVIDER)}
    for declared in ({}, same, {"spark.executor.memory": "8g"}):
        assert kept_settings(closure, declared) == []


def test_a_query_without_state_listens_at_its_next_start() -> None:
    assert kept_settings(checkpoint("4.3.0/stateless").plan(), {PARTITIONS: "8"}) == []


@pytest.mark.parametrize(
    ("of", "ways"),
    [
        ("4.3.0/rocksdb-window", ("`streambank job rescale orders --partitions 8`",)),
        ("4.3.0/hdfs-window", ("state migrate --provider rocksdb --partitions 8`",)),
        ("3.5.9/hdfs-window", ("state migrate --provider rocksdb --partitions 8`",)),
    ],
)
def test_another_number_of_partitions_names_what_changes_it(of: str, ways: tuple[str, ...]) -> None:
    (found,) = kept_settings(checkpoint(of).plan(), {PARTITIONS: "8"})
    assert found.cause == f"{PARTITIONS} is declared as 8, and the checkpoint keeps 2."
    assert all(way in found.way_out("orders") for way in ways)


def test_another_provider_names_what_changes_it() -> None:
    (found,) = kept_settings(checkpoint("4.3.0/hdfs-window").plan(), {PROVIDER: ROCKSDB})
    assert "state migrate --provider rocksdb`" in found.way_out("orders")
    (found,) = kept_settings(checkpoint("4.3.0/rocksdb-window").plan(), {PROVIDER: "another"})
    assert "new checkpoint" in found.way_out("orders")


@pytest.mark.spark
@pytest.mark.storm
def test_spark_itself_keeps_them(spark: SparkSession, tmp_path: Path) -> None:
    """A query with state that is restarted with another number of partitions still has the old one."""
    (tmp_path / "in").mkdir()

    def run(row: str, partitions: str) -> list[int]:
        (tmp_path / f"in/{row}.txt").write_text(f"{row}\n")
        session = spark.newSession()
        session.conf.set(PARTITIONS, partitions)
        query = (
            session.readStream.format("text")
            .load(str(tmp_path / "in"))
            .groupBy("value")
            .count()
            .writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return sorted(int(one.name) for one in (tmp_path / "checkpoint/state/0").glob("[0-9]*"))

    assert run("a", "2") == [0, 1]
    assert run("b", "5") == [0, 1]
    closure = CheckpointReader(open_store(str(tmp_path / "checkpoint"))).closure(None, "minimal")
    assert (closure.batch, closure.offset_conf[PARTITIONS]) == (1, "2")
    assert [one.kept for one in kept_settings(closure, {PARTITIONS: "5"})] == ["2"]
