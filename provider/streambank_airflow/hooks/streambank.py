"""The hook: the one place of the Airflow face that opens repositories and jobs and calls the engine.

Its verbs are in parts. A part is loaded when it is first used, since the DAG processor imports this module.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.sdk import BaseHook

from streambank.core.errors import InputError, NotFoundError, StreambankError
from streambank.core.units import say_count
from streambank.declaration.load import load_jobs
from streambank.repository.header import check_new
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank_airflow.connections.settings import EXTRA_FIELDS, Settings
from streambank_airflow.hints import hint_of
from streambank_airflow.hooks.connection import DEFAULT_CONN_ID, afind_settings
from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.values import AirflowValues
from streambank_airflow.hooks.verbs import connected

if TYPE_CHECKING:
    from streambank.declaration.streaming_job import StreamingJob
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

    Each part has the verbs of one kind of work: `hook.savepoints.take("orders", pin=True)`. A verb takes the
    options of the command line by their names and with their defaults; `help(hook.savepoints.take)` says what
    each means. An error that nobody catches ends a task with what to do; for good where no retry can help.

    Attributes:
        declared: Finds declared jobs, and opens repositories.

    Args:
        streambank_conn_id: The connection; the default one need not exist.
        jobs_file: The jobs file, a path or a URI; a relative path is looked for beside the DAG file first.
            None for the connection's, and failing that the one that the environment variable STREAMBANK_JOBS
            names, or `[streambank] jobs` in Airflow's configuration.
        settings: What the connection says, where the caller has read it already.
        declaration: A job instead of a jobs file: a `StreamingJob`, or a mapping with its fields.
        loop: See `aopen`.
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
        *,
        declaration: StreamingJob | Mapping[str, Any] | str | None = None,
        loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__()
        self.streambank_conn_id = streambank_conn_id
        self.declared = DeclaredJobs(streambank_conn_id, jobs_file, settings, declaration, loop)

    @classmethod
    async def aopen(
        cls,
        streambank_conn_id: str,
        jobs_file: str | None = None,
        declaration: Mapping[str, Any] | None = None,
    ) -> Self:
        """A hook for the triggerer, where Airflow must not be asked synchronously; to be used in threads."""
        settings = await afind_settings(streambank_conn_id)
        return cls(streambank_conn_id, jobs_file, settings, declaration=declaration, loop=get_running_loop())

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
                with self.declared.access():
                    jobs = len(load_jobs(settings.jobs_file, variables=AirflowValues()).jobs)
                said.append(f"The jobs file declares {say_count(jobs, 'job')}.")
            if settings.repository is not None or not said:
                said.append(self._repository_found())
        except StreambankError as error:
            # Airflow tests a connection under its own name, which means nothing to whoever fills it in.
            message = error.message.replace(f"The connection {self.streambank_conn_id}", "This connection")
            hint = "Correct the field Jobs file." if error.code == "no-declaration" else hint_of(error)
            return False, f"{message} {hint}".strip()
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
        """A job's life: `start`, `stop`, `restart`, `status`, `history`, `diagnose`, `driver_log`.

        `ask_to_stop` and `ask_to_restart` return at once; `stop` and `restart` finish what was asked. What is
        meant to be: `obeys`, `require_stopped`, `is_stopped`, `has_stopped`, `is_left_stopped`.
        """
        from streambank_airflow.hooks.jobs import JobVerbs

        return JobVerbs(self.declared)

    @cached_property
    def health(self) -> HealthVerbs:
        """What is done for a job that does not get on: `is_still_unhealthy`, `heal`, `give_up`.

        Why another start does not help: `hopeless_death`, `died_alike`. Who watches it: `begin_watch`,
        `watch_again`, `watch_standing`, `watch_on`, `end_watch`.
        """
        from streambank_airflow.hooks.health import HealthVerbs

        return HealthVerbs(self.declared)

    @cached_property
    def savepoints(self) -> SavepointVerbs:
        """One savepoint: `take`, `import_copy`, `verify`, `pin`, `undelete`.

        Those that are there: `list`, `show`, `latest`, `latest_good`.
        """
        from streambank_airflow.hooks.savepoints import SavepointVerbs

        return SavepointVerbs(self.declared)

    @cached_property
    def recovery(self) -> RecoveryVerbs:
        """Bringing a job back: `plan`, `restore`, `reinstate`, `drill`, `upgrade`, `refresh`, `failover`.

        What was done, and still holds: `plan_failover`, `restored_by`, `restored_before`, `has_moved`,
        `shown_generations`, `check_generations`, `check_not_gone_on`.
        """
        from streambank_airflow.hooks.recovery import RecoveryVerbs

        return RecoveryVerbs(self.declared)

    @cached_property
    def repository(self) -> RepositoryVerbs:
        """All savepoints of a job: `verify`, `replicate`, `expire`, `expire_replicas`, `repair`, `sweep`.

        `behind` tells what replicas lack, and `settle_tags` removes tags in tables.
        """
        from streambank_airflow.hooks.repository import RepositoryVerbs

        return RepositoryVerbs(self.declared)

    @cached_property
    def state(self) -> StateVerbs:
        """The state in a savepoint: `rewrite`, `rehearse`.

        What is checked before: `check_request`, `foresee`, `foresee_rehearsal`.
        """
        from streambank_airflow.hooks.state import StateVerbs

        return StateVerbs(self.declared)

    @cached_property
    def checkpoints(self) -> CheckpointVerbs:
        """Files in a job's checkpoints that Spark never reads: `compact`, `undo`, `purge`, `clean`."""
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
