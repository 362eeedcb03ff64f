"""Checkpoints of real queries that were killed again and again: compacted in between, they go on exactly."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.compaction.compact import CompactionRequest, compact
from streambank.compaction.purge import purge
from streambank.compaction.quarantine import Quarantine
from streambank.compaction.quiet_check import HELD
from streambank.compaction.undo import bring_back
from streambank.storage.local.store import LocalStore
from tests.support.drivers.killed_in_batch import kill_in_batch, leave_temporary_files
from tests.support.pairs import by_pairs
from tests.support.spark.exactly_once_oracle import Rows, Trial, committed
from tests.support.spark.queries import QUERIES
from tests.support.spark.sessions import prepare
from tests.support.storage.contents import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    # Spark 4.3 warns of every pandas from 3.0 on, whatever is used of it.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

BATCHES = 12
KILLED_IN = (2, 5)
RETAIN = {"spark.sql.streaming.minBatchesToRetain": "3"}
"""After the last compaction Spark soon wants to delete versions that are gone already."""

LAYOUT_OF = {
    ("snapshots", "v1"): "rocksdb",
    ("changelogs", "v1"): "rocksdb-changelog",
    ("changelogs", "v2"): "format-v2",
    ("snapshots", "v2"): "format-v2-snapshots",
}
ROCKSDB_CELLS = by_pairs(
    (query, *kept) for query in ("aggregation", "join", "transform-with-state") for kept in LAYOUT_OF
)
CELLS = [("join", "hdfs"), *((query, LAYOUT_OF[files, version]) for query, files, version in ROCKSDB_CELLS)]
"""Each kind of query with each kind of files and each version of their names, and one kept by HDFS."""


@pytest.mark.parametrize(("query", "layout"), CELLS)
def test_a_query_that_is_killed_and_compacted_goes_on_exactly(
    spark: SparkSession, tmp_path: Path, query: str, layout: str
) -> None:
    prepare(spark)
    trial = Trial(spark, QUERIES[query], layout, tmp_path, BATCHES)
    for number, batch in enumerate(KILLED_IN):
        kill_in_batch(trial, batch)
        leave_temporary_files(trial.checkpoint, batch)
        there_and_back_and_there(trial.checkpoint, tmp_path / f"quarantine-{number}")
    stood = committed(trial.checkpoint)
    spoilt = shutil.copytree(trial.checkpoint, tmp_path / "spoilt")
    truth = truth_of(trial, stood)

    trial.conf.update(RETAIN)
    assert trial.judge(trial.checkpoint, stood, truth) == []

    lose_one_needed_file(spoilt)
    assert trial.judge(spoilt, stood, truth), "the oracle does not see a file that is gone"


def there_and_back_and_there(checkpoint: Path, quarantine: Path) -> None:
    """Compact, bring everything back, compact again, and delete what is dead for good."""
    store, place = LocalStore(checkpoint), LocalStore(quarantine)
    request = CompactionRequest(stopped=True, watch=HELD)
    before = contents(store)
    first = compact(store, place, request)
    assert {"temporary", "abandoned-attempt"} <= {reason.value for reason in first.reasons}
    bring_back(store, Quarantine(place), check=lambda: None)
    assert contents(store) == before
    again = compact(store, place, request)
    assert again.files == first.files
    assert purge(Quarantine(place)).files == len(first.files)


def truth_of(trial: Trial, stood: int) -> Rows:
    """What has to come after a batch; of several sources Spark itself keeps no more over any restart."""
    return trial.undisturbed() if trial.query.oracle == "undisturbed" else trial.ordinary_restart(stood)


def lose_one_needed_file(checkpoint: Path) -> None:
    """Delete a file of the minimal closure that Spark cannot make again."""
    closure = CheckpointReader(LocalStore(checkpoint)).closure(kind="minimal")
    state = [file for file in closure.files if file.required and file.role.startswith("state-")]
    chosen = min(state, key=lambda file: (file.role != "state-changelog", file.role != "state-sst"))
    (checkpoint / chosen.path).unlink()
