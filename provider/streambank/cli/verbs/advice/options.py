"""Options that `advise` and `plan-memory` share, and what a declared job adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import job_named
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank.core.options import Option

if TYPE_CHECKING:
    from streambank.advice.of_job import StateNow
    from streambank.advice.values import DeclaredConf, Value
    from streambank.declaration.declaration import Job

JobNamed = Annotated[
    str | None,
    Option("Read what is not given from this declared job, or job/query: from its newest progress "
                 "record, and from its Spark settings.", metavar="NAME"),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobState:
    """The job that `--job` names.

    Attributes:
        now: Its state by the newest progress record; None where none shows state.
    """

    job: Job
    query: str
    declared: DeclaredConf
    now: StateNow | None

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.job.name, "query": self.query, **(self.now.to_dict() if self.now else {})}


def job_asked(context: typer.Context, job: str | None, jobs: str | None) -> JobState | None:
    """The job that `--job` names, and its query; None without one.

    Raises:
        InputError: One of `--job` and `--jobs` is given without the other (code `usage`), or the job has
            several queries and none is named (`which-query`).
    """
    named = _job_named(context, job, jobs)
    return None if named is None else _asked(named[0], named[0].only_query(named[1]))


def queries_asked(context: typer.Context, job: str | None, jobs: str | None) -> list[JobState]:
    """The query that `--job` names, or all queries of the job that keep state; none without `--job`.

    Raises:
        InputError: As `job_asked`, but for a job of several queries.
    """
    from streambank.advice.of_job import is_stateless
    from streambank.core.names import MAIN

    named = _job_named(context, job, jobs)
    if named is None:
        return []
    found, query = named
    if query is not None or MAIN in found.queries:
        return [_asked(found, found.only_query(query))]
    kept = [one for one in found.queries if not is_stateless(found, one)]
    return [_asked(found, one) for one in kept or list(found.queries)]


def _job_named(context: typer.Context, job: str | None, jobs: str | None) -> tuple[Job, str | None] | None:
    if job is None:
        source = context.get_parameter_source("jobs")
        if jobs is not None and source is not None and source.name == "COMMANDLINE":
            raise InputError(
                "--jobs needs --job, the job that is read from it.",
                code="usage",
                hint="Give --job NAME, or leave --jobs out.",
            )
        return None
    if jobs is None:
        raise InputError(
            "--job needs --jobs, the file that declares the job.",
            code="usage",
            hint="Give --jobs FILE, or set STREAMBANK_JOBS.",
        )
    from streambank.core.names import QueryRef

    named = QueryRef.parse(job)
    return job_named(named.job, jobs), named.query


def _asked(job: Job, query: str) -> JobState:
    from streambank.advice.of_job import state_of_job
    from streambank.advice.values import declared_by

    return JobState(job, query, declared_by(job), state_of_job(job, query))


def show_values(found: Sequence[Value]) -> None:
    """A table of values, and where each is from."""
    console.table(
        ("option", "value", "from"),
        [(one.option or one.setting, one.text, one.source) for one in found],
        right=("value",),
    )
