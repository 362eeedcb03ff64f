"""The verb `doctor`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import OptionalJobsFile, declared_job, known_repository
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank.core.options import Option

if TYPE_CHECKING:
    from streambank.doctor.diagnose import Diagnosis

EXAMPLES = """Examples:

  streambank doctor

  streambank doctor /data/checkpoints/orders --file-sink /data/out -r /data/savepoints

  streambank doctor --job orders --jobs dags/streaming_jobs.toml

  streambank doctor --job orders -r /data/savepoints

  streambank doctor --job orders --jobs dags/streaming_jobs.toml --spark 4.3
"""


@dataclass(kw_only=True)
class DoctorOptions:
    """The checkpoint or job to examine; without one, the installation alone."""

    checkpoint: Annotated[
        str | None, Option("Also check this checkpoint directory.", metavar="[CHECKPOINT]", positional=True)
    ] = None
    file_sinks: Annotated[
        tuple[str, ...],
        Option("Output directory of a file sink of its query.", flag="--file-sink", metavar="DIR"),
    ] = ()
    job: Annotated[
        str | None,
        Option(
            "Check this job, or job/query: as the jobs file declares it, else with the checkpoint that "
            "its savepoints in -r come from. With a CHECKPOINT: the job name of its savepoints.",
            metavar="NAME",
        ),
    ] = None
    jobs: OptionalJobsFile = None
    repository: Annotated[
        str | None,
        # Not from the environment as elsewhere: a declared job names its own.
        Option(
            "The repository of the savepoints; that of a declared job is known.",
            flag="--repository -r",
            metavar="LOCATION",
        ),
    ] = None
    spark: Annotated[
        str | None,
        Option("Also check whether it could go on with this Spark: 4.3.", metavar="VERSION"),
    ] = None


def doctor(options: DoctorOptions) -> None:
    """Find problems of this installation, a checkpoint or a job: exit code 1 for errors and warnings."""
    from streambank.doctor.checks.installation import check_installation, facts, worst

    found = check_installation()
    diagnoses = _diagnoses(options)
    if not diagnoses:
        from pathlib import Path

        from streambank.doctor.checks.locations import check_unnamed

        found += check_unnamed(Path("/tmp"))  # where Java keeps temporary files
    everything = [*found, *(finding for one in diagnoses for finding in one.findings)]
    document = {
        "ok": worst(everything) in ("ok", "info"),
        "versions": facts(),
        "job": diagnoses[0].job if diagnoses else None,
        "checkpoint": diagnoses[0].checkpoint if len(diagnoses) == 1 else None,
        "findings": [
            *({**finding.to_dict(), "query": None} for finding in found),
            *({**finding.to_dict(), "query": one.query} for one in diagnoses for finding in one.findings),
        ],
    }
    console.answer(document, lambda: _show(document, len(diagnoses) > 1))
    if not document["ok"]:
        raise typer.Exit(1)


def _diagnoses(options: DoctorOptions) -> tuple[Diagnosis, ...]:
    """What is found of a checkpoint or a job; nothing where neither is named.

    Raises:
        InputError: Options do not go together (code `usage`), or the jobs file is wrong.
        NotFoundError: There is no such job or checkpoint.
    """
    from streambank.doctor.diagnose import diagnose_checkpoint, diagnose_job
    from streambank.storage import normalize_location, open_store

    checkpoint, repository, job = options.checkpoint, options.repository, options.job
    jobs, sinks, spark = options.jobs, options.file_sinks, options.spark
    named = {location: open_store(location) for location in sinks}
    if spark is not None:
        from streambank.doctor.checks.releases import version_asked

        spark = version_asked(spark)
    if checkpoint is not None:
        if job is not None and repository is None and (repository := known_repository()) is None:
            raise _usage("--job beside a CHECKPOINT names its savepoints, so it needs -r, their repository.")
        return (diagnose_checkpoint(checkpoint, sinks=named, repository=repository, name=job, spark=spark),)
    if job is None:
        if repository is not None or sinks or spark is not None:
            option = "--file-sink" if sinks else "-r" if repository is not None else "--spark"
            raise _usage(f"{option} needs a CHECKPOINT or --job.")
        return ()
    from streambank.control.marker import records_root
    from streambank.core.names import QueryRef
    from streambank.declaration.load import read_jobs

    asked = QueryRef.parse(job)
    declared = declared_job(job, jobs)
    if declared is None and repository is not None:
        from streambank.doctor.subject import saved_checkpoint

        place = saved_checkpoint(repository, asked)
        return (diagnose_checkpoint(place, sinks=named, repository=repository, name=job, spark=spark),)
    if sinks:
        raise _usage("--file-sink is for a checkpoint: the outputs of a declared job are known.")
    if jobs is None:
        raise _usage("--job needs --jobs, the file that declares the job, or -r, where its savepoints are.")
    all_jobs = read_jobs(jobs)
    declared = all_jobs.around(asked.job).job(asked.job)
    if repository is not None:
        own = records_root(declared.records())
        declared = replace(declared, repository=normalize_location(repository), control=own)
    declared.queries_named(asked.query)
    return diagnose_job(declared, asked.query, jobs=all_jobs, spark=spark)


def _usage(message: str) -> InputError:
    return InputError(message, code="usage", hint="See `streambank doctor --help`.")


def _show(document: dict[str, Any], several: bool) -> None:
    console.fields([(name, version or "not installed") for name, version in document["versions"].items()])
    console.line()
    if not document["findings"]:
        console.line("No problems found.")
        return
    if not several:
        console.findings(document["findings"])
        return
    for query in dict.fromkeys(finding["query"] for finding in document["findings"]):
        console.line("here:" if query is None else f"query {query}:")
        console.findings([finding for finding in document["findings"] if finding["query"] == query])


VERBS = {"doctor": (doctor, EXAMPLES)}
