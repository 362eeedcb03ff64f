"""The engine as the oracle uses it: take savepoints of a trial, lose its checkpoint, restore them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from streambank.core.choices import SinkChoice
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import open_store
from tests.support.spark.exactly_once_oracle import Rows, Saved, Trial


class Savepoints:
    """A repository on the local disk, and the savepoints of one trial in it."""

    job = "trial"

    def __init__(self, folder: Path, trial: Trial) -> None:
        self.repository = Repository.open(open_store(folder), create=True)
        self.trial = trial

    def take(self, batch: int | None = None) -> Saved:
        """Take a savepoint of the newest committed batch, or of `batch`."""
        sinks = [FileSinkCapture(str(self.trial.sink))] if self.trial.query.file_sink else []
        checkpoint = open_store(self.trial.checkpoint)
        result = take(TakeRequest(checkpoint, self.repository, self.job, batch=batch, sinks=sinks))
        return Saved(result.savepoint, result.batch)

    def lose_the_checkpoint(self) -> None:
        """The disaster: nothing that a restore might lean on is left.

        Spark's maintenance may still write into the directory, so it goes away at once, by its name.
        """
        lost = self.trial.new_folder("lost")
        self.trial.checkpoint.rename(lost)
        shutil.rmtree(lost, ignore_errors=True)

    def restore(self, saved: Saved, *, sink: SinkChoice = "rollback") -> Path:
        """Restore into a directory that is not there yet."""
        into = self.trial.new_folder("restored")
        restore(RestoreRequest(self.repository, saved.ref, job=self.job, into=open_store(into), sink=sink))
        return into

    def findings(self, saved: Saved) -> list[str]:
        """What a full verification says against a savepoint."""
        report = verify(self.repository, self.job, saved.ref, level="full")
        return [str(finding) for finding in report.findings]


def spread(saved: Sequence[Saved], count: int, *, below: int) -> list[Saved]:
    """Some of the savepoints of batches `below` a limit, evenly from the first to the last."""
    early = [each for each in saved if each.batch < below]
    if len(early) <= count:
        return early
    step = (len(early) - 1) / max(count - 1, 1)
    return [early[round(number * step)] for number in range(count)]


def check_savepoints(trial: Trial, savepoints: Savepoints, chosen: Iterable[Saved], truth: Rows) -> None:
    """Each savepoint verifies, restores, goes on to the truth; newest first: a sink is taken back."""
    for saved in sorted(chosen, key=lambda each: each.batch, reverse=True):
        assert savepoints.findings(saved) == []
        expected = trial.ordinary_restart(saved.batch) if trial.query.oracle == "restart" else truth
        wrong = trial.judge(savepoints.restore(saved), saved.batch, expected)
        assert wrong == [], f"batch {saved.batch} of {trial.query.name} on {trial.layout}"
