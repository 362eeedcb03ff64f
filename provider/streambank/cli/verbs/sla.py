"""The verb `sla`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import Debug, Json, OptionalJobsFile
from streambank.cli.output import console
from streambank.core.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.declaration.sla import SlaPolicy
    from streambank.sla.assess import Assessment, Material
    from streambank.sla.charts import Chart
    from streambank.sla.verdict import Verdict

EXAMPLES = """Examples:

  streambank sla orders --jobs dags/streaming_jobs.toml

  streambank sla orders --jobs dags/streaming_jobs.toml --watch --every 30s --plot

  streambank sla /data/checkpoints/orders -r /data/savepoints --html orders.html
"""
WARN_AFTER_S = 86_400.0
"""From which age on the newest savepoint of a checkpoint warns that nobody has declared."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog=EXAMPLES)(sla)


def sla(
    place: Annotated[
        str,
        typer.Argument(
            metavar="JOB|CHECKPOINT",
            help="A job that the jobs file declares, or job/query; else a checkpoint directory.",
        ),
    ],
    history: Annotated[
        str | None,
        typer.Option(
            metavar="LOCATION",
            help="Progress records to judge by: <control>/<job>/progress/<query>, or a file of it.",
        ),
    ] = None,
    jobs: OptionalJobsFile = None,
    repository: Annotated[
        str | None,
        # Not from the environment as elsewhere: a declared job names its own.
        typer.Option(
            "--repository",
            "-r",
            metavar="LOCATION",
            help="With a CHECKPOINT: the repository of its savepoints.",
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="NAME", help="Of a checkpoint: the job name of its savepoints there."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Judge again and again, until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How often with --watch.")] = "10s",
    plot: Annotated[
        bool, typer.Option("--plot", help="Also draw history, limits and forecast in the terminal.")
    ] = False,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write one page with verdicts and plots.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show how well a stream keeps its promises, and for how long it will: exit code 1 for a breach."""
    from streambank.core.units import parse_duration_s

    asked = Asked(place, history, jobs, repository, job, plot, html)
    asked.check(as_json, watch)
    every_s = parse_duration_s(every)
    if not watch:
        if _judge(asked).level == "breach":
            raise typer.Exit(1)
        return
    while True:
        _judge(asked, clear=console.is_terminal())
        time.sleep(every_s)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for."""

    place: str
    history: str | None
    jobs: str | None
    repository: str | None
    job: str | None
    plot: bool
    html: str | None

    def check(self, as_json: bool, watch: bool) -> None:
        """Refuse what does not go together, and what cannot be drawn, before anything is read.

        Raises:
            InputError: Options do not go together (code `usage`).
            StorageError: What draws is not installed (code `missing-package`).
        """
        if as_json and (watch or self.plot):
            option = "--watch" if watch else "--plot"
            raise InputError(
                f"{option} cannot be combined with --json, which gives one document.",
                code="usage",
                hint="Leave one of them out. --html works with both.",
            )
        if self.plot:
            from streambank.cli.output.plots import require_plotext

            require_plotext()
        if self.html is not None:
            from streambank.cli.output.page import require_plotly

            require_plotly()


@dataclass(frozen=True, slots=True)
class Judged:
    """One query as it was judged."""

    material: Material
    policy: SlaPolicy | None
    verdicts: tuple[Verdict, ...]

    def charts(self, now: datetime, *, judged_only: bool) -> list[Chart]:
        """What can be drawn of it; nothing where its history cannot be read, which its verdict says."""
        from streambank.core.errors import StreambankError
        from streambank.sla.charts import charts_of
        from streambank.sla.judge.judge import Unreadable

        if isinstance(self.material.history, Unreadable):
            return []
        try:
            breaks = self.material.facts.breaks
            return charts_of(self.material.history, self.policy, now, breaks=breaks, judged_only=judged_only)
        except StreambankError as error:
            console.note(f"query {self.material.history.query} cannot be drawn: {error.message}")
            return []


def _judge(asked: Asked, *, clear: bool = False) -> Assessment:
    """Judge once, and answer."""
    from streambank.cli.output.verdicts import show
    from streambank.core.units import utc_now
    from streambank.sla.assess import Assessment

    now = utc_now()
    name, queries = _look(asked, now)
    found = Assessment(name, now, tuple(verdict for one in queries for verdict in one.verdicts))
    if asked.html is not None:
        from streambank.cli.output.html import write_page

        write_page(
            asked.html, found, [chart for one in queries for chart in one.charts(now, judged_only=False)]
        )
        console.note(f"written: {asked.html}")
    charts = [chart for one in queries for chart in one.charts(now, judged_only=True)] if asked.plot else []

    def text() -> None:
        if clear:
            console.clear()
        show(found)
        if charts:
            from streambank.cli.output.plots import draw

            draw(charts)

    console.answer(found.to_dict(), text)
    return found


def _look(asked: Asked, now: datetime) -> tuple[str, list[Judged]]:
    """What is judged, and its material, query by query."""
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
        return name, [Judged(material, policy, judge(name, material.history, policy, now, material.facts))]
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
        judged.append(Judged(material, declared.sla, verdicts))
    return declared.name, judged


def _undeclared(asked: Asked) -> SlaPolicy | None:
    """The usual limits; where a repository is named, one on the age of savepoints, too."""
    from streambank.declaration.sla import Declared, SlaPolicy

    if asked.repository is None:
        return None
    return SlaPolicy({"savepoint_age": Declared(warn=WARN_AFTER_S)})


def _declared(asked: Asked) -> tuple[Job | None, str | None]:
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
