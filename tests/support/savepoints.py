"""The engine as the oracle uses it: take a savepoint of a directory, restore it into another one."""

from __future__ import annotations

from pathlib import Path

from streambank.recovery.restore import restore

from streambank.savepoint.repository import Repository
from streambank.savepoint.take import take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from tests.support.oracle import Saved


class Savepoints:
    """A repository on the local disk, and the savepoints of one job in it."""

    job = "trial"

    def __init__(self, folder: Path) -> None:
        self.repository = Repository.open(open_store(folder), create=True)

    def take(self, checkpoint: Path, *, batch: int | None = None) -> Saved:
        """Take a savepoint of the newest committed batch, or of `batch`."""
        result = take(open_store(checkpoint), self.repository, self.job, batch=batch)
        return Saved(result.savepoint, result.batch)

    def restore(self, saved: Saved, into: Path) -> Path:
        """Restore into a directory that is not there yet."""
        restore(self.repository, saved.ref, job=self.job, into=open_store(into))
        return into

    def findings(self, saved: Saved) -> list[str]:
        """What a full verification says against a savepoint."""
        report = verify(self.repository, self.job, saved.ref, level="full")
        return [str(finding) for finding in report.findings]
