"""Where a job is declared and its savepoints are: the connection, the jobs file, the repository."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from streambank.core.errors import InputError, StreambankError
from streambank.core.names import QueryRef
from streambank.declaration.declaration import Declarations, Job, load_jobs
from streambank.driver.prepare import using_connections
from streambank.repository.header import check_apart
from streambank.repository.repository import Repository
from streambank.storage import open_store, using_s3
from streambank_airflow.connections.settings import EXTRA_FIELDS, Settings, aws_conn_id_of
from streambank_airflow.watch.job import JobWatcher

if TYPE_CHECKING:
    from streambank.declaration.launch import LaunchPolicy
    from streambank_airflow.watch.event_time import EventTimeWatcher, WatermarkWatcher
    from streambank_airflow.watch.sla import SlaSubject

DEFAULT_CONN_ID = "streambank_default"
JOBS_VARIABLE = "STREAMBANK_JOBS"

H = TypeVar("H", bound="DeclarationHook")
P = ParamSpec("P")
R = TypeVar("R")


def connected(verb: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """Let a verb of a hook reach S3 as its connection says, and clusters as those say that jobs name.

    That is for the stores that it opens, and the drivers that it starts or looks for, nothing else.
    """

    @wraps(verb)
    def with_access(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with using_s3(self.settings.s3), using_connections(self.launch_policy):
            return verb(self, *args, **kwargs)

    return with_access


class DeclarationHook(BaseHook):
    """Where jobs are declared and savepoints kept.

    What a jobs file declares comes first; the connection says what is missing: which jobs file, and for
    queries that no file declares which repository. It may say how S3 is reached, too. The default connection
    need not exist.

    Args:
        streambank_conn_id: The connection.
        jobs_file: The jobs file; None for the connection's, and failing that the one that the environment
            variable STREAMBANK_JOBS names.
        settings: What the connection says, where the caller has read it already.
    """

    conn_name_attr = "streambank_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "streambank"
    hook_name = "Streambank"
    extra_fields: ClassVar[tuple[str, ...]] = EXTRA_FIELDS

    def __init__(
        self,
        streambank_conn_id: str = DEFAULT_CONN_ID,
        jobs_file: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__()
        self.streambank_conn_id = streambank_conn_id
        self._jobs_file = jobs_file
        if settings is not None:
            self.settings = settings

    @classmethod
    async def aopen(cls, streambank_conn_id: str, jobs_file: str | None = None) -> Self:
        """A hook for the triggerer, where a connection must not be asked for synchronously."""
        connection = await cls._afind(streambank_conn_id)
        if connection is None:
            return cls(streambank_conn_id, jobs_file, _without_connection(streambank_conn_id))
        extra = await connection.aextra_dejson()
        aws_conn_id = aws_conn_id_of(streambank_conn_id, extra)
        if aws_conn_id is None:
            return cls(streambank_conn_id, jobs_file, Settings.of(streambank_conn_id, connection, extra))
        aws = _existing(aws_conn_id, await cls._afind(aws_conn_id))
        settings = Settings.of(streambank_conn_id, connection, extra, aws, await aws.aextra_dejson())
        return cls(streambank_conn_id, jobs_file, settings)

    @cached_property
    def settings(self) -> Settings:
        """What the connection says.

        Raises:
            InputError: It does not exist and is not the default one (code `no-connection`), or says something
                wrong.
        """
        connection = self._find(self.streambank_conn_id)
        if connection is None:
            return _without_connection(self.streambank_conn_id)
        extra = connection.extra_dejson
        aws_conn_id = aws_conn_id_of(self.streambank_conn_id, extra)
        if aws_conn_id is None:
            return Settings.of(self.streambank_conn_id, connection, extra)
        aws = _existing(aws_conn_id, self._find(aws_conn_id))
        return Settings.of(self.streambank_conn_id, connection, extra, aws, aws.extra_dejson)

    def launch_policy(self, job: Job) -> LaunchPolicy:
        """Where a job runs whose declaration names a connection of the Spark provider.

        Raises:
            InputError: There is no such connection (code `no-connection`), or it says something wrong
                (`bad-connection`).
        """
        from streambank_airflow.connections.spark import with_connection

        conn_id = job.launch.connection or ""
        connection = self._find(conn_id)
        if connection is None:
            raise InputError(
                f"There is no connection {conn_id}, which job {job.name} names.",
                code="no-connection",
                hint="Create it with the type Spark, or name another one in the job's table launch.",
            )
        return with_connection(job, connection)

    @classmethod
    def _find(cls, conn_id: str) -> Any | None:
        try:
            return cls.get_connection(conn_id)
        except AirflowNotFoundException:
            return None

    @classmethod
    async def _afind(cls, conn_id: str) -> Any | None:
        try:
            return await cls.aget_connection(conn_id)
        except AirflowNotFoundException:
            return None

    @property
    def jobs_file(self) -> str:
        """The jobs file that counts.

        Raises:
            InputError: Nobody names one (code `no-declaration`).
        """
        found = self._jobs_file or self.settings.jobs_file or os.environ.get(JOBS_VARIABLE)
        if not found:
            raise InputError(
                "No jobs file is named.",
                code="no-declaration",
                hint=f"Give jobs_file=, name it in the connection {self.streambank_conn_id}, "
                f"or set {JOBS_VARIABLE}.",
            )
        return found

    @connected
    def get_conn(self) -> Repository:
        """The repository, as the connection names it.

        Raises:
            InputError: It names none (code `no-repository-named`).
            NotFoundError: There is no repository (code `no-repository`).
        """
        if self.settings.repository is None:
            raise InputError(
                f"The connection {self.streambank_conn_id} names no repository.",
                code="no-repository-named",
                hint="Fill in its field Repository.",
            )
        return Repository.open(open_store(self.settings.repository))

    def test_connection(self) -> tuple[bool, str]:
        """Whether what the connection names can be opened, and what was found: for Airflow's button."""
        try:
            said = []
            if self.settings.jobs_file is not None:
                said.append(f"{len(load_jobs(self.settings.jobs_file).jobs)} jobs are declared")
            if self.settings.repository is not None or not said:
                said.append(f"the repository {self.get_conn().id} is there")
        except StreambankError as error:
            return False, f"{error.message} {error.hint}".strip()
        return True, " and ".join(said).capitalize() + "."

    def declared(self, ref: str) -> tuple[Job, str | None]:
        """A declared job, and which query of it is meant (None for all, or the only one).

        Args:
            ref: `job` or `job/query`.

        Raises:
            InputError: The name or the jobs file is wrong (code `no-such-query` for an unknown query).
            NotFoundError: No such job is declared (code `no-such-job`).
        """
        return find_declared(load_jobs(self.jobs_file), ref)

    @connected
    def sla(self, ref: str, checkpoint: str | None = None) -> SlaSubject:
        """What can be judged by its SLA.

        Args:
            ref: `job` or `job/query`; just a name where `checkpoint` is given.
            checkpoint: The directory of a query that is not declared.

        Raises:
            InputError: See `declared`; or the name is not allowed (code `bad-name`).
            NotFoundError: See `declared`.
        """
        from streambank_airflow.watch.sla import SlaSubject

        if checkpoint is not None:
            return SlaSubject.of_checkpoint(ref, checkpoint, self.settings)
        return SlaSubject(ref, *self.declared(ref), access=self.settings.s3)

    @connected
    def slas(self, refs: Sequence[str] | None) -> dict[str, SlaSubject | StreambankError]:
        """The same of several jobs, or (for None) of all that are declared; the file is read once.

        Returns:
            By reference, as given; for one that is not declared, what is wrong with it.

        Raises:
            InputError: The jobs file is wrong.
        """
        from streambank_airflow.watch.sla import SlaSubject

        declared, access = load_jobs(self.jobs_file), self.settings.s3
        found: dict[str, SlaSubject | StreambankError] = {}
        for ref in declared.jobs if refs is None else refs:
            try:
                found[ref] = SlaSubject(ref, *find_declared(declared, ref), access=access)
            except StreambankError as error:
                found[ref] = error
        return found

    @connected
    def diagnose(self, ref: str) -> list[dict[str, Any]]:
        """What will hurt a job: `streambank.doctor.diagnose.diagnose_job`, and what is installed here.

        Returns:
            Findings as JSON, each with `query` (None for one about this machine's installation).
        """
        from streambank.doctor.checks.installation import check_job_installation
        from streambank.doctor.diagnose import diagnose_job

        job, query = self.declared(ref)
        here = [{**finding.to_dict(), "query": None} for finding in check_job_installation(job.python)]
        return here + [
            {**finding.to_dict(), "query": one.query}
            for one in diagnose_job(job, query)
            for finding in one.findings
        ]

    @connected
    def watcher(self, ref: str) -> JobWatcher:
        """What looks at a job again and again."""
        return JobWatcher(*self.declared(ref), access=self.settings.s3)

    @connected
    def event_time(self, ref: str, checkpoint: str | None = None) -> EventTimeWatcher:
        """What looks again and again at how far a job is in event time.

        Args:
            ref: `job` or `job/query`; just a name where `checkpoint` is given.
            checkpoint: The directory of a query that is not declared.
        """
        from streambank_airflow.watch.event_time import EventTimeWatcher

        if checkpoint is not None:
            return EventTimeWatcher.of_checkpoint(checkpoint, self.settings.s3)
        return EventTimeWatcher.of_job(self.watcher(ref))

    @connected
    def watermark_watcher(self, ref: str, checkpoint: str | None = None) -> WatermarkWatcher:
        """What looks at a job's state, too; see `event_time`."""
        from streambank_airflow.watch.event_time import EventTimeWatcher, WatermarkWatcher

        if checkpoint is not None:
            return WatermarkWatcher(ref, self.event_time(ref, checkpoint))
        watcher = self.watcher(ref)
        return WatermarkWatcher(watcher.job.name, EventTimeWatcher.of_job(watcher), watcher)

    @connected
    def repository(self, ref: str, *, create: bool = False, checkpoint: str | None = None) -> Repository:
        """The repository of a job: as its declaration says, else as the connection says.

        Args:
            ref: `job` or `job/query`.
            create: Make it where there is none.
            checkpoint: What is to be saved there, for a query that is not declared.

        Raises:
            InputError: Nobody names one (code `no-repository-named`), or it lies in the checkpoint
                (`inside-checkpoint`).
            NotFoundError: There is no repository (code `no-repository`).
        """
        job = self._if_declared(ref)
        location = job.repository if job is not None else self.settings.repository
        if location is None:
            raise InputError(
                f"No repository is given for the savepoints of {ref}.",
                code="no-repository-named",
                hint="Declare the job, or fill in the field Repository of the connection "
                f"{self.streambank_conn_id}.",
            )
        store = open_store(location)
        if checkpoint is not None:
            check_apart(store, checkpoint)
        return Repository.open(store, create=create)

    def _if_declared(self, ref: str) -> Job | None:
        if not (self._jobs_file or self.settings.jobs_file or os.environ.get(JOBS_VARIABLE)):
            return None
        return load_jobs(self.jobs_file).jobs.get(QueryRef.parse(ref).job)


def find_declared(declared: Declarations, ref: str) -> tuple[Job, str | None]:
    """See `DeclarationHook.declared`."""
    asked = QueryRef.parse(ref)
    job = declared.job(asked.job)
    job.queries_named(asked.query)
    return job, asked.query


def _without_connection(conn_id: str) -> Settings:
    if conn_id != DEFAULT_CONN_ID:
        raise InputError(
            f"There is no connection {conn_id}.",
            code="no-connection",
            hint="Create it with the type Streambank, or leave the default.",
        )
    return Settings()


def _existing(conn_id: str, connection: Any | None) -> Any:
    if connection is None:
        raise InputError(
            f"There is no connection {conn_id}.",
            code="no-connection",
            hint="Create it with the type Amazon Web Services (aws), or name another one as AWS connection.",
        )
    return connection
