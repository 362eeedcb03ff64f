"""The verb `upgrade`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import JobsFile, job_named
from streambank.cli.output import console
from streambank.core.options import Option
from streambank.core.verb_options import UpgradeOptions

if TYPE_CHECKING:
    from streambank.core.choices import SinkChoice
    from streambank.upgrade.record import Upgrade

EXAMPLES = """Examples:

  streambank upgrade orders --jobs dags/streaming_jobs.toml --plan

  streambank upgrade orders --watch 10m

  streambank upgrade orders --conf spark.executor.memory=8g --compare values

  streambank upgrade orders --undo
"""
_SAID = {
    "planned": "would be upgraded",
    "nothing-to-do": "runs what is asked for already",
    "refused": "was NOT upgraded; its old code runs on",
    "upgraded": "is upgraded",
    "undone": "was NOT upgraded: the new code failed, and the old code runs again",
    "not-undone": "was NOT upgraded: the new code failed, and a person has to decide",
    "stopped": "was stopped by a person meanwhile; its new code was not watched to the end",
    "given-up": "was not upgraded to the end: other code is asked for, or was started",
}


def upgrade(
    job: Annotated[str, Option("A job that the jobs file declares.", metavar="JOB", positional=True)],
    jobs: JobsFile,
    options: UpgradeOptions,
    undo: Annotated[
        bool,
        Option("Undo the newest upgrade: its savepoint is restored, and the old code started."),
    ] = False,
    declared_code: Annotated[
        bool,
        Option(
            "Let the next start run what the jobs file declares, whatever an upgrade has chosen; an "
            "upgrade that was interrupted is given up. Nothing is rehearsed, stopped or started.",
            flag="--declared",
        ),
    ] = False,
    sink: Annotated[
        str | None,
        Option(
            "With --undo: what becomes of later output. Default: rollback if needed and guarded.",
            metavar="refuse|rollback|rollback-accept|accept",
        ),
    ] = None,
    why: Annotated[str, Option("Why, for the job's records.", metavar="TEXT")] = "",
    history: Annotated[bool, Option("Show the upgrades of the job instead, the newest first.")] = False,
) -> None:
    """Bring a running job to what its jobs file declares now, after a rehearsal beside it.

    The new code runs on a copy of a fresh savepoint first. Then the job stops with a savepoint, and goes on
    with the new code. If that fails, the savepoint is restored and the old code started. An upgrade that was
    interrupted is finished. Exit code 1: the job does not run the new code, or was stopped.
    """
    from streambank.control.processes import who
    from streambank.core.choices import SINK_CHOICES
    from streambank.core.errors import InputError, check_choice
    from streambank.upgrade.declared import choose_declared
    from streambank.upgrade.plan import UpgradeRequest
    from streambank.upgrade.record import upgrades_of
    from streambank.upgrade.upgrade import undo_upgrade
    from streambank.upgrade.upgrade import upgrade as run

    declared = job_named(job, jobs)
    if history:
        found = list(upgrades_of(declared.records()))
        console.answer(
            {"job": job, "upgrades": [one.to_dict() for one in found]}, lambda: _show_history(found)
        )
        return
    if declared_code and (undo or options.plan_only):
        raise InputError(
            "--declared does nothing but that.", code="bad-option", hint="Leave out --undo and --plan."
        )
    if sink is not None and not undo:
        raise InputError("--sink is for --undo.", code="bad-option", hint="Leave it out, or give --undo.")
    request = UpgradeRequest(declared, by=who("cli"), why=why, **vars(options))
    if declared_code:
        left = choose_declared(request)
        console.answer({"job": job, "given_up": None if left is None else left.name}, lambda: _say(job, left))
        return
    if undo:
        choice: SinkChoice | None = None if sink is None else check_choice(sink, "sink", SINK_CHOICES)
        report = undo_upgrade(request, sink=choice, say=console.note)
    else:
        report = run(request, say=console.note)
    console.answer(report.to_dict(), lambda: _show(report))
    if not (report.succeeded or (undo and report.state == "undone")):
        raise typer.Exit(1)


def _say(job: str, left: Upgrade | None) -> None:
    console.line(f"the next start of job {job} runs what its jobs file declares")
    if left is not None:
        console.line(f"  {left.name} was interrupted, and is given up")


def _show(report: Upgrade) -> None:
    console.line(f"job {report.job} {_SAID.get(report.state, report.state)}")
    console.fields(report.rows())


def _show_history(found: list[Upgrade]) -> None:
    if not found:
        console.line("no upgrade yet")
        return
    rows = [
        [
            one.to_dict()["started_at"],
            one.state,
            "" if one.without_processing_s is None else f"{one.without_processing_s:.1f} s",
            f"{one.seconds:.1f} s",
            one.error or "; ".join(one.changes),
        ]
        for one in found
    ]
    console.table(["started", "result", "without processing", "took", "what"], rows)


VERBS = {"upgrade": (upgrade, EXAMPLES)}
