"""The hook: the one place of the Airflow face that opens repositories and jobs and calls the engine.

Its verbs are in parts. A part is loaded when it is first used, since the DAG processor imports this module.
"""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, ClassVar, Self

from airflow.sdk import BaseHook

from streambank.core.errors import InputError, NotFoundError, StreambankError
from streambank.core.units import say_count
from streambank.declaration.load import load_jobs
from streambank.repository.header import check_new
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank_airflow.connections.settings import EXTRA_FIELDS, Settings
from streambank_airflow.hooks.connection import DEFAULT_CONN_ID, afind_settings
from streambank_airflow.hooks.declared import DeclaredJobs, connected

if TYPE_CHECKING:
    from streambank_airflow.hooks.checkpoints import CheckpointVerbs
    from streambank_airflow.hooks.health import HealthVerbs
    from streambank_airflow.hooks.jobs import JobVerbs
    from streambank_airflow.hooks.recovery import RecoveryVerbs
    from streambank_airflow.hooks.repository import RepositoryVerbs
    from streambank_airflow.hooks.savepoints import SavepointVerbs
    from streambank_airflow.hooks.slas import SlaSubjects
    from streambank_airflow.hooks.state import StateVerbs
    from streambank_airflow.hooks.watchers import Watchers

__all__ = ["DEFAULT_CONN_ID", "StreambankHook"]


class StreambankHook(BaseHook):
    """The engine's verbs, on the jobs and repositories that a connection leads to.

    Attributes:
        declared: Finds declared jobs, and opens repositories.

    Args:
        streambank_conn_id: The connection; the default one need not exist.
        jobs_file: The jobs file; None for the connection's, and failing that the one that the environment
            variable STREAMBANK_JOBS names, or `[streambank] jobs` in Airflow's configuration.
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
        jobs_file: str | PathLike[str] | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__()
        self.streambank_conn_id = streambank_conn_id
        self.declared = DeclaredJobs(streambank_conn_id, jobs_file, settings)

    @classmethod
    async def aopen(cls, streambank_conn_id: str, jobs_file: str | None = None) -> Self:
        """A hook for the triggerer, where a connection must not be asked for synchronously."""
        return cls(streambank_conn_id, jobs_file, await afind_settings(streambank_conn_id))

    @connected
    def get_conn(self) -> Repository:
        """The repository, as the connection names it.

        Raises:
            InputError: It names none (code `no-repository-named`).
            NotFoundError: There is no repository (code `no-repository`).
        """
        location = self.declared.settings.repository
        if location is None:
            raise InputError(
                f"The connection {self.streambank_conn_id} names no repository.",
                code="no-repository-named",
                hint="Fill in its field Repository.",
            )
        return Repository.open(open_store(location))

    def test_connection(self) -> tuple[bool, str]:
        """Whether what the connection names can be used, and what was found: for Airflow's button.

        Where no repository is yet, a file is written and deleted again.
        """
        try:
            settings, said = self.declared.settings, []
            if settings.jobs_file is not None:
                jobs = len(load_jobs(settings.jobs_file).jobs)
                said.append(f"The jobs file declares {say_count(jobs, 'job')}.")
            if settings.repository is not None or not said:
                said.append(self._repository_found())
        except StreambankError as error:
            # Airflow tests a connection under its own name, which means nothing to whoever fills it in.
            message = error.message.replace(f"The connection {self.streambank_conn_id}", "This connection")
            return False, f"{message} {error.hint}".strip()
        return True, " ".join(said)

    @connected
    def _repository_found(self) -> str:
        try:
            return f"The repository {self.get_conn().id} is there."
        except NotFoundError as error:
            if error.code != "no-repository":
                raise
        check_new(open_store(str(self.declared.settings.repository)))
        return "Nothing is there yet, and it can be written to: the first savepoint makes the repository."

    @cached_property
    def jobs(self) -> JobVerbs:
        """The verbs of a job's life: `start`, `stop`, `restart` and more."""
        from streambank_airflow.hooks.jobs import JobVerbs

        return JobVerbs(self.declared)

    @cached_property
    def health(self) -> HealthVerbs:
        """What is done about a job that makes no progress."""
        from streambank_airflow.hooks.health import HealthVerbs

        return HealthVerbs(self.declared)

    @cached_property
    def savepoints(self) -> SavepointVerbs:
        """Savepoints: `take`, `latest`, `verify`."""
        from streambank_airflow.hooks.savepoints import SavepointVerbs

        return SavepointVerbs(self.declared)

    @cached_property
    def recovery(self) -> RecoveryVerbs:
        """Restores and generations: `plan`, `restore` and more."""
        from streambank_airflow.hooks.recovery import RecoveryVerbs

        return RecoveryVerbs(self.declared)

    @cached_property
    def repository(self) -> RepositoryVerbs:
        """A whole repository: `verify`, `replicate`, `expire`, `expire_replicas`, `sweep`."""
        from streambank_airflow.hooks.repository import RepositoryVerbs

        return RepositoryVerbs(self.declared)

    @cached_property
    def state(self) -> StateVerbs:
        """The state in a savepoint: `rewrite`, and what is checked before."""
        from streambank_airflow.hooks.state import StateVerbs

        return StateVerbs(self.declared)

    @cached_property
    def checkpoints(self) -> CheckpointVerbs:
        """Checkpoint directories: `compact`, `undo`, `purge`."""
        from streambank_airflow.hooks.checkpoints import CheckpointVerbs

        return CheckpointVerbs(self.declared)

    @cached_property
    def slas(self) -> SlaSubjects:
        """What can be judged by its SLA: `find`, `find_all`."""
        from streambank_airflow.hooks.slas import SlaSubjects

        return SlaSubjects(self.declared)

    @cached_property
    def watchers(self) -> Watchers:
        """What looks at a job again and again: `job`, `event_time`, `watermark`."""
        from streambank_airflow.hooks.watchers import Watchers

        return Watchers(self.declared)
