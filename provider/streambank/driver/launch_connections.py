"""Who says where a job runs whose declaration leaves that to a connection of Airflow's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.declaration.launch import LOCAL_MASTER, LaunchPolicy

Resolve = Callable[[Job], LaunchPolicy]
"""Says where a job runs whose declaration names a connection."""

_RESOLVE: ContextVar[Resolve | None] = ContextVar("streambank_launch_connections", default=None)


@contextmanager
def using_connections(resolve: Resolve) -> Iterator[None]:
    """Let `placed` and `launcher_for` ask for connections, for a `with` block."""
    token = _RESOLVE.set(resolve)
    try:
        yield
    finally:
        _RESOLVE.reset(token)


def placed(job: Job) -> Job:
    """The job with all that is known of where it runs: what it declares, and what its connection says.

    Raises:
        InputError: Only a connection of Airflow's tells, and this is not Airflow (code
            `connection-not-known`).
    """
    connection = job.launch.connection
    if connection is None:
        return job
    resolve = _RESOLVE.get()
    if resolve is not None:
        policy = resolve(job)
        return replace(job, master=policy.master or LOCAL_MASTER, launch=policy)
    if job.launch.master is None:
        raise InputError(
            f"Where job {job.name} runs is said by the connection {connection} of Airflow alone.",
            code="connection-not-known",
            hint="Do it from Airflow, or declare the job's master, and what its table launch needs, as well.",
        )
    return job
