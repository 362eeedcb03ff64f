"""The verbs on a job's checkpoint directories: what Spark never reads goes, comes back, or goes for good.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streambank.core.names import ASKER
from streambank.core.units import utc_now
from streambank.core.verb_options import CleanOptions, CompactOptions
from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.verbs import CALLER, Asked, asking, connected

if TYPE_CHECKING:
    from streambank.cleaning.clean import CleanReport
    from streambank.compaction.compact import CompactionReport
    from streambank.compaction.purge import PurgeReport
    from streambank.compaction.undo import UndoReport


@dataclass(kw_only=True)
class AskedCompaction(CompactOptions, Asked):
    """How a compaction of a checkpoint's files is asked for."""


@dataclass(kw_only=True)
class AskedClean(CleanOptions, Asked):
    """How the removal of what work on a job has left is asked for.

    Attributes:
        plan_only: Only say what would be removed.
    """

    plan_only: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointVerbs:
    """What is done with the checkpoint directories of a job: `hook.checkpoints`."""

    declared: DeclaredJobs

    @asking(AskedCompaction, tries=True)
    def compact(self, ref: str, asked: AskedCompaction) -> dict[str, CompactionReport]:
        """Compact the current checkpoint of each query, or of one: `streambank.compaction.job.compact_job`.

        Another try of a task goes on with what the one before has begun.
        """
        from streambank.compaction.job import compact_job

        job, query = self.declared.find(ref)
        by = {name: one for name, one in asked.by.items() if name != ASKER}
        return compact_job(job, asked, query=query, label=_label(asked.by), why=asked.note, by=by)

    @connected
    def undo(
        self, ref: str, quarantine: str, *, note: str = "", by: Mapping[str, str] = CALLER
    ) -> UndoReport:
        """Bring back what a compaction has moved: `streambank.compaction.job.undo_job`."""
        from streambank.compaction.job import undo_job

        job = self.declared.job(ref)
        return undo_job(job, quarantine, by=by, why=note)

    @connected
    def purge(
        self, ref: str, quarantine: str, *, note: str = "", by: Mapping[str, str] = CALLER
    ) -> PurgeReport:
        """Delete for good what a compaction has moved: `streambank.compaction.job.purge_job`."""
        from streambank.compaction.job import purge_job

        job = self.declared.job(ref)
        return purge_job(job, quarantine, by=by, why=note)

    @asking(AskedClean)
    def clean(self, ref: str, asked: AskedClean) -> CleanReport:
        """Remove what work on a job, or on a query, has left: `streambank.cleaning.clean.clean_job`."""
        from streambank.cleaning.clean import clean_job
        from streambank.declaration.maintenance import given_generations

        job, query = self.declared.find(ref)
        policy = given_generations(job.generations, asked.keep, asked.keep_for_s)
        return clean_job(
            job,
            jobs=self.declared.read().jobs,
            query=query,
            policy=policy,
            dry_run=asked.plan_only,
            why=asked.note,
            by=asked.by,
        )


def _label(by: Mapping[str, str]) -> str:
    """What every try of one task of one run has in common, and nothing else; outside of a task a time."""
    if ASKER not in by:
        return utc_now().strftime("%Y%m%d-%H%M%S")
    task = "\n".join(by[ASKER].split(" ")[:-1])
    return f"run-{hashlib.sha256(task.encode()).hexdigest()[:12]}"
