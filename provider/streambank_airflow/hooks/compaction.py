"""The hook's verb on the checkpoint directories of a job: move away what Spark will never read again.

The engine's modules for it are loaded when they are needed, since the DAG processor imports this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streambank_airflow.hooks.base import connected
from streambank_airflow.hooks.health import HealthHook

if TYPE_CHECKING:
    from streambank.compaction.report import CompactionReport


class CompactionHook(HealthHook):
    """What is done with the checkpoint directories of a job."""

    @connected
    def compact_checkpoint(
        self,
        ref: str,
        *,
        label: str,
        stopped: bool,
        keep_batches: int,
        older_than_s: float,
        dry_run: bool,
        note: str,
        by: Mapping[str, str],
    ) -> dict[str, CompactionReport]:
        """Compact the current checkpoint of each query: `streambank.compaction.job.compact_job`.

        Args:
            ref: `job`, which means all its queries; or `job/query`.
            label: What tells this compaction from others: a retry with the same one goes on with it.
            stopped: Refuse to work beside a driver.
            keep_batches: How many of the newest committed batches are kept, where no driver lives.
            older_than_s: How old unfinished writes have to be, beside a driver.
            dry_run: Only say what would happen.
            note: Why.
            by: Who asks.

        Raises:
            StreambankError: Whatever `compact_job` raises.
        """
        from streambank.compaction.job import compact_job

        job, query = self.declared(ref)
        return compact_job(
            job,
            query=query,
            label=label,
            stopped=stopped,
            keep_batches=keep_batches,
            older_than_s=older_than_s,
            dry_run=dry_run,
            why=note,
            by=by,
        )
