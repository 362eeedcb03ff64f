"""The verb `sla`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import OptionalJobsFile
from streambank.cli.output import console
from streambank.cli.output.console import MODE
from streambank.core.errors import InputError, NotFoundError
from streambank.core.options import Option

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.declaration.sla import SlaPolicy
    from streambank.sla.assess import Assessment, Material
    from streambank.sla.verdict import Verdict

EXAMPLES = """Examples:

  streambank sla orders --jobs dags/streaming_jobs.toml

  streambank sla orders --jobs dags/streaming_jobs.toml --watch --every 30s

  streambank sla /data/checkpoints/orders -r /data/savepoints --html orders.html
"""
WARN_AFTER_S = 86_400.0
"""From which age on the newest savepoint of a checkpoint warns that nobody has declared."""


@dataclass(kw_only=True)
class SlaRequest:
    """What is judged, and where its page is written."""

    place: Annotated[
        str,
        Option(
            "A job that the jobs file declares, or job/query; else a checkpoint directory.",
            metavar="JOB|CHECKPOINT",
            positional=True,
        ),
    ]
    history: Annotated[
        str | None,
        Option(
            "Progress records to judge by: <control>/<job>/progress/<query>, or a file of it.",
            metavar="LOCATION",
        ),
    ] = None
    jobs: OptionalJobsFile = None
    repository: Annotated[
        str | None,
        # Not from the environment as elsewhere: a declared job names its own.
        Option(
            "With a CHECKPOINT: the repository of its savepoints.", flag="--repository -r", metavar="LOCATION"
        ),
    ] = None
    job: Annotated[
        str | None,
        Option("Of a checkpoint: the job name of its savepoints there.", metavar="NAME"),
    ] = None
    html: Annotated[
        str | None,
        Option("Also write verdicts and plots as one page, for a browser.", metavar="FILE"),
    ] = None


def sla(
    asked: SlaRequest,
    watch: Annotated[bool, Option("Judge again and again, until Ctrl-C.")] = False,
    every_s: Annotated[float, Option("How often with --watch.")] = 10.0,
) -> None:
    """Show how well a stream keeps its promises, and for how long it will: exit code 1 for a breach."""
    if MODE.json and watch:
        raise InputError(
            "--watch cannot be combined with --json, which gives one document.",
            code="usage",
            hint="Leave one of them out. --html works with both.",
        )
    if not watch:
        if _judge(asked).level == "breach":
            raise typer.Exit(1)
        return
    while True:
        _judge(asked, clear=console.is_terminal())
        time.sleep(every_s)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was judged.

    Attributes:
        declared: The job; None for a checkpoint.
        queries: What each was judged by, and its verdicts.
    """

    name: str
    declared: Job | None
    policy: SlaPolicy | None
    queries: Sequence[tuple[Material, tuple[Verdict, ...]]]


def _judge(asked: SlaRequest, *, clear: bool = False) -> Assessment:
    """Judge once, and answer."""
    from streambank.cli.output.verdicts import show
    from streambank.core.units import utc_now
    from streambank.sla.assess import Assessment

    now = utc_now()
    judged = _look(asked, now)
    found = Assessment(judged.name, now, tuple(one for _, verdicts in judged.queries for one in verdicts))
    if asked.html is not None:
        _write(asked.html, judged, now)
        console.note(f"written: {asked.html}")

    def text() -> None:
        if clear:
            console.clear()
        show(found)

    console.answer(found.to_dict(), text)
    return found


def _write(html: str, judged: Judgement, now: datetime) -> None:
    """Write the page of what was judged."""
    from streambank.core.units import to_json_time
    from streambank.overview.charts import charts_part, verdicts_part
    from streambank.overview.html import write_page
    from streambank.overview.judged import drawn
    from streambank.overview.plain import Plain, fitted

    plain = Plain(os.environ) if judged.declared is None else Plain.of_job(judged.declared)
    queries = [drawn(material, judged.policy, verdicts, now) for material, verdicts in judged.queries]
    at, made = to_json_time(now), {"verdicts": verdicts_part(queries), "charts": charts_part(queries)}
    parts = {name: fitted({"at": at, "error": None, **plain.json(part)}) for name, part in made.items()}
    write_page(html, judged.name, at, None, parts)


def _look(asked: SlaRequest, now: datetime) -> Judgement:
    """Judge what is meant, query by query."""
    from streambank.kafka.settings import Brokers
    from streambank.sla.assess import called, checkpoint_material, job_material
    from streambank.sla.judge.judge import judge

    declared, query = _declared(asked)
    judged = []
    if declared is None:
        name = called(asked.place, asked.job)
        policy = _undeclared(asked)
        material = checkpoint_material(
            asked.place,
            now,
            history=asked.history,
            repository=asked.repository,
            name=asked.job,
            policy=policy,
        )
        verdicts = judge(name, material.history, policy, now, material.facts)
        return Judgement(name, None, policy, [(material, verdicts)])
    if asked.repository is not None or asked.job is not None:
        option = "--job" if asked.repository is None else "-r"
        raise InputError(
            f"{option} is for a checkpoint. The declaration of job {declared.name} names its repository.",
            code="usage",
            hint="See `streambank sla --help`.",
        )
    names = tuple(declared.queries) if query is None else (query,)
    if asked.history is not None and len(names) > 1:
        raise InputError(
            f"--history is for one query, and job {declared.name} has several.",
            code="which-query",
            hint=f"Name one of them: {', '.join(f'{declared.name}/{one}' for one in names)}.",
        )
    brokers = Brokers(declared.kafka)
    for one in names:
        material = job_material(declared, one, now, history=asked.history, brokers=brokers)
        verdicts = judge(declared.name, material.history, declared.sla, now, material.facts)
        judged.append((material, verdicts))
    return Judgement(declared.name, declared, declared.sla, judged)


def _undeclared(asked: SlaRequest) -> SlaPolicy | None:
    """The usual limits; where a repository is named, one on the age of savepoints, too."""
    from streambank.declaration.sla import Declared, SlaPolicy

    if asked.repository is None:
        return None
    return SlaPolicy({"savepoint_age": Declared(warn=WARN_AFTER_S)})


def _declared(asked: SlaRequest) -> tuple[Job | None, str | None]:
    """The job that is meant, and its query; None where it is a checkpoint.

    Raises:
        NotFoundError: It is neither (code `not-a-checkpoint`).
        InputError: The job has no such query (`no-such-query`); or the jobs file is wrong.
    """
    known: tuple[str, ...] = ()
    if asked.jobs is not None:
        from streambank.declaration.load import read_jobs

        declared = read_jobs(asked.jobs).around(asked.place).jobs
        known = tuple(declared)
        name, _, query = asked.place.partition("/")
        if asked.place in declared:
            return declared[asked.place], None
        if name in declared and query in declared[name].queries:
            return declared[name], query
    from streambank.storage import open_store

    store = open_store(asked.place)
    if not store.names():
        listed = (
            f"Declared: {', '.join(known) or 'none'}." if asked.jobs is not None else "--jobs is not given."
        )
        raise NotFoundError(
            f"{asked.place!r} is neither a declared job nor a checkpoint: there is nothing at {store.uri}.",
            code="not-a-checkpoint",
            hint=f"Name a job of the jobs file, or the query's checkpointLocation. {listed}",
        )
    return None, None


VERBS = {"sla": (sla, EXAMPLES)}
