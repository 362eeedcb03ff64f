"""Where a job runs whose declaration names a connection, which only Airflow can look up."""

from __future__ import annotations

import sys
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
        named = job.spark_home is not None or job.python != sys.executable
        home = job.spark_home if named else policy.spark_home
        return replace(job, master=policy.master or LOCAL_MASTER, launch=policy, spark_home=home)
    if job.launch.master is None:
        raise InputError(
            f"Only the Airflow connection {connection} says where job {job.name} runs.",
            code="connection-not-known",
            hint="Do this from Airflow, or also declare the job's master and what its table launch needs.",
        )
    return job
