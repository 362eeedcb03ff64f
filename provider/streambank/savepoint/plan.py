"""What a take has to do: the closure of a batch, what of it is there already, and what must be copied."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streambank.checkpoint.closure import Closure
from streambank.repository.entry import FileEntry
from streambank.savepoint.sinks import Captured
from streambank.storage.store import FileInfo, Store
from streambank.work.copy import CHECKPOINT, CopyTask

SINK_LOG_ROLE = "sink-log"
"""Role of a sink's own saved files in the manifest."""

Known = Mapping[tuple[int, str, str], FileEntry]
"""What is in the repository already, by origin, path and identity (`CopyTask.key`)."""


@dataclass(frozen=True, slots=True)
class TakePlan:
    """One attempt at a savepoint.

    Attributes:
        closure: Which files make up the batch.
        captured: What the sinks add.
        stores: The store of each origin: the checkpoint, and the sinks that have files.
        tasks: Every file of the savepoint, those that Spark deletes first in front.
        copy: Those of `tasks` whose bytes have to be read.
    """

    closure: Closure
    captured: tuple[Captured, ...]
    stores: Mapping[int, Store]
    tasks: tuple[CopyTask, ...]
    copy: tuple[CopyTask, ...]

    @property
    def copy_bytes(self) -> int:
        """How much has to be read."""
        return sum(task.size_bytes for task in self.copy)


def make_plan(
    checkpoint: Store,
    listing: Mapping[str, FileInfo],
    closure: Closure,
    captured: Sequence[Captured],
    known: Known,
) -> TakePlan:
    """Put together what has to be saved, and leave out what needs no reading.

    Args:
        checkpoint: Where the closure's files are.
        listing: The listing that the closure was planned from.
        closure: The files of the batch.
        captured: What the sinks add, in the order of the manifest.
        known: Files whose bytes are in the repository.
    """
    stores: dict[int, Store] = {CHECKPOINT: checkpoint}
    # Sinks first: their logs are few and small, and the newest of them is what the sink is judged by.
    tasks = []
    for number, sink in enumerate(captured):
        if sink.store is not None:
            stores[number] = sink.store
            tasks += [CopyTask.of(info, SINK_LOG_ROLE, number) for info in sink.files]
    by_urgency = sorted(closure.files, key=lambda file: (file.urgency, file.path))
    tasks += [CopyTask.of(listing[file.path], file.role) for file in by_urgency]
    copy = tuple(task for task in tasks if task.key not in known)
    return TakePlan(closure, tuple(captured), stores, tuple(tasks), copy)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much time a query leaves to a take before it deletes what the take needs.

    Attributes:
        retained_batches: Batches whose logs the checkpoint has.
        batch_period_s: Seconds between two commits, as far as their times tell; None for fewer than two.
    """

    retained_batches: int
    batch_period_s: float | None

    @classmethod
    def of(cls, listing: Mapping[str, FileInfo]) -> Budget:
        """The budget that the commit log of a listing shows."""
        commits = sorted(
            (int(name), listing[path].mtime_ns)
            for path in listing
            if path.startswith("commits/") and (name := path.removeprefix("commits/")).isdigit()
        )
        period_s = None
        if len(commits) > 1 and commits[0][1] and commits[-1][1] > commits[0][1]:
            steps = commits[-1][0] - commits[0][0]
            period_s = (commits[-1][1] - commits[0][1]) / 1e9 / steps
        return cls(len(commits), period_s)

    def sentence(self, needed_s: float) -> str:
        """The budget against what an attempt needed, and the setting that would make it fit."""
        if self.batch_period_s is None:
            return f"{self.retained_batches} batches are retained, and one attempt took {needed_s:.1f} s."
        had_s = self.retained_batches * self.batch_period_s
        fits = max(self.retained_batches + 1, math.ceil(2 * needed_s / self.batch_period_s) + 1)
        return (
            f"{self.retained_batches} retained batches of {self.batch_period_s:.2f} s leave {had_s:.1f} s, "
            f"and one attempt took {needed_s:.1f} s; spark.sql.streaming.minBatchesToRetain={fits} would fit."
        )
