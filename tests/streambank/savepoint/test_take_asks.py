"""A take asks clusters when it has the files: a slow one must not cost it what the query retains."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streambank.checkpoint.sources import SourceState
from streambank.repository.repository import Repository
from streambank.savepoint.sinks import Captured
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.kafka.fake_broker import write_checkpoint

OFFSETS = '{"flights":{"0":100}}'


class Slow:
    """A cluster that answers when the query has gone on, and Spark has deleted the batch that is saved."""

    kind, path, keeps_files = "kafka", "kafka://kafka:9092/delays", False

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.asked = 0

    def capture(self, batch: int) -> Captured:
        self._wait()
        return Captured({"kind": self.kind, "path": self.path, "guarded": False, "batch": batch})

    def describe(self, source: SourceState) -> Mapping[str, Any]:
        self._wait()
        return {"told": "late"}

    def _wait(self) -> None:
        self.asked += 1
        for log in ("offsets", "commits"):
            newest = max(int(path.name) for path in (self.checkpoint / log).iterdir())
            shutil.copy(self.checkpoint / log / str(newest), self.checkpoint / log / str(newest + 1))
            (self.checkpoint / log / str(newest)).unlink()


@pytest.mark.parametrize("which", ["sink", "source"])
def test_a_cluster_that_takes_its_time_costs_no_plan(tmp_path: Path, which: str) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", OFFSETS)
    slow = Slow(checkpoint)
    asked: Any = {"sinks": [slow]} if which == "sink" else {"sources": slow}
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)

    taken = take(TakeRequest(open_store(checkpoint), repository, "flights", **asked))

    assert (taken.batch, taken.replans, slow.asked) == (1, 0, 1)
    manifest = repository.load("flights", taken.savepoint)
    told = manifest.sinks[0]["batch"] == 1 if which == "sink" else manifest.sources[0]["told"] == "late"
    assert told
    assert not (checkpoint / "commits/1").exists(), "it was deleted while the cluster was asked"
