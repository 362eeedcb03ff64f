"""Spark goes on from a closure copied elsewhere as if nothing had happened, also after another version."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.choices import ClosureKind
from streambank.storage import open_store
from tests.support.checkpoint.recorded import expected, lay_out, maker, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

# Checkpoint, batch to go on after, and which closure. The session's settings do not matter: Spark takes
# provider, partitions and codec from the checkpoint itself.
EVERY_TIME: list[tuple[str, int, ClosureKind]] = [
    ("4.3.0/stateless", 0, "minimal"),
]


IN_A_STORM: list[tuple[str, int, ClosureKind]] = [
    ("4.3.0/ids-changelog-transform", 3, "minimal"),
    ("4.3.0/ids-changelog-window", 7, "minimal"),
    ("4.0.5/rocksdb-transform", 1, "safe"),
    ("3.5.9/hdfs-session", 4, "safe"),
    ("4.3.0/rocksdb-changelog-window", 7, "safe"),
    ("4.3.0/stateless", 10, "minimal"),
    ("3.5.9/rocksdb-changelog-window", 7, "minimal"),
    ("3.5.9/hdfs-window", 6, "minimal"),
    ("3.5.9/hdfs-global", 1, "safe"),
    ("4.3.0/hdfs-chain", 5, "safe"),
    ("4.3.0/rocksdb-window", 3, "minimal"),
    ("4.3.0/ids-window", 3, "safe"),
    ("4.3.0/ids-changelog-zstd", 5, "safe"),
]
CASES = [
    *(pytest.param(*case, id="-".join(map(str, case))) for case in EVERY_TIME),
    *(pytest.param(*case, id="-".join(map(str, case)), marks=pytest.mark.storm) for case in IN_A_STORM),
]


@pytest.fixture
def quiet(spark: SparkSession) -> Iterator[SparkSession]:
    """A session to which the checkpoints' own query builder can give its functions."""
    from pyspark import cloudpickle

    make = maker()
    # Spark's Python workers cannot import the builder: what it defines travels by value.
    cloudpickle.register_pickle_by_value(make)  # type: ignore[no-untyped-call]  # PySpark has no types for it
    yield spark
    cloudpickle.unregister_pickle_by_value(make)  # type: ignore[no-untyped-call]  # nor for this


@pytest.mark.parametrize(("name", "batch", "kind"), CASES)
def test_the_rest_of_the_output_is_the_same(
    name: str, batch: int, kind: ClosureKind, quiet: SparkSession, tmp_path: Path
) -> None:
    folder = unpack(name, tmp_path / "made")
    original, restored = folder / "checkpoint", tmp_path / "restored"
    lay_out(CheckpointReader(open_store(str(original))).closure(batch, kind), original, restored)
    shutil.rmtree(original)
    cell = maker().CELLS[name.partition("/")[2]]
    rows = maker().run(quiet, cell.query, folder / "input", restored)
    assert rows == {number: part for number, part in expected(name).items() if number > batch}
    assert not original.exists()
    assert CheckpointReader(open_store(str(restored))).closure().batch == max(expected(name))


def test_without_the_state_of_one_partition_the_output_is_another(
    quiet: SparkSession, tmp_path: Path
) -> None:
    """The comparison above would see a closure that leaves state out."""
    name = "4.3.0/hdfs-window"
    folder = unpack(name, tmp_path / "made")
    original, restored = folder / "checkpoint", tmp_path / "restored"
    lay_out(CheckpointReader(open_store(str(original))).closure(6), original, restored)
    for path in (restored / "state" / "0" / "1").iterdir():
        path.unlink()
    # What a store that never saw a row writes.
    empty = (
        unpack("4.3.0/hdfs-empty-state", tmp_path / "empty") / "checkpoint" / "state" / "0" / "1" / "1.delta"
    )
    for version in range(1, 8):
        shutil.copy(empty, restored / "state" / "0" / "1" / f"{version}.delta")
    rows = maker().run(quiet, maker().CELLS["hdfs-window"].query, folder / "input", restored)
    assert rows != {number: part for number, part in expected(name).items() if number > 6}
