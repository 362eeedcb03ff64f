"""The verb `sinks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from streambank.cli.options import JobsFile, job_named
from streambank.cli.output import console
from streambank.core.options import Option

if TYPE_CHECKING:
    from streambank.recovery.sinks.of_job import SinksOfQuery

EXAMPLES = """Examples:

  streambank sinks orders --jobs dags/streaming_jobs.toml

  streambank sinks orders/hourly --savepoint b000123 --jobs dags/streaming_jobs.toml
"""


def sinks(
    job: Annotated[
        str, Option("A job that the jobs file declares, or job/query.", metavar="JOB", positional=True)
    ],
    jobs: JobsFile,
    savepoint: Annotated[
        str | None,
        Option("Compare with this one instead of the newest of each query.", metavar="SAVEPOINT"),
    ] = None,
) -> None:
    """Show each sink of a job: how far it is against a savepoint, and what a restore would lose or repeat."""
    from streambank.core.names import QueryRef
    from streambank.recovery.sinks.of_job import sinks_of_job

    asked = QueryRef.parse(job)
    declared = job_named(asked.job, jobs)
    found = sinks_of_job(declared, declared.queries_named(asked.query), savepoint)
    document = {"job": declared.name, "queries": [one.to_dict() for one in found]}
    console.answer(document, lambda: _show(found))


def _show(found: list[SinksOfQuery]) -> None:
    for number, one in enumerate(found):
        if number:
            console.line()
        against = (
            "no savepoint yet" if one.savepoint is None else f"savepoint {one.savepoint}, batch {one.batch}"
        )
        console.line(f"query {one.query}: {against}")
        if not one.sinks:
            console.line("  no sink is known: no driver of Streambank has run this query")
        for sink in one.sinks:
            _show_sink(sink)
        if one.savepoint is not None and one.sinks:
            ways = ", ".join(f"--sink {choice}" for choice in one.possible)
            console.line(f"  a restore of it goes on with: {ways or 'nothing that is known'}")


def _show_sink(sink: Mapping[str, Any]) -> None:
    from streambank.core.choices import NO_SINK

    if sink["kind"] == NO_SINK:
        console.line(f"  {sink['says']}")
        return
    guarded = "guarded" if sink["guarded"] else "not guarded"
    console.line(f"  {sink['kind']} {sink['path']} ({guarded})")
    if "safe" in sink:
        console.line(f"    {sink['says'] or 'It has nothing after the savepoint.'}")


VERBS = {"sinks": (sinks, EXAMPLES)}
