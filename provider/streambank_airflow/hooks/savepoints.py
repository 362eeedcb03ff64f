"""The verbs on savepoints, of declared jobs and of any other query: take one, find the newest, verify one.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streambank.core.choices import CLOSURE_KINDS, VERIFY_LEVELS
from streambank.core.errors import InputError, check_choice
from streambank.core.finding import Finding
from streambank.core.verb_options import ImportOptions, TakeOptions
from streambank.storage import open_store
from streambank_airflow.connections.spark import SparkChoice
from streambank_airflow.hooks.declared import DeclaredJobs, connected
from streambank_airflow.hooks.state import submit

if TYPE_CHECKING:
    from streambank.retention.undelete import UndeleteResult
    from streambank.work.executor import Executor

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SavepointVerbs:
    """What is done with one savepoint: `hook.savepoints`.

    The first argument of a verb is `job` or `job/query`.
    """

    declared: DeclaredJobs

    @connected
    def take(
        self,
        ref: str,
        options: TakeOptions,
        *,
        by: Mapping[str, str],
        checkpoint: str | None = None,
        note: str = "",
        executor: Executor | None = None,
    ) -> dict[str, Any]:
        """Take a savepoint of one query.

        Of a job that has several, the result says that their savepoints are not mutually consistent.

        Args:
            options: `file_sinks` and `kafka` are those of a query that is not declared.
            checkpoint: The directory of a query that is not declared; None for a declared one.
            executor: Who copies; threads of this process where nobody is named.

        Raises:
            InputError: A job of several queries was named without the query (code `which-query`).
        """
        from streambank.job.savepoint import savepoint_job, with_found_sinks
        from streambank.kafka.recording import SourceRecorder
        from streambank.kafka.settings import Brokers, KafkaConnection
        from streambank.savepoint.take import TakeRequest, take
        from streambank.sinks.file.capture import FileSinkCapture
        from streambank.work.executor import Pace

        name = (options.name or "").strip()
        if checkpoint is not None:
            asked = TakeRequest(
                open_store(checkpoint),
                self.declared.open_repository(ref, create=True, checkpoint=checkpoint),
                ref,
                batch=options.batch,
                closure=check_choice(options.closure or "safe", "closure", CLOSURE_KINDS),
                sinks=[FileSinkCapture(sink) for sink in options.file_sinks],
                sources=SourceRecorder(Brokers(KafkaConnection(options.kafka))),
                note=note,
                name=name,
                pin=options.pin,
                new_query=options.new_query,
                taken_by=by,
            )
            asked = with_found_sinks(asked, self.declared.owners(checkpoint))
            return take(asked, pace=Pace(executor=executor)).to_dict()
        job, query = self.declared.find(ref)
        if query is None and len(job.queries) > 1:
            raise InputError(
                f"Job {job.name} has several queries; each has its own savepoints.",
                code="which-query",
                hint=f"Name one: {', '.join(f'{job.name}/{name}' for name in job.queries)}.",
            )
        taken = savepoint_job(
            job,
            by=by,
            query=query,
            batch=options.batch,
            closure=options.closure,
            note=note,
            name=name,
            pin=options.pin,
            new_query=options.new_query,
            pace=Pace(executor=executor),
        )
        (result,) = taken.savepoints.values()
        return result.to_dict() | ({"mutually_consistent": False} if len(job.queries) > 1 else {})

    @connected
    def import_copy(
        self, ref: str, copy: str, options: ImportOptions, *, note: str, by: Mapping[str, str]
    ) -> dict[str, Any]:
        """Make a copy of a checkpoint a savepoint, once it is verified; see `streambank.job.import_copy`."""
        from streambank.job.import_copy import ImportRequest, import_of_job

        request = ImportRequest(
            copy,
            self.declared.repository_store(ref),
            ref,
            job=self.declared.get(ref),
            note=note,
            by=by,
            **vars(options),
        )
        return import_of_job(request).to_dict()

    @connected
    def verify(
        self,
        ref: str,
        savepoint: str,
        *,
        level: str,
        by: Mapping[str, str],
        executor: Executor | None = None,
        spark: SparkChoice | None = None,
    ) -> tuple[dict[str, Any], list[str]]:
        """Verify a savepoint, and leave the result beside it.

        Args:
            savepoint: A reference: an id or the beginning of one, a name, `latest`, `batch:41`, `03:00`, ...
            level: `quick`, `full` or `deep`.
            executor: Who hashes; threads of this process where nobody is named.
            spark: Which Spark opens the state for a deep one, beside what is declared.

        Returns:
            The report, flat, with the number of findings; and the findings as sentences.

        Raises:
            InputError: There is no such level (code `bad-choice`).
            NotFoundError: There is no such savepoint.
            StorageError: Spark fails (code `spark-failed`).
        """
        from streambank.savepoint.verify import verify
        from streambank.work.executor import Pace

        repository = self.declared.open_repository(ref)
        job, found = repository.find(savepoint, ref)
        known = check_choice(level, "level", (*VERIFY_LEVELS, "deep"))

        def look(name: str, savepoint: str) -> list[Finding]:
            request, choice = {"operation": "verify"}, spark or SparkChoice()
            done = submit(repository, name, savepoint, request, choice, self.declared.get(ref), {})
            return [Finding(**each) for each in done["findings"]]

        report = verify(
            repository,
            job,
            found,
            "quick" if known == "quick" else "full",
            by=by,
            pace=Pace(executor=executor),
            deeper=look if known == "deep" else None,
        )
        for one in report.findings:
            if one.severity == "info":
                _log.info("%s: %s %s", one.file, one.cause, one.effect)
        wrong = [one for one in report.findings if one.severity != "info"]
        said = [f"{one.file}: {one.cause} {one.effect}" for one in wrong]
        return {**report.to_dict(), "findings": len(said)}, said

    @connected
    def pin(self, ref: str, savepoint: str, *, pinned: bool, note: str, by: Mapping[str, str]) -> str:
        """Exempt a savepoint from retention, or let retention decide about it again.

        Args:
            savepoint: A reference: an id or the beginning of one, a name, `latest`, `batch:41`, `03:00`, ...

        Raises:
            NotFoundError: There is no such savepoint.
        """
        repository = self.declared.open_repository(ref)
        job, found = repository.find(savepoint, ref)
        change = repository.pin if pinned else repository.unpin
        change(job, found, by=by, note=note)
        return found

    @connected
    def undelete(self, ref: str, savepoint: str, *, by: Mapping[str, str]) -> UndeleteResult:
        """Bring an expired savepoint back into the list.

        Args:
            savepoint: Its id, or the beginning of one.
        """
        from streambank.retention.undelete import undelete

        repository = self.declared.open_repository(ref)
        done = undelete(repository, savepoint, ref, by=by)
        job = self.declared.get(ref)
        for report in () if job is None else job.settle_tags(repository, ensure={done.job: done.savepoint}):
            for warning in report.warnings:
                _log.warning("%s", warning)
        return done

    @connected
    def latest(self, ref: str) -> str:
        """The newest savepoint of a job, good or not.

        Raises:
            NotFoundError: There is none (code `no-such-savepoint`).
        """
        return self.declared.open_repository(ref).find("latest", ref)[1]
