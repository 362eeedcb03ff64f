"""A savepoint of a recorded checkpoint, of which others are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.rewrite.derive import SourceSavepoint
from streambank_spark.state.staging import Staging, materialized_savepoint
from streambank_spark.state.state import QueryState
from tests.support.checkpoint.recorded import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "job"


def save_jobs(folder: Path, *names: str) -> Path:
    """The repository `savepoints` below the folder, with a savepoint of each recorded checkpoint as a job.

    `rocksdb-window` has one of batch 3, too.
    """
    repository = Repository.open(open_store(folder / "savepoints"), create=True)
    for name in names:
        source = open_store(unpack(f"4.3.0/{name}", folder / name) / "checkpoint")
        for batch in (None, 3) if name == "rocksdb-window" else (None,):
            take(TakeRequest(source, repository, name, batch=batch))
    return folder / "savepoints"


def name_of(saved: Path, job: str, batch: int | None = None) -> str:
    """The name of a job's only savepoint, or of the one of a batch."""
    found = Repository.open(open_store(saved)).manifests(job)
    return [each.savepoint for each in found if batch in (None, each.batch)][-1]


class SavedState:
    """The savepoint and its repository, in a folder.

    Args:
        name: The recorded checkpoint, with the Spark that wrote it if that is not 4.3.0.
    """

    def __init__(self, spark: SparkSession, name: str, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        unpacked = unpack(name if "/" in name else f"4.3.0/{name}", folder)
        self.checkpoint = open_store(unpacked / "checkpoint")
        self.repository = Repository.open(open_store(folder / "repository"), create=True)
        self.savepoint = take(TakeRequest(self.checkpoint, self.repository, JOB)).savepoint
        self.staging = Staging("local[2]", str(folder / "work"), print)

    def source(self, savepoint: str | None = None) -> SourceSavepoint:
        """What a request takes: the savepoint, or another one."""
        return SourceSavepoint(self.spark, self.repository, JOB, savepoint or self.savepoint, self.staging)

    def manifest(self, savepoint: str | None) -> Manifest:
        assert savepoint is not None
        return self.repository.load(JOB, savepoint)

    @contextmanager
    def state(self, savepoint: str | None) -> Iterator[QueryState]:
        assert savepoint is not None
        with materialized_savepoint(self.repository, JOB, savepoint, self.staging) as laid:
            yield QueryState(self.spark, laid.location)
