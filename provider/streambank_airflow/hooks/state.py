"""The hook's verbs on the state of a job and on its checkpoint directories.

State is written again, an earlier generation counts again, and what Spark never reads goes or comes back. The
engine's modules for that are loaded when they are needed, since the DAG processor imports this one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError, NotFoundError
from streambank.core.names import MAIN
from streambank_airflow.hooks.declared import connected
from streambank_airflow.hooks.jobs import HealthHook

if TYPE_CHECKING:
    from streambank.compaction.compact import CompactionReport
    from streambank.compaction.purge import PurgeReport
    from streambank.compaction.undo import UndoReport
    from streambank.recovery.reinstate import Reinstated
    from streambank_airflow.connections.spark import SparkChoice


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

    @connected
    def undo_compaction(self, ref: str, quarantine: str, *, note: str, by: Mapping[str, str]) -> UndoReport:
        """Bring back what a compaction has moved: `streambank.compaction.job.undo_job`.

        Args:
            ref: The job.
            quarantine: Where the files are.
            note: Why.
            by: Who asks.

        Raises:
            StreambankError: Whatever `undo_job` raises.
        """
        from streambank.compaction.job import undo_job

        job, _ = self.declared(ref)
        return undo_job(job, quarantine, by=by, why=note)

    @connected
    def purge_quarantine(self, ref: str, quarantine: str, *, note: str, by: Mapping[str, str]) -> PurgeReport:
        """Delete for good what a compaction has moved: `streambank.compaction.job.purge_job`.

        Args:
            ref: The job.
            quarantine: Where the files are.
            note: Why.
            by: Who asks.

        Raises:
            StreambankError: Whatever `purge_job` raises.
        """
        from streambank.compaction.job import purge_job

        job, _ = self.declared(ref)
        return purge_job(job, quarantine, by=by, why=note)


LATEST = "latest"
"""How the newest savepoint, good or not, is called."""
_REQUEST = "streambank_spark.rewrite.request"


class StateHook(CompactionHook):
    """What is done with the state of a job."""

    def check_order(self, order: Mapping[str, Any]) -> None:
        """Make sure that an order on a savepoint's state can be meant, before anything is stopped for it.

        Raises:
            InputError: It cannot (code `usage`).
        """
        importlib.import_module(_REQUEST).RewriteRequest.from_dict(order)

    @connected
    def foresee(self, ref: str, order: Mapping[str, Any], *, elsewhere: bool) -> None:
        """Refuse an order that could not be carried out, before the job is stopped for it.

        Args:
            ref: `job` or `job/query`.
            order: What is asked, as JSON.
            elsewhere: The Spark that does it has Python packages of its own.

        Raises:
            StreambankError: As `streambank.recovery.foresee.foresee`.
        """
        from streambank.recovery.foresee import foresee

        job, query = self.declared(ref)
        foresee(job, query, order, elsewhere=elsewhere)

    @connected
    def rewrite_state(
        self,
        ref: str,
        savepoint: str,
        order: Mapping[str, Any],
        *,
        spark: SparkChoice,
        unmoved: bool,
        by: Mapping[str, str],
    ) -> dict[str, Any]:
        """Have another savepoint made of one, by a Spark of its own.

        Args:
            ref: `job` or `job/query`; of several queries one has to be named.
            savepoint: Its id, the beginning of one, or `latest`.
            order: What is asked, as JSON (streambank_spark/rewrite/request.py).
            spark: Which Spark, beside what is declared.
            unmoved: Refuse where the query has gone on since, or has begun a batch.
            by: Who asks.

        Returns:
            What `streambank state compact --json` prints, with `generation`: the one that counts, by number.

        Raises:
            InputError: The order cannot be meant, or the query is missing (code `which-query`).
            RefusedError: The query has gone on (`query-went-on`, `batch-begun`), or the state cannot be
                rewritten.
            StreambankError: Whatever the order raises.
        """
        from streambank.recovery.sinks import check_stands_at

        self.check_order(order)
        job, query = self.declared(ref)
        if query is None and MAIN not in job.queries:
            raise InputError(
                f"Job {job.name} has several queries; each has state of its own.",
                code="which-query",
                hint=f"Name one: {', '.join(f'{job.name}/{name}' for name in job.queries)}.",
            )
        repository = self.repository(ref)
        name, found = repository.find(self.newest(ref) if savepoint == LATEST else savepoint, ref)
        current = job.records().generation(query)
        if unmoved and current is not None:
            check_stands_at(name, current.location, repository.load(name, found).batch)
        plan = {
            "repository": repository.store.uri,
            "job": name,
            "savepoint": found,
            "order": dict(order),
            "work": job.state.work or f"{job.queries[query or MAIN]}.work",
            "by": dict(by),
        }
        report = spark.rewrite(
            plan,
            master=job.state.master or job.master,
            conf={**job.spark, **job.state.spark},
            say=self.log.info,
        )
        return report | {"generation": current.number if current is not None else 1}

    @connected
    def newest(self, ref: str) -> str:
        """The newest savepoint of a job, good or not.

        Raises:
            NotFoundError: There is none (code `no-such-savepoint`).
        """
        listed = [one for one in self.repository(ref).manifests(ref) if one.job == ref]
        if not listed:
            raise NotFoundError(
                f"There is no savepoint of {ref} yet.", code="no-such-savepoint", hint="Take one first."
            )
        return listed[-1].savepoint

    @connected
    def reinstate(
        self, ref: str, savepoint: str, generation: int, *, note: str, by: Mapping[str, str]
    ) -> Reinstated:
        """Let an earlier generation count again: `streambank.recovery.reinstate.reinstate`.

        Args:
            ref: `job` or `job/query`.
            savepoint: A savepoint that was taken in that generation at its last batch.
            generation: Its number.
            note: Why.
            by: Who asks.
        """
        from streambank.recovery.reinstate import reinstate

        job, _ = self.declared(ref)
        return reinstate(
            self.repository(ref),
            ref,
            savepoint,
            generation=generation,
            control=job.records(),
            by=by,
            why=note,
        )

    @connected
    def check_not_gone_on(self, ref: str, savepoint: str) -> None:
        """Make sure that a job has committed no batch since a savepoint.

        Raises:
            RefusedError: It has (code `query-went-on`).
        """
        from streambank.recovery.reinstate import check_not_gone_on

        check_not_gone_on(self.repository(ref), ref, savepoint, self.declared(ref)[0].records())

    @connected
    def has_moved(self, ref: str, generation: int) -> bool:
        """Whether another generation than this one counts, in another directory."""
        job, query = self.declared(ref)
        current = job.records().generation(query)
        return current is not None and generation not in (current.number, current.again)

    @connected
    def has_stopped(self, ref: str, run_id: str) -> bool:
        """Whether a task of a DAG run has ever said that a job is to be stopped."""
        said = self.declared(ref)[0].records().last_desired(lambda by: by.get("run_id") == run_id)
        return said is not None

    @connected
    def is_left_stopped(self, ref: str, run_id: str) -> bool:
        """Whether a job was never started, or is meant to be stopped and not because this DAG run said so.

        Raises:
            RefusedError: Its records are lost (code `repository-lost`), so that is not known.
        """
        from streambank.driver.prepare import check_declared

        job, records = self.declared(ref)[0], self.declared(ref)[0].records()
        desired = records.desired()
        if desired is None:
            check_declared(job, records)
            return True
        return desired.state == "stopped" and desired.by.get("run_id") != run_id
