"""The declared jobs that a connection leads to: what all parts of the hook share."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy as duplicate
from dataclasses import dataclass, field
from functools import cached_property, wraps
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from streambank.core.errors import InputError
from streambank.core.names import SEPARATOR, QueryRef
from streambank.declaration.declaration import Declarations, Job
from streambank.declaration.load import read_jobs
from streambank.declaration.places.copies import copy_name
from streambank.driver.connections import using_connections
from streambank.repository.repository import Repository
from streambank.storage import Store, open_store, using_s3
from streambank_airflow.configuration import (
    JOBS_VARIABLE,
    SECTION,
    installed_jobs_file,
    use_signing_keys,
)
from streambank_airflow.hooks.connection import find_settings, launch_policy

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from streambank_airflow.connections.settings import Settings


def as_plain(value: Any) -> Any:
    """The same with each `Path` as its text, also within lists and mappings: Airflow hands on no paths."""
    if isinstance(value, PathLike):
        return fspath(value)
    if type(value) in (list, tuple):
        return type(value)(as_plain(one) for one in value)
    if type(value) is dict:
        return {as_plain(name): as_plain(one) for name, one in value.items()}
    return value


class DeclaredJobs:
    """Where jobs are declared and savepoints kept.

    What a jobs file declares comes first; the connection says what is missing: which jobs file, and for
    queries that no file declares which repository. It may say how S3 is reached, too. The default connection
    need not exist.

    Args:
        jobs_file: The jobs file; None for the connection's, and failing that the one that the environment
            variable STREAMBANK_JOBS names, or `[streambank] jobs` in Airflow's configuration.
        settings: What the connection says, where the caller has read it already.
    """

    def __init__(
        self, streambank_conn_id: str, jobs_file: str | PathLike[str] | None, settings: Settings | None
    ) -> None:
        use_signing_keys()
        self.streambank_conn_id = streambank_conn_id
        self._jobs_file: str | None = as_plain(jobs_file)
        if settings is not None:
            self.settings = settings

    @cached_property
    def settings(self) -> Settings:
        """What the connection says (`find_settings`)."""
        return find_settings(self.streambank_conn_id)

    @contextmanager
    def access(self) -> Iterator[None]:
        """Reach S3 as the connection says, and clusters as those say that jobs name, for a `with` block.

        That is for the stores that it opens, and the drivers that it starts or looks for, nothing else.
        """
        with using_s3(self.settings.s3), using_connections(launch_policy):
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
                hint=f"Give jobs_file=, name it in the connection {self.streambank_conn_id}, "
                f"or set {JOBS_VARIABLE}, or [{SECTION}] jobs in Airflow's configuration.",
            )
        return found

    def load(self) -> Declarations:
        """All that the jobs file declares, without a mistake."""
        return self.read().whole()

    def read(self) -> Declarations:
        """The same, where a mistake in one job does not matter to who asks for another one."""
        return remembered_jobs(self.jobs_file)

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
        job = self.read().around(asked.job).jobs.get(asked.job) if self._named_file() else None
        if job is None or copy is None or copy not in job.copies:
            return ref
        return str(QueryRef(copy_name(asked.job, copy), asked.query))

    def job(self, ref: str, site: str | None = None) -> Job:
        """A declared job, by its name or that of one of its queries; see `find`."""
        return self.find(ref, site)[0]

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

    def at_either_site(self, ref: str) -> Job:
        """A declared job with both of its sites, for a fail-over, which asks both."""
        return self.read().around(ref).job(ref)

    def get(self, ref: str) -> Job | None:
        """A job if it is declared, by its name or that of a query; None too without a jobs file."""
        if not self._named_file():
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
        if not self._named_file():
            return []
        from streambank.job.savepoint import owners_of

        with self.access():
            return owners_of(self.read().jobs.values(), checkpoint)

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

    def _named_file(self) -> str | None:
        return self._jobs_file or self.settings.jobs_file or installed_jobs_file()


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
        try:
            file = Path(path).resolve(strict=True)
            return cls(file, file.read_bytes(), dict(os.environ))
        except (OSError, RuntimeError, ValueError):
            return None


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


_ERROR_COUNTS_S = 30.0
_MOST_FILES = 8
_files: dict[str, _File] = {}
_finds_file = Lock()


def remembered_jobs(path: str) -> Declarations:
    """As `read_jobs`; a file that this process has read already, and that is as it was, is not parsed again.

    A triggerer asks for one job of the same file for each of its watches and pages: with a thousand jobs in
    it, parsing it takes seconds of a processor each time. What is wrong with it is remembered for half a
    minute. A file on a storage that hangs holds up only who asks for that file.

    Raises:
        InputError: As `read_jobs`.
    """
    with _finds_file:
        file = _files[path] = _files.pop(path) if path in _files else _File()
        while len(_files) > _MOST_FILES:
            del _files[next(iter(_files))]
    with file.lock:
        now = _Read.now(path)
        found = file.found
        if found is None or now is None or file.read != now or time.monotonic() > file.until:
            found = _parsed_jobs(path)
            # One that was written to meanwhile may have been read half before and half after.
            file.read = now if now is not None and _Read.now(path) == now else None
            file.found = found if file.read is not None else None
            is_wrong = isinstance(found, InputError) or bool(found.broken)
            file.until = time.monotonic() + _ERROR_COUNTS_S if is_wrong else math.inf
    if isinstance(found, InputError):
        raise duplicate(found)  # each has the traceback of who asked
    return found


def _parsed_jobs(path: str) -> Declarations | InputError:
    try:
        return read_jobs(path)
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


class _Part(Protocol):
    """A part of the hook: what it shares with the others."""

    @property
    def declared(self) -> DeclaredJobs: ...


H = TypeVar("H", bound=_Part)
P = ParamSpec("P")
R = TypeVar("R")


def connected(verb: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """Let a verb of the hook's parts work under `DeclaredJobs.access`, with the name of a job on a copy."""

    @wraps(verb)
    def with_access(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.declared.access():
            named = [self.declared.saved_as(one) if isinstance(one, str) else one for one in args[:1]]
            return verb(self, *named, *args[1:], **kwargs)  # type: ignore[arg-type]  # of the same types

    return with_access
