"""The verb `verify`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import (
    JobOption,
    RepositoryOption,
    SparkJobsFile,
    WorkOptions,
    declared_job,
    open_repository,
    with_progress,
)
from streambank.cli.output import console
from streambank.core.choices import DeepLevel, VerifyLevel
from streambank.core.errors import InputError, NotFoundError
from streambank.core.options import Option

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.repository.repository import Repository
    from streambank.savepoint.verify import Deeper, VerifyReport
    from streambank.work.executor import Pace

DEEP = "streambank_spark.commands.app"
"""What has Spark open the state; imported when it is asked for, since the engine does without it."""

VERIFY_EXAMPLES = """Examples:

  streambank verify b000041-5c0ffee5 -r /data/savepoints --level full

  streambank verify --all -r /data/savepoints --job orders --json

  streambank verify --all -r /data/savepoints --sample 10%

  streambank verify b000041 -r /data/savepoints --level deep
"""


def verify(
    repository: RepositoryOption,
    machines: WorkOptions,
    savepoint: Annotated[
        str | None,
        Option("A savepoint's id, or its unique beginning.", metavar="[SAVEPOINT]", positional=True),
    ] = None,
    everything: Annotated[bool, Option("Verify every savepoint (of the job).", flag="--all")] = False,
    level: Annotated[
        DeepLevel,
        Option(
            "quick: everything is there and has its size; full: every byte is hashed; "
            "deep: that, and Spark opens all state and counts its rows."
        ),
    ] = "quick",
    job: JobOption = None,
    sample: Annotated[
        str | None,
        Option(
            "With --all: hash only this share, such as 10%. Each run continues where the last one "
            "ended, so that 10 runs cover everything.",
            metavar="SHARE",
        ),
    ] = None,
    jobs: SparkJobsFile = None,
    work: Annotated[
        str | None,
        Option(
            "With --level deep: staging directory for state; on a cluster, all machines must see it.",
            metavar="LOCATION",
        ),
    ] = None,
) -> None:
    """Verify a savepoint, or all of them: exit code 1 if something is wrong. The result is recorded."""
    from streambank.repository.catalog import require_any

    if everything == (savepoint is not None):
        raise _usage("Verify needs either a savepoint or --all.")
    if sample is not None and (not everything or level != "quick" or machines.on == "spark"):
        raise _usage(
            "--sample needs --all, and cannot be combined with --level or --on spark: it hashes a share on "
            "this machine and checks the rest for existence and size."
        )
    if work is not None and level != "deep":
        raise _usage("--work needs --level deep.")

    def declared() -> Job | None:
        of = job if savepoint is None else opened.find(savepoint, job)[0]
        return None if of is None else declared_job(of, jobs)

    pace = machines.pace(declared)
    opened = open_repository(repository)
    if everything and job is not None:
        require_any(opened.store, job)
    if sample is not None:
        _verify_sample(opened, sample, job, replace(pace, executor=None))
        return
    with _deeper(level, opened, declared, machines, work) as deeper:
        if savepoint is not None:
            reports = [_verify(opened, *opened.find(savepoint, job), level, pace, deeper)]
            document: Any = reports[0].to_dict()
        else:
            which = [(each.job, each.savepoint) for each in opened.manifests(job)]
            found = (_verify_listed(opened, *each, level, pace, deeper) for each in which)
            reports = [report for report in found if report is not None]
            document = _all(reports)
    console.answer(document, lambda: show_reports(reports))
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _usage(message: str) -> InputError:
    return InputError(message, code="usage", hint="See `streambank verify --help`.")


@contextmanager
def _deeper(
    level: DeepLevel,
    opened: Repository,
    declared: Callable[[], Job | None],
    machines: WorkOptions,
    work: str | None,
) -> Iterator[Deeper | None]:
    """What looks deeper than full, for a `with`; nothing where that is not asked for.

    Raises:
        InputError: It is asked for, and Spark is not here (code `no-pyspark`).
    """
    if level != "deep":
        yield None
        return
    try:
        spark_face = importlib.import_module(DEEP)
    except ModuleNotFoundError as error:
        raise InputError(
            "--level deep needs Spark to open the state, and the package for that is not installed here: "
            f"{error}.",
            code="no-pyspark",
            hint="Install all of airflow-provider-streambank, or verify with --level full.",
        ) from error
    with spark_face.deep_look(opened, declared(), machines.master, machines.spark_conf, work) as look:
        yield look


def _verify_listed(
    opened: Repository,
    job: str,
    savepoint: str,
    level: DeepLevel,
    pace: Pace,
    deeper: Deeper | None,
) -> VerifyReport | None:
    """One of many; None where it was expired since it was listed."""
    try:
        return _verify(opened, job, savepoint, level, pace, deeper)
    except NotFoundError as error:
        if error.code != "no-such-savepoint":
            raise
        return None


def _all(reports: Sequence[VerifyReport]) -> dict[str, Any]:
    """The answer about several savepoints."""
    problems = [
        {"savepoint": report.savepoint, "job": report.job, **finding.to_dict()}
        for report in reports
        for finding in report.findings
    ]
    return {
        "ok": all(report.ok for report in reports),
        "findings": problems,
        "savepoints": [report.to_dict() for report in reports],
    }


def _verify_sample(opened: Repository, sample: str, job: str | None, pace: Pace) -> None:
    from streambank.control.processes import who
    from streambank.repository.coverage import parse_share
    from streambank.savepoint.sampling import verify_sample

    with with_progress(pace) as shown:
        found = verify_sample(opened, parse_share(sample), job=job, pace=shown, by=who("cli"))
    document = _all(found.savepoints)
    document["ok"] = document["ok"] and not found.findings
    document["findings"] += [
        {"savepoint": None, "job": None, **finding.to_dict()} for finding in found.findings
    ]
    document["sample"] = found.to_dict()

    def text() -> None:
        show_reports(found.savepoints)
        console.findings([finding.to_dict() for finding in found.findings])
        console.line(
            f"hashed {console.count(found.objects, 'object')} of {found.all_objects:,}, "
            f"{console.size(found.bytes)} of {console.size(found.all_bytes)}; "
            f"{console.count(found.runs, 'run')} like this cover everything"
        )

    console.answer(document, text)
    if not document["ok"]:
        raise typer.Exit(1)


def _verify(
    opened: Repository,
    job: str,
    savepoint: str,
    level: DeepLevel,
    pace: Pace,
    deeper: Deeper | None,
) -> VerifyReport:
    from streambank.control.processes import who
    from streambank.savepoint.verify import verify as verify_savepoint

    look: VerifyLevel = "quick" if level == "quick" else "full"
    with with_progress(pace) as shown:
        return verify_savepoint(opened, job, savepoint, look, pace=shown, by=who("cli"), deeper=deeper)


def show_reports(reports: Sequence[VerifyReport]) -> None:
    """What verifications found, for people."""
    if not reports:
        console.line("No savepoints.")
    for report in reports:
        state = "ok" if report.ok else "findings" if report.restorable else "DAMAGED"
        extent = (
            f"{console.count(report.files, 'file')}, {console.size(report.bytes)}, {report.seconds:.1f} s"
        )
        console.line(f"{report.job} {report.savepoint}: {state} ({report.level}: {extent})")
        console.findings([finding.to_dict() for finding in report.findings])


VERBS = {"verify": (verify, VERIFY_EXAMPLES)}
