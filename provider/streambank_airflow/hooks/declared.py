"""The declared jobs that a connection leads to: what all parts of the hook share."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy as duplicate
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property, partial
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError
from streambank.core.names import SEPARATOR, QueryRef
from streambank.declaration.credentials import refuse_written
from streambank.declaration.declaration import Declarations, Job
from streambank.declaration.given import as_given
from streambank.declaration.load import read_given, read_jobs, using_variables
from streambank.declaration.places.copies import copy_name
from streambank.driver.connections import using_connections
from streambank.repository.repository import Repository
from streambank.storage import Store, open_store, scheme_of, using_s3
from streambank_airflow.configuration import (
    JOBS_VARIABLE,
    SECTION,
    installed_jobs_file,
    use_signing_keys,
)
from streambank_airflow.failures import told_in_task
from streambank_airflow.hooks.connection import find_settings, launch_policy
from streambank_airflow.hooks.values import COUNT_S, AirflowValues

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from streambank.declaration.streaming_job import StreamingJob
    from streambank.storage.s3.credentials import S3Access
    from streambank_airflow.connections.settings import Settings


def as_plain(value: Any) -> Any:
    """The same with each `Path` as its text, also within lists and mappings: Airflow hands on no paths.

    A `StreamingJob` becomes its mapping.
    """
    if isinstance(value, PathLike):
        return fspath(value)
    if is_dataclass(value) and hasattr(value, "to_dict"):
        return value.to_dict()
    if type(value) in (list, tuple):
        return type(value)(as_plain(one) for one in value)
    if type(value) is dict:
        return {as_plain(name): as_plain(one) for name, one in value.items()}
    return value


def located(jobs_file: Any, folder: str | None = None) -> str | None:
    """A jobs file by its absolute path or its URI; a relative path that leads nowhere stays what it is.

    Args:
        folder: The DAG file's folder, searched first; by default that of the running task.
    """
    named = as_plain(jobs_file)
    if not named or not isinstance(named, str) or scheme_of(named) != "file":
        return named or None
    path = Path(named.removeprefix("file://")).expanduser()
    if path.is_absolute():
        return str(path)
    found = (Path(one) / path for one in searched(folder))
    return next((str(one.absolute()) for one in found if one.exists()), named)


def searched(folder: str | None = None) -> list[str]:
    """The directories that are searched for a relative jobs file."""
    return [*(one for one in (folder or folder_of_task(),) if one), str(Path.cwd())]


@contextmanager
def saying_where(jobs_file: str, folder: str | None = None) -> Iterator[None]:
    """Let the error for a relative jobs file that is nowhere name the directories that were searched."""
    try:
        yield
    except InputError as error:
        if error.code != "no-declaration" or Path(jobs_file).is_absolute():
            raise
        where = " and ".join(searched(folder))
        said = f"{error.message} Streambank searched {where}."
        raise InputError(said, code=error.code, hint=error.hint) from error


def folder_of_task() -> str | None:
    """The folder of the DAG file whose task this process runs; None where it runs none."""
    from airflow.sdk import get_current_context

    try:
        return folder_of(get_current_context()["dag"])
    except (RuntimeError, KeyError):
        return None


def folder_of_caller(depth: int) -> str | None:
    """The folder of the DAG file that calls a function of ours, `depth` calls above."""
    file = Path(sys._getframe(depth + 1).f_code.co_filename)
    return str(file.parent) if file.is_absolute() else None


def folder_of(dag: Any) -> str | None:
    """The folder of a DAG's file, where it is known."""
    file = getattr(dag, "fileloc", None)
    return str(Path(file).parent) if file else None


def refuse_both(other: object, declaration: object, names: str = "jobs_file and declaration") -> None:
    """Make sure that one of the two declares the job.

    Args:
        names: What the two are called.

    Raises:
        InputError: Both are given (code `bad-option`).
    """
    if other and declaration is not None:
        raise InputError(
            f"Both {names} are given, and each of them declares the job.",
            code="bad-option",
            hint="Leave one of them out.",
        )


def given_for(job: object, declaration: Any, folder: str | None = None) -> dict[str, Any] | None:
    """A declaration as plain data, with the name of its job and the folder of its code; None for none.

    Args:
        job: What the task names, for a declaration without a name: the job, also with a query, site or copy.
        folder: That of the DAG file; that of the task that runs when left out.

    Raises:
        InputError: It is none, or holds a secret (code `bad-declaration`).
    """
    if declaration is None:
        return None
    given = as_given(declaration)
    if "name" not in given and isinstance(job, str) and job:
        given["name"] = job.partition("/")[0].partition(SEPARATOR)[0]
    if not {"folder", "dag_folder"} & given.keys() and (beside := folder or folder_of_task()) is not None:
        given["dag_folder"] = beside
    refuse_written(given)  # whoever reads a DAG stores it
    return given


class DeclaredJobs:
    """Where jobs are declared and savepoints kept.

    What a jobs file declares comes first; the connection says what is missing: which jobs file, and for
    queries that no file declares which repository. It may say how S3 is reached, too. The default connection
    need not exist.

    Args:
        jobs_file: The jobs file, a path or a URI; a relative path is looked for beside the DAG file, then in
            the working directory. None for the connection's, and failing that the one that the environment
            variable STREAMBANK_JOBS names, or `[streambank] jobs` in Airflow's configuration.
        settings: What the connection says, where the caller has read it already.
        declaration: A job instead of a jobs file: a `StreamingJob`, or a mapping with its fields.
        loop: The triggerer's, in which Airflow is asked for values that a declaration names.

    Raises:
        InputError: Both a jobs file and a declaration are given (code `bad-option`), or the declaration is
            none (`bad-declaration`).
    """

    def __init__(
        self,
        streambank_conn_id: str,
        jobs_file: str | PathLike[str] | None,
        settings: Settings | None,
        declaration: StreamingJob | Mapping[str, Any] | str | None = None,
        loop: AbstractEventLoop | None = None,
    ) -> None:
        use_signing_keys()
        refuse_both(jobs_file, declaration)
        self.streambank_conn_id = streambank_conn_id
        self._jobs_file = located(jobs_file)
        self._given = given_for(None, declaration)
        self._loop = loop
        self._read: Declarations | None = None
        self._until = math.inf
        if settings is not None:
            self.settings = settings

    @cached_property
    def settings(self) -> Settings:
        """What the connection says (`find_settings`)."""
        return find_settings(self.streambank_conn_id)

    @contextmanager
    def access(self) -> Iterator[None]:
        """Reach S3 as the connection says, and clusters as those say that jobs name, for a `with` block.

        That is for the stores that it opens, and the drivers that it starts or looks for, nothing else. A
        jobs file that the engine reads in it, to see who reads an output, has the values of Airflow's, too.
        """
        values = partial(AirflowValues, self._loop)
        with using_s3(self.settings.s3), using_connections(launch_policy), using_variables(values):
            yield

    @property
    def jobs_file(self) -> str:
        """The jobs file that counts.

        Raises:
            InputError: Nobody names one (code `no-declaration`).
        """
        found = self._named_file()
        if not found:
            raise InputError(
                "No jobs file is named.",
                code="no-declaration",
                hint=f"Give jobs_file= or declaration=, name it in the connection {self.streambank_conn_id}, "
                f"or set {JOBS_VARIABLE}, or [{SECTION}] jobs in Airflow's configuration.",
            )
        return found

    def load(self) -> Declarations:
        """All that the jobs file declares, without a mistake."""
        return self.read().whole()

    @told_in_task()
    def read(self) -> Declarations:
        """The same, where a mistake in one job does not matter to who asks for another one."""
        if self._given is None:
            file = self.jobs_file
            if scheme_of(file) == "file":
                with saying_where(file):
                    return remembered_jobs(file, None, self._loop)
            with self.access():
                return remembered_jobs(file, self.settings.s3, self._loop)
        if self._read is None or time.monotonic() > self._until:
            values = AirflowValues(self._loop)
            self._read = read_given([self._given], repository=self.settings.repository, variables=values)
            counts_s = COUNT_S if values.asked or self._read.broken else math.inf
            self._until = time.monotonic() + counts_s
        return self._read

    @told_in_task()
    def find(self, ref: str, site: str | None = None) -> tuple[Job, str | None]:
        """A declared job, and which query of it is meant (None for all, or the only one).

        A job with a standby is the job at its active site: so the DAGs go on with it after a fail-over. Its
        copies are copies of the job there.

        Args:
            ref: `job` or `job/query`; `job@copy` for the job on a copy of its state.
            site: The site that is meant in place of the active one, if the job has several by now.

        Raises:
            InputError: The name or the jobs file is wrong (code `no-such-query` for an unknown query).
            NotFoundError: No such job is declared (code `no-such-job`), or no such copy (`no-such-copy`).
        """

        def placed(job: Job) -> Job:
            if site is None or job.other_site is None:
                return self.at_active_site(job)
            return job.at_site(site)

        return find_declared(self.read(), ref, placed)

    def at_active_site(self, job: Job) -> Job:
        """A job at its active site, as `find` has it."""
        if job.other_site is None:
            return job
        from streambank.sites.standing import at_active_site

        with self.access():
            return at_active_site(job, _log.warning)

    def saved_as(self, ref: str) -> str:
        """How repositories and records call what a task names: `job-copy/query` for `job@copy/query`.

        Args:
            ref: `job` or `job/query`, or on a copy; whatever is not such a name stays as it is.
        """
        if SEPARATOR not in ref:
            return ref
        try:
            asked, copy = parse_ref(ref)
        except InputError:
            return ref
        job = self.read().around(asked.job).jobs.get(asked.job) if self._declares() else None
        if job is None or copy is None or copy not in job.copies:
            return ref
        return str(QueryRef(copy_name(asked.job, copy), asked.query))

    def job(self, ref: str, site: str | None = None) -> Job:
        """A declared job, by its name or that of one of its queries; see `find`."""
        return self.find(ref, site)[0]

    @told_in_task()
    def whole(self, ref: str, work: str) -> Job:
        """A declared job, or `job@copy`, for work that is of a whole one; see `find`.

        Args:
            work: What it is, for the refusal: `An upgrade`.

        Raises:
            InputError: A query is named (code `bad-option`).
        """
        job, query = self.find(self.saved_as(ref))
        if query is None:
            return job
        raise InputError(
            f"{work} is of a whole job, and {ref} names a query.",
            code="bad-option",
            hint=f"Name the job alone: {job.name}.",
        )

    @told_in_task()
    def at_either_site(self, ref: str) -> Job:
        """A declared job with both of its sites, for a fail-over, which asks both."""
        return self.read().around(ref).job(ref)

    def get(self, ref: str) -> Job | None:
        """A job if it is declared, by its name or that of a query; None too where nothing declares any."""
        if not self._declares():
            return None
        declared = self.read()
        asked, copy = _parsed(declared, ref)
        job = declared.around(asked.job).jobs.get(asked.job)
        if job is None:
            return None
        job = self.at_active_site(job)
        return job if copy is None else job.as_copy(copy)

    def owners(self, checkpoint: str) -> list[tuple[Job, str]]:
        """The declared jobs whose checkpoint it is, each with the query; none without a jobs file."""
        if not self._declares():
            return []
        from streambank.job.savepoint import owners_of

        with self.access():
            return owners_of(self.read().jobs.values(), checkpoint)

    @told_in_task()
    def open_repository(self, ref: str, *, create: bool = False, checkpoint: str | None = None) -> Repository:
        """The repository of a job: as its declaration says, else as the connection says.

        Args:
            checkpoint: What is to be saved there, for a query that is not declared.

        Raises:
            InputError: Nobody names one (code `no-repository-named`), or it lies in the checkpoint
                (`inside-checkpoint`), input or output.
            NotFoundError: There is no repository (code `no-repository`).
        """
        with self.access():
            store = self.repository_store(ref)
            if checkpoint is not None:
                from streambank.inputs.folders import check_new_repository

                check_new_repository(store, open_store(checkpoint))
            job = self.get(ref)
            if job is not None:
                return job.open_repository(create=create, like=checkpoint)
            return Repository.open(store, create=create, like=checkpoint)

    def repository_store(self, ref: str) -> Store:
        """Where the repository of a job is, whatever is there.

        Raises:
            InputError: Nobody names one (code `no-repository-named`).
        """
        with self.access():
            job = self.get(ref)
            location = job.repository if job is not None else self.settings.repository
            if location is None:
                raise InputError(
                    f"No repository is given for the savepoints of {ref}.",
                    code="no-repository-named",
                    hint="Declare the job, or fill in the field Repository of the connection "
                    f"{self.streambank_conn_id}.",
                )
            return open_store(location)

    def _declares(self) -> bool:
        return self._given is not None or bool(self._named_file())

    def _named_file(self) -> str | None:
        return self._jobs_file or located(self.settings.jobs_file or installed_jobs_file())


@dataclass(frozen=True, slots=True)
class _Read:
    """What a jobs file is read from.

    Attributes:
        file: The file itself, behind all links: relative paths in it are taken from there.
        content: Its bytes.
        variables: The environment, which it may name.
    """

    file: Path
    content: bytes
    variables: dict[str, str]

    @classmethod
    def now(cls, path: str) -> _Read | None:
        """As it is now; None for a file that cannot be read."""
        if scheme_of(path) != "file":
            return _REMOTE
        try:
            file = Path(path).resolve(strict=True)
            return cls(file, file.read_bytes(), dict(os.environ))
        except (OSError, RuntimeError, ValueError):
            return None


_REMOTE = _Read(Path(), b"", {})
"""Of a file that is elsewhere: nobody looks there each time whether it is as it was."""


@dataclass(slots=True)
class _File:
    """A jobs file of this process.

    Attributes:
        lock: Held while it is read, so that it is parsed once.
        read: What it was parsed from; None for nothing that could be remembered.
        until: Until when an error counts, by the monotonic clock: what it came from may be beside the file.
    """

    lock: Lock = field(default_factory=Lock)
    read: _Read | None = None
    found: Declarations | InputError | None = None
    until: float = math.inf


_ERROR_COUNTS_S = COUNT_S
_MOST_FILES = 8
_files: dict[tuple[str, S3Access | None], _File] = {}
_finds_file = Lock()


def remembered_jobs(
    path: str, access: S3Access | None = None, loop: AbstractEventLoop | None = None
) -> Declarations:
    """As `read_jobs`; a file that this process has read already, and that is as it was, is not parsed again.

    A triggerer asks for one job of the same file for each of its watches and pages: with a thousand jobs in
    it, parsing it takes seconds of a processor each time. What is wrong with it is remembered for half a
    minute, and so is a file that is in a storage, or names values of Airflow's. A file on a storage that
    hangs holds up only who asks for that file.

    Args:
        access: How S3 is reached, for a file there.
        loop: See `DeclaredJobs`.

    Raises:
        InputError: As `read_jobs`.
    """
    key = (path, access)
    with _finds_file:
        file = _files[key] = _files.pop(key) if key in _files else _File()
        while len(_files) > _MOST_FILES:
            del _files[next(iter(_files))]
    with file.lock:
        now = _Read.now(path)
        found = file.found
        if found is None or now is None or file.read != now or time.monotonic() > file.until:
            values = AirflowValues(loop)
            found = _parsed_jobs(path, values)
            # One that was written to meanwhile may have been read half before and half after.
            file.read = now if now is not None and _Read.now(path) == now else None
            file.found = found if file.read is not None else None
            may_change = isinstance(found, InputError) or bool(found.broken) or values.asked or now == _REMOTE
            file.until = time.monotonic() + _ERROR_COUNTS_S if may_change else math.inf
    if isinstance(found, InputError):
        raise duplicate(found)  # each has the traceback of who asked
    return found


def _parsed_jobs(path: str, values: AirflowValues) -> Declarations | InputError:
    try:
        return read_jobs(path, variables=values)
    except InputError as error:
        return error.with_traceback(None)


def find_declared(
    declared: Declarations, ref: str, placed: Callable[[Job], Job] = lambda job: job
) -> tuple[Job, str | None]:
    """See `DeclaredJobs.find`; `placed` brings a job to the site that is meant."""
    asked, copy = _parsed(declared, ref)
    job = placed(declared.around(asked.job).job(asked.job))
    if copy is not None:
        job = job.as_copy(copy)
    job.queries_named(asked.query)
    return job, asked.query


def parse_ref(ref: str) -> tuple[QueryRef, str | None]:
    """A job, or a query of it, and the copy of its state that is meant: `job@copy`, `job@copy/query`.

    Raises:
        InputError: One of the names is not allowed (code `bad-name`).
    """
    job, slash, query = ref.partition("/")
    name, at, copy = job.partition(SEPARATOR)
    return QueryRef.parse(f"{name}{slash}{query}"), copy if at else None


def _parsed(declared: Declarations, ref: str) -> tuple[QueryRef, str | None]:
    """As `parse_ref`; the job on a copy may have the name of its drivers and savepoints, too: `job-copy`."""
    asked, copy = parse_ref(ref)
    named = None if copy or asked.job in declared.jobs else declared.copy_named(asked.job)
    return (asked, copy) if named is None else (QueryRef(named[0], asked.query), named[1])
