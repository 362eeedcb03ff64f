"""The verbs on savepoints, of declared jobs and of any other query: take one, find the newest, verify one.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streambank.core.choices import VERIFY_LEVELS, DeepLevel
from streambank.core.errors import InputError, check_choice
from streambank.core.finding import Finding
from streambank.core.names import ASKER
from streambank.core.options import values_of
from streambank.core.verb_options import ImportOptions, SavepointOptions, TakeOptions
from streambank.storage import open_store
from streambank.work.executor import Executor, Pace
from streambank_airflow.connections.spark import SparkChoice
from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.state import submit
from streambank_airflow.hooks.verbs import CALLER, Asked, asking, connected

if TYPE_CHECKING:
    from streambank.repository.catalog import SavepointSummary
    from streambank.repository.manifest import Manifest
    from streambank.retention.undelete import UndeleteResult
    from streambank.savepoint.import_copy import Imported
    from streambank.savepoint.take import TakeResult
    from streambank.savepoint.verify import VerifyReport

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class AskedTake(TakeOptions, Asked):
    """How a take is asked for; `file_sinks` and `kafka` are those of a query that is not declared.

    Attributes:
        checkpoint: The directory of a query that is not declared; None for a declared one.
        executor: Who copies; threads of this process where nobody is named.
    """

    checkpoint: str | None = None
    executor: Executor | None = None


@dataclass(kw_only=True)
class AskedImport(ImportOptions, Asked):
    """How an import is asked for.

    Attributes:
        copy: The copy: a directory, or its URI.
    """

    copy: str


@dataclass(frozen=True, slots=True)
class SavepointVerbs:
    """What is done with one savepoint: `hook.savepoints`.

    The first argument of a verb is `job` or `job/query`.
    """

    declared: DeclaredJobs

    @asking(AskedTake, tries=True)
    def take(self, ref: str, asked: AskedTake) -> TakeResult:
        """Take a savepoint of one query; those of several queries of a job are not mutually consistent.

        Raises:
            InputError: A job of several queries was named without the query (code `which-query`).
        """
        asked.name = (asked.name or "").strip()
        # Only a name is kept for another try.
        by = {name: one for name, one in asked.by.items() if asked.name or name != ASKER}
        return self._take_undeclared(ref, asked, by) if asked.checkpoint else self._take(ref, asked, by)

    def _take(self, ref: str, asked: AskedTake, by: Mapping[str, str]) -> TakeResult:
        from streambank.job.savepoint import savepoint_job

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
            closure=asked.closure,
            note=asked.note,
            pace=Pace(executor=asked.executor),
            **values_of(asked, SavepointOptions),
        )
        (result,) = taken.savepoints.values()
        return result

    def _take_undeclared(self, ref: str, asked: AskedTake, by: Mapping[str, str]) -> TakeResult:
        from streambank.job.savepoint import with_found_sinks
        from streambank.kafka.recording import SourceRecorder
        from streambank.kafka.settings import Brokers, KafkaConnection
        from streambank.savepoint.take import TakeRequest, take
        from streambank.sinks.file.capture import FileSinkCapture

        checkpoint = str(asked.checkpoint)
        request = TakeRequest(
            open_store(checkpoint),
            self.declared.open_repository(ref, create=True, checkpoint=checkpoint),
            ref,
            batch=asked.batch,
            closure=asked.closure or "safe",
            sinks=[FileSinkCapture(sink) for sink in asked.file_sinks],
            sources=SourceRecorder(Brokers(KafkaConnection(asked.kafka))),
            note=asked.note,
            name=asked.name or "",
            pin=asked.pin,
            new_query=asked.new_query,
            taken_by=by,
        )
        found = with_found_sinks(request, self.declared.owners(checkpoint))
        return take(found, pace=Pace(executor=asked.executor))

    @asking(AskedImport)
    def import_copy(self, ref: str, asked: AskedImport) -> Imported:
        """Make a copy of a checkpoint a savepoint, once it is verified; see `streambank.job.import_copy`."""
        from streambank.job.import_copy import ImportRequest, import_of_job

        return import_of_job(
            ImportRequest(
                asked.copy,
                self.declared.repository_store(ref),
                ref,
                job=self.declared.get(ref),
                note=asked.note,
                by=asked.by,
                **values_of(asked, ImportOptions),
            )
        )

    @connected
    def list(self, ref: str) -> Sequence[SavepointSummary]:
        """The savepoints of a job (which means its queries too) or of a query, oldest first within each."""
        return tuple(self.declared.open_repository(ref).manifests(ref))

    @connected
    def show(self, ref: str, savepoint: str = "latest") -> Manifest:
        """What a savepoint holds, who took it and why.

        Args:
            savepoint: A reference: an id or the beginning of one, a name, `latest`, `batch:41`, `03:00`, ...
        """
        repository = self.declared.open_repository(ref)
        return repository.load(*repository.find(savepoint, ref))

    @connected
    def latest(self, ref: str) -> str:
        """The id of the newest savepoint of a job, good or not.

        Raises:
            NotFoundError: There is none (code `no-such-savepoint`).
        """
        return self.declared.open_repository(ref).find("latest", ref)[1]

    @connected
    def latest_good(self, ref: str) -> str:
        """The id of the newest savepoint that verifies, to which a restore goes. Reads all of its bytes.

        Raises:
            NotFoundError: There is none (codes `no-such-savepoint`, `no-good-savepoint`).
            InputError: A job of several queries was named without the query (code `which-query`).
        """
        from streambank.recovery.choosing.resolve import ANY_LINE, choose
        from streambank.sites.forks import QueryLines

        lines, place, job = ANY_LINE, ref, self.declared.get(ref)
        if job is not None:
            query = job.only_query(self.declared.find(ref)[1])
            lines, place = QueryLines.of(job.records(), query), job.savepoint_name(query)
        repository = self.declared.open_repository(ref)
        chosen = choose(repository, "latest-good", place, record=False, lines=lines)
        return chosen.manifest.savepoint

    @connected
    def verify(
        self,
        ref: str,
        savepoint: str = "latest",
        *,
        level: DeepLevel = "quick",
        by: Mapping[str, str] = CALLER,
        executor: Executor | None = None,
        spark: SparkChoice | None = None,
    ) -> VerifyReport:
        """Verify a savepoint, and leave the result beside it.

        Args:
            savepoint: A reference: an id or the beginning of one, a name, `latest`, `batch:41`, `03:00`, ...
            level: `quick`, `full` or `deep`.
            executor: Who hashes; threads of this process where nobody is named.
            spark: Which Spark opens the state for a deep one, beside what is declared.

        Raises:
            InputError: There is no such level (code `bad-choice`).
            NotFoundError: There is no such savepoint.
            StorageError: Spark fails (code `spark-failed`).
        """
        from streambank.savepoint.verify import verify

        repository = self.declared.open_repository(ref)
        job, found = repository.find(savepoint, ref)
        known = check_choice(level, "level", (*VERIFY_LEVELS, "deep"))

        def look(name: str, savepoint: str) -> Iterable[Finding]:
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
        return report

    @connected
    def pin(
        self,
        ref: str,
        savepoint: str,
        *,
        pinned: bool = True,
        note: str = "",
        by: Mapping[str, str] = CALLER,
    ) -> str:
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
    def undelete(self, ref: str, savepoint: str, *, by: Mapping[str, str] = CALLER) -> UndeleteResult:
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
