"""The verbs on a job's checkpoint directories: what Spark never reads goes, comes back, or goes for good.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streambank_airflow.hooks.declared import DeclaredJobs, connected

if TYPE_CHECKING:
    from streambank.cleaning.clean import CleanReport
    from streambank.compaction.compact import CompactionReport
    from streambank.compaction.purge import PurgeReport
    from streambank.compaction.undo import UndoReport
    from streambank.core.verb_options import CleanOptions, CompactOptions


@dataclass(frozen=True, slots=True)
class CheckpointVerbs:
    """What is done with the checkpoint directories of a job: `hook.checkpoints`."""

    declared: DeclaredJobs

    @connected
    def compact(
        self, ref: str, options: CompactOptions, *, label: str, note: str, by: Mapping[str, str]
    ) -> dict[str, CompactionReport]:
        """Compact the current checkpoint of each query, or of one: `streambank.compaction.job.compact_job`.

        Args:
            label: What tells this compaction from others: a retry with the same one goes on with it.
        """
        from streambank.compaction.job import compact_job

        job, query = self.declared.find(ref)
        return compact_job(job, options, query=query, label=label, why=note, by=by)

    @connected
    def undo(self, ref: str, quarantine: str, *, note: str, by: Mapping[str, str]) -> UndoReport:
        """Bring back what a compaction has moved: `streambank.compaction.job.undo_job`."""
        from streambank.compaction.job import undo_job

        job = self.declared.job(ref)
        return undo_job(job, quarantine, by=by, why=note)

    @connected
    def purge(self, ref: str, quarantine: str, *, note: str, by: Mapping[str, str]) -> PurgeReport:
        """Delete for good what a compaction has moved: `streambank.compaction.job.purge_job`."""
        from streambank.compaction.job import purge_job

        job = self.declared.job(ref)
        return purge_job(job, quarantine, by=by, why=note)

    @connected
    def clean(
        self, ref: str, options: CleanOptions, *, dry_run: bool, note: str, by: Mapping[str, str]
    ) -> CleanReport:
        """Remove what work on a job, or on a query, has left: `streambank.cleaning.clean.clean_job`."""
        from streambank.cleaning.clean import clean_job
        from streambank.declaration.maintenance import given_generations

        job, query = self.declared.find(ref)
        policy = given_generations(job.generations, options.keep, options.keep_for_s)
        jobs = self.declared.read().jobs
        return clean_job(job, jobs=jobs, query=query, policy=policy, dry_run=dry_run, why=note, by=by)
