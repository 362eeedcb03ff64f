"""Verbs on declared jobs: `job list`, `start`, `stop`, `status`, `history`, `overview`, `savepoint`, ..."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import JobName as Name
from streambank.cli.options import (
    JobsFile,
    Machines,
    Note,
    Unsigned,
    Why,
    job_named,
)
from streambank.cli.output import console
from streambank.cli.output.console import MODE
from streambank.cli.plugins import JobGroup
from streambank.cli.verb_options import Commands
from streambank.cli.verbs.job import clean, history, overview, restore
from streambank.core.options import Option
from streambank.core.verb_options import RestartOptions, SavepointOptions, StartOptions, StopOptions

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.job.restart import RestartResult
    from streambank.job.sign_records import Vouched
    from streambank.job.start import StartResult
    from streambank.job.stop import StopResult

app = Commands(
    cls=JobGroup,
    help="Start, stop and look at the jobs that streaming_jobs.toml declares.",
    no_args_is_help=True,
)

PARALLEL = 4
"""Files copied at once."""


def _by() -> dict[str, str]:
    from streambank.control.processes import who

    return who("cli")


@app.command(epilog="Example: streambank job start orders --jobs dags/streaming_jobs.toml")
def start(
    name: Name,
    jobs: JobsFile,
    options: StartOptions,
    why: Why = "",
    wait: Annotated[
        bool,
        Option("Wait for the first batch, or only for the driver."),
    ] = True,
    timeout_s: Annotated[float | None, Option("How long to wait; the declared time by default.")] = None,
) -> None:
    """Start a driver of the job, unless one runs already. A second start finds that driver."""
    from streambank.job.start import start_job

    result = start_job(
        job_named(name, jobs),
        by=_by(),
        why=why,
        wait=wait,
        timeout_s=timeout_s,
        fresh_start=options.fresh_start,
    )
    console.answer(result.to_dict(), lambda: _show_start(result))


def _show_start(result: StartResult) -> None:
    said = {
        "started": "started" if result.is_ready else "has its driver up",
        "already-running": "was running already",
        "finished": "has finished",
        "not-desired": f"was {result.why or 'set to stopped'}, so nothing was started",
    }
    console.line(f"job {result.job} {said[result.state]}{_queries(result)}")
    _show_driver(result)


def _queries(result: StartResult) -> str:
    """What its queries have done, behind what a start came to."""
    from streambank.job.readiness import say_starts

    return f": {say_starts(result.queries)}" if result.queries else ""


def _show_driver(result: StartResult) -> None:
    generations = ", ".join(f"{query} {number}" for query, number in result.generations.items())
    console.fields(
        [
            ("host", result.host),
            ("pid", result.pid),
            ("jvm pid", result.jvm_pid),
            ("epoch", result.epoch),
            ("generation", generations),
            ("batch", result.batch),
            ("log", result.log),
            ("took", f"{result.seconds:.1f} s"),
        ]
    )
    if result.code:
        console.line(result.code)
    for warning in result.warnings:
        console.line(f"warning: {warning}")


@app.command(epilog="Example: streambank job restart orders --why 'new settings'")
def restart(
    name: Name,
    jobs: JobsFile,
    options: RestartOptions,
    why: Why = "",
    wait: Annotated[
        bool,
        Option("Wait for the first batch, or only for the driver."),
    ] = True,
) -> None:
    """Stop a job at a batch boundary and start it again, unless somebody has stopped it."""
    from streambank.job.restart import restart_job

    result = restart_job(job_named(name, jobs), by=_by(), why=why, wait=wait, **vars(options))
    console.answer(result.to_dict(), lambda: _show_restart(result))


def _show_restart(result: RestartResult) -> None:
    said = {
        "restarted": "restarted",
        "started": "started; no driver was running",
        "finished": "restarted, and has finished",
        "not-desired": f"was {result.start.why or 'set to stopped'}, so nothing was started",
    }
    console.line(f"job {result.start.job} {said[result.state]}{_queries(result.start)}")
    if result.how is not None:
        from streambank.job.stop import HOW

        console.fields([("stopped", HOW[result.how])])
    _show_driver(result.start)


@app.command(epilog="Example: streambank job stop orders --savepoint --force-after 60s")
def stop(
    name: Name,
    jobs: JobsFile,
    options: StopOptions,
    why: Why = "",
    note: Annotated[str, Option("Note of the savepoint.", metavar="TEXT")] = "",
    called: Annotated[
        str,
        Option(
            "Name of the savepoint, unique within the job, such as before-upgrade; implies --savepoint.",
            flag="--name",
            metavar="NAME",
        ),
    ] = "",
    pin: Annotated[bool, Option("Pin the savepoint.")] = False,
) -> None:
    """Stop a job at a batch boundary, and keep it stopped."""
    from streambank.job.stop import stop_job

    with console.progress() as progress:
        result = stop_job(
            job_named(name, jobs),
            by=_by(),
            why=why,
            savepoint=options.savepoint or bool(called),
            drain=options.drain,
            force_after_s=options.force_after_s,
            note=note,
            name=called,
            pin=pin,
            progress=progress,
        )
    console.answer(result.to_dict(), lambda: _show_stop(result))


def _show_stop(result: StopResult) -> None:
    from streambank.job.stop import HOW

    console.line(f"job {result.job} {result.state.replace('-', ' ')}: {HOW[result.how]}")
    console.fields(
        [
            ("batch", result.batch),
            ("drained", None if result.drained is None else ("yes" if result.drained else "no")),
            *((f"savepoint of {query}", savepoint) for query, savepoint in result.savepoints.items()),
            ("took", f"{result.seconds:.1f} s"),
        ]
    )
    for warning in result.warnings:
        console.line(f"warning: {warning}")


@app.command("list", epilog="Example: streambank job list --jobs dags/streaming_jobs.toml")
def list_jobs(jobs: JobsFile) -> None:
    """List the declared jobs: what each must do, what it does, and who watches it. Changes nothing."""
    from streambank.declaration.load import load_jobs

    declared = load_jobs(jobs)
    found = [_glance(declared.job(name)) for name in declared.jobs]
    console.answer(found, lambda: _show_jobs(found))


def _glance(job: Job) -> dict[str, Any]:
    """The status of a job; where it cannot be told, the error stands in its place."""
    from streambank.core.errors import StreambankError
    from streambank.job.status import job_status

    try:
        return job_status(job).to_dict()
    except StreambankError as error:
        return {"job": job.name, "state": "unreadable", "why": error.message, "error": error.code}


def _show_jobs(found: list[dict[str, Any]]) -> None:
    if not found:
        console.line("No jobs are declared.")
        return
    rows = [
        (one["job"], one.get("desired"), one["state"], one.get("batch"), _seconds(one.get("since")),
         _watcher(one.get("watch")), one["why"])
        for one in found
    ]  # fmt: skip
    columns = ("job", "desired", "state", "batch", "driver since (UTC)", "watched", "why")
    drop = ("driver since (UTC)", "batch", "why", "watched")
    console.table(columns, rows, right=("batch",), drop=drop)


def _seconds(moment: str | None) -> str | None:
    return None if moment is None else moment[:19].replace("T", " ")


def _watcher(watch: dict[str, Any] | None) -> str | None:
    if watch is None or not (watch["expected"] or watch["watched"]):
        return None
    return "yes" if watch["watched"] else "no" if watch["why"] else "not yet"


@app.command(epilog="Example: streambank job status orders --json")
def status(name: Name, jobs: JobsFile) -> None:
    """Show how a job is doing: its desired state, its actual state, and who works on it. Changes nothing."""
    from streambank.cleaning.left_directories import left_directories
    from streambank.driver.preflight import CHECKPOINT_LOST, REPOSITORY_LOST
    from streambank.job.status import job_status

    job = job_named(name, jobs)
    found = job_status(job).to_dict()
    left = left_directories(job, glance=True).needless
    found["left"] = {
        "directories": len(left),
        "bytes": sum(one.bytes for one in left),
        "counted": all(one.counted for one in left),
    }
    console.answer(found, lambda: _show_status(found))
    if found["state"] in (CHECKPOINT_LOST, REPOSITORY_LOST):
        raise typer.Exit(1)


def _show_status(found: dict[str, Any]) -> None:
    console.line(f"job {found['job']}: {found['state']} ({found['why']})")
    console.fields(
        [
            ("desired", _desired(found)),
            ("batch", found["batch"]),
            ("host", found["host"]),
            ("pid", found["pid"]),
            ("jvm pid", found["jvm_pid"]),
            ("epoch", found["epoch"]),
            ("since", found["since"]),
            ("last beat", found["beat_at"]),
            ("health", _health(found["health"])),
            ("down", _down(found)),
            ("watched", _watched(found["watch"])),
            ("code", found["code"]),
            ("site", _site(found["site"])),
            ("operation", found["operation"]),
            ("log", found["log"]),
            ("submission", found["submission"]),
            ("page", found["tracking"]),
            ("left behind", _left(found)),
        ]
    )
    columns = ("query", "batch", "planned", "generation", "watermark", "checkpoint")
    rows = [
        (name, query["batch"], query["planned_batch"], query["generation"], query["watermark"],
         query["checkpoint"])
        for name, query in found["queries"].items()
    ]  # fmt: skip
    if rows:
        console.line()
        console.table(columns, rows, right=("batch", "planned", "generation"))
    for query in found["queries"].values():
        if query["note"]:
            console.line(query["note"])
    sampled = {name: query["hot_keys"] for name, query in found["queries"].items() if query["hot_keys"]}
    if sampled:
        from streambank.core.units import utc_now
        from streambank.sla.skew.traffic import as_of, measured_lines

        for name, measured in sampled.items():
            console.line()
            console.line(f"traffic of {name} by key, {as_of(measured, utc_now())}:")
            for line in measured_lines(measured):
                console.line(line)


def _health(health: dict[str, Any] | None) -> str | None:
    return None if health is None else f"{health['state']}: {health['why']}"


def _down(found: dict[str, Any]) -> str | None:
    return None if found["down_since"] is None else f"since {found['down_since']}: {found['down_why']}"


def _watched(watch: dict[str, Any] | None) -> str | None:
    if watch is None or not (watch["expected"] or watch["watched"]):
        return None
    if watch["why"]:
        return f"no, so nothing would restart it: {watch['why']}"
    if not watch["watched"]:
        return "not yet: a watcher is due"
    return f"by {watch['by']}, seen at {watch['seen_at']}"


def _site(site: dict[str, Any] | None) -> str | None:
    if site is None:
        return None
    missed = f"; the {site['unfenced']} was NOT fenced" if site["unfenced"] else ""
    return f"{site['site']}; {site['why']}{missed}"


def _left(found: dict[str, Any]) -> str | None:
    left = found["left"]
    if not left["directories"]:
        return None
    size = f"{console.size(left['bytes'])}{'' if left['counted'] else ' or more'}"
    where = "directory" if left["directories"] == 1 else "directories"
    listed = f"`streambank job clean {found['job']}` lists them"
    return f"{size} that nothing needs, in {left['directories']} {where} ({listed})"


def _desired(found: dict[str, Any]) -> str | None:
    if found["desired"] is None:
        return None
    from streambank.control.processes import person

    why = f": {found['desired_why']}" if found["desired_why"] else ""
    return f"{found['desired']}, set by {person(found['desired_by'])} at {found['desired_at']}{why}"


@app.command(epilog='Example: streambank job savepoint orders --note "before the upgrade" --pin')
def savepoint(
    job: Name,  # name is that of the savepoint
    jobs: JobsFile,
    machines: Machines,
    options: SavepointOptions,
    query: Annotated[str | None, Option("Only this query of the job.", metavar="QUERY")] = None,
    note: Note = "",
    new_repository: Annotated[
        bool,
        Option("Accept that the job's repository is lost, and create a new one in its place."),
    ] = False,
    why: Why = "",
) -> None:
    """Take a savepoint of each query of a job, running or stopped. Its driver names the sinks."""
    from streambank.cli.verbs.take import show_taken
    from streambank.job.savepoint import savepoint_job
    from streambank.work.executor import Pace

    declared = partial(job_named, job, jobs)
    executor = machines.executor(declared, parallel=PARALLEL)
    with console.progress() as progress:
        result = savepoint_job(
            declared(),
            by=_by(),
            why=why,
            query=query,
            note=note,
            new_repository=new_repository,
            pace=Pace(executor=executor, progress=progress),
            **vars(options),
        )

    def text() -> None:
        for taken in result.savepoints.values():
            show_taken(taken)

    console.answer(result.to_dict(), text)


@app.command("break", epilog='Example: streambank job break orders --why "its host burnt down"')
def break_claim(
    name: Name,
    jobs: JobsFile,
    why: Annotated[
        str, Option("How you know that the holder is dead, for the job's records.", metavar="TEXT")
    ],
    operation: Annotated[bool, Option("Break the operation lock instead of the driver's lease.")] = False,
    even_live: Annotated[
        bool,
        Option("Also break it if the holder is alive: the holder then ends itself."),
    ] = False,
) -> None:
    """Declare the holder of a job dead, if that cannot be detected from here."""
    records = job_named(name, jobs).records()
    end = (records.operation_lock if operation else records.lease).break_off
    broken = end(by=_by(), why=why, even_live=even_live)
    what = "operation" if operation else "lease"
    document = {
        "job": name,
        "what": what,
        "broken": broken is not None,
        "epoch": broken.epoch if broken is not None else None,
        "holder": broken.describe() if broken is not None else None,
        "state": broken.state if broken is not None else None,
    }

    def text() -> None:
        if broken is None:
            console.line(f"Nobody holds the {what} of job {name}; there was nothing to break.")
        else:
            console.line(f"The {what} of job {name} is broken; it was held by {broken.describe()}.")

    console.answer(document, text)


@app.command("move-records", epilog="Example: streambank job move-records orders")
def move_records(
    name: Name,
    jobs: JobsFile,
    to: Annotated[
        str | None,
        Option(
            "The control location to move them to, which is to be declared as `control` afterwards; by "
            "default the one beside the repository, which is found without.",
            metavar="LOCATION",
        ),
    ] = None,
    why: Why = "",
) -> None:
    """Move what a job remembers out of its repository, so that who writes savepoints cannot write records."""
    from streambank.job.move_records import move_records as move

    moved = move(job_named(name, jobs), to=to, by=_by(), why=why)

    def text() -> None:
        if moved.source is None:
            console.line(f"The records of job {name} are at {moved.target} already.")
            return
        files, size = console.count(moved.files, "file"), console.size(moved.bytes)
        console.line(f"The records of job {name} are at {moved.target} now; they were at {moved.source}.")
        console.line(f"{files}, {size}")
        for warning in moved.warnings:
            console.line(f"warning: {warning}")

    console.answer(moved.to_dict(), text)


@app.command("sign-records", epilog="Example: streambank job sign-records orders")
def sign_records(
    name: Name,
    jobs: JobsFile,
    unsigned: Unsigned = False,
    yes: Annotated[bool, Option("You know that what it prints is right; without, it asks.")] = False,
) -> None:
    """Sign the records that say which checkpoint counts, what runs, and what is meant to be, as they are now.

    It says that you know them to be right: look at what it prints. Where a forgery would say the same (other
    code than the declared one may run, an upgrade was interrupted, or a directory is not at the declared
    checkpoint), it needs a yes.
    """
    from streambank.job.sign_records import look_at_records
    from streambank.job.sign_records import sign_records as sign

    job = job_named(name, jobs)
    shown = look_at_records(job, unsigned=unsigned)
    if not MODE.json:
        _show_vouched(shown)
    if shown.records and shown.doubts and not (yes or MODE.json) and sys.stdin.isatty():
        yes = typer.confirm(f"Sign {console.count(shown.records, 'record')}?", err=True)
    signed = sign(job, by=_by(), unsigned=unsigned, yes=yes, shown=shown)

    def text() -> None:
        meant = f", which is meant to be {signed.desired}" if signed.desired is not None else ""
        count = console.count(signed.records, "record")
        console.line(f"{count} of job {name}{meant}: signed by key {signed.key}")

    console.answer(signed.to_dict(), text)


def _show_vouched(shown: Vouched) -> None:
    """What is vouched for: all places, the site, and what a forgery would say as well."""
    for query, places in shown.locations.items():
        for place in places:
            counts = " (counts)" if place == shown.checkpoints.get(query) else ""
            console.line(f"{query}: {place}{counts}")
    for directory in shown.directories:
        console.line(f"a refresh may remove {directory}")
    if shown.site is not None:
        console.line(f"the {shown.site['site']} is {shown.site['state']}")
    for doubt in shown.doubts:
        console.line(doubt)


app.add(history, overview, restore, clean)
