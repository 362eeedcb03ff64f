"""The verb `restore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import (
    DryRun,
    RepositoryOption,
    WorkOptions,
    brokers_of,
    declared_job,
    jobs_option,
    open_repository,
    with_progress,
)
from streambank.cli.output import console
from streambank.core.errors import InputError, IntegrityError, NotFoundError, StorageError
from streambank.core.options import Option
from streambank.core.verb_options import RestoreOptions

if TYPE_CHECKING:
    from streambank.control.control import JobControl
    from streambank.declaration.declaration import Job
    from streambank.kafka.settings import KafkaConnection
    from streambank.recovery.choosing.resolve import Chosen
    from streambank.recovery.plan import RestorePlan
    from streambank.recovery.report import RestoreReport
    from streambank.recovery.together import TogetherPlan, TogetherReport
    from streambank.repository.repository import Repository

EXAMPLES = """Examples:

  streambank restore latest-good --jobs streaming_jobs.toml --job orders --generation --dry-run

  streambank restore 03:00 --jobs streaming_jobs.toml --job orders --generation --sink rollback

  streambank restore latest-good --jobs streaming_jobs.toml --job orders --generation --from nearest

  streambank restore b000041 -r /data/savepoints --into /data/checkpoints/orders-2 --sink rollback

  streambank restore b000041 -r /data/savepoints --into /data/checkpoints/trial --mode fork \\
    --new-sink /data/out=/data/trial-out
"""


def restore(
    options: RestoreOptions,
    own_repository: RepositoryOption,  # that of the options is where the savepoint comes from
    work: WorkOptions,
    savepoint: Annotated[
        str,
        Option(
            "A savepoint's id or its unique beginning, its name, latest, a batch (batch:41), or a time "
            "(03:00, 2026-11-26T03:00): the newest from then or before; latest-good is the newest that "
            "verifies.",
            metavar="SAVEPOINT|latest-good",
            positional=True,
        ),
    ],
    job: Annotated[str | None, Option("The job of the savepoint: job, or job/query.", metavar="NAME")] = None,
    generation: Annotated[
        bool, Option("Restore as the job's next generation, and switch the job to it.")
    ] = False,
    dry_run: DryRun = False,
    jobs: Annotated[str | None, jobs_option("The file that declares the job, and its repository.")] = None,
) -> None:
    """Restore a savepoint into an empty directory, or into the next generation of its job."""
    from streambank.control.processes import who
    from streambank.core.names import QueryRef
    from streambank.core.restore_choices import parse_file_sinks
    from streambank.recovery.choosing.nearest import NEAREST
    from streambank.recovery.choosing.together import from_place
    from streambank.recovery.request import RestoreRequest, TogetherRequest
    from streambank.recovery.together import plan_together, restore_together
    from streambank.storage import open_store

    into = options.into
    if (into is not None) == generation:
        raise InputError(
            "A restore needs either --into DIR or --generation.",
            code="usage",
            hint="See `streambank restore --help`.",
        )
    pace = work.pace(lambda: owner.declared)
    if dry_run:
        pace = replace(pace, max_bytes_per_s=None)
    place, of_job = _place(options, own_repository, job, jobs)
    chosen: Mapping[str, Chosen] | None = None
    owner, query = _owner(of_job, own_repository, jobs, guess=not generation), QueryRef.parse(of_job).name
    by = who("cli")
    with with_progress(pace) as shown:
        if place is None:
            assert owner.declared is not None
            place, chosen = from_place(
                owner.declared,
                NEAREST,
                savepoint,
                control=owner.records,
                target=into or str(owner.checkpoint),
                record=not dry_run,
                query=query,
                by=by,
                pace=shown,
            )
        each = RestoreRequest(
            place,
            savepoint,
            job=of_job,  # which savepoints are of its line is known by its records
            into=open_store(into) if into is not None else None,
            generation=owner.records if generation else None,
            control=None if generation else owner.records,
            guessed=owner.declared is None,
            mode=options.mode,
            sink=options.sink,
            sink_of=options.sink_of,
            source=options.source,
            kafka=brokers_of(options.kafka, owner.kafka),
            new_sinks=options.new_sinks,
            link=options.link,
            by=by,
        )
        file_sinks = parse_file_sinks(options.file_sinks, (query,))
        request = TogetherRequest(
            each, owner.declared, query, chosen=chosen, file_sinks=file_sinks, whole=True
        )
        found = plan_together(request, pace=shown) if dry_run else restore_together(request, pace=shown)
    answer(found.to_dict()["queries"][query], [found])


def _place(
    options: RestoreOptions, own_repository: str, job: str | None, jobs: str | None
) -> tuple[Repository | None, str]:
    """Where the savepoint comes from, None for the nearest place, and of which job or query it is."""
    from streambank.recovery.choosing.nearest import NEAREST
    from streambank.recovery.choosing.resolve import hinting_refresh
    from streambank.repository.references import job_of_reference

    origin, declared = options.repository, None if job is None else declared_job(job, jobs)
    if origin != NEAREST:
        place = _open(origin or own_repository, job, jobs if origin is None else None)
        with hinting_refresh(declared):
            return place, job_of_reference(place.store, options.savepoint, job)
    if job is None or declared is None:
        raise InputError(
            "--from nearest needs a declared job, whose replicas it knows.",
            code="usage",
            hint="Give --jobs FILE and --job NAME, or name the replica: --from LOCATION.",
        )
    return None, job


def _open(location: str, job: str | None, jobs: str | None) -> Repository:
    """The repository there; where it is lost, the error names the replicas that the job declares."""
    try:
        return open_repository(location)
    except (NotFoundError, IntegrityError, StorageError) as error:
        declared = None if job is None else declared_job(job, jobs)
        if declared is not None and declared.replicate.to:
            error.hint = f"{error.hint} To restore from a replica of it, give --from nearest."
        raise


@dataclass(frozen=True, slots=True)
class _Owner:
    """The job whose savepoint it is.

    Attributes:
        checkpoint: The checkpoint that its declaration names for the query, where there is a declaration.
        kafka: How it says that Kafka is reached.
    """

    records: JobControl
    checkpoint: str | None = None
    declared: Job | None = None
    kafka: KafkaConnection | None = None


def _owner(of_job: str, repository: str, jobs: str | None, *, guess: bool) -> _Owner:
    """Find the records of the savepoint's job: by its repository, unless a jobs file says otherwise."""
    from streambank.control.control import JobControl
    from streambank.core.names import QueryRef
    from streambank.storage import open_store

    asked, declared = QueryRef.parse(of_job), declared_job(of_job, jobs)
    if declared is None:
        return _Owner(JobControl.of_repository(open_store(repository), asked.job, guess=guess))
    return _Owner(declared.records(), declared.queries.get(asked.name), declared, declared.kafka)


def answer(found: dict[str, Any], done: Sequence[TogetherPlan | TogetherReport]) -> None:
    """Say what restores would do, or have done; what speaks against a plan gives the exit code.

    Args:
        found: The same as JSON.
    """
    from streambank.recovery.together import TogetherPlan

    def text() -> None:
        for one in done:
            if isinstance(one, TogetherPlan):
                plan = one
                for planned in one.plans.values():
                    _show_plan(planned)
            else:
                plan = one.plan
                for report in one.reports.values():
                    _show_done(report)
            for query in plan.done:
                console.line(f"query {query} was restored already, by the restore that was not finished")
            if len(plan.plans) > 1:
                console.line(f"The savepoints were taken within {console.age(plan.skew_s)} of each other.")

    console.answer(found, text)
    for one in done:
        if isinstance(one, TogetherPlan):
            for refusal in one.refusals:
                raise typer.Exit(refusal.exit_code)


def _show_plan(plan: RestorePlan) -> None:
    """What a restore would do, for people; what a refusal says is not said twice."""
    if plan.another_line:
        console.line(plan.another_line)  # first: whose savepoint it is decides over all the rest
    console.line(
        f"would restore savepoint {plan.savepoint} of {plan.job}, batch {plan.batch}, into {plan.place}"
    )
    said = [plan.another_line, *(refusal.message for refusal in plan.refusals)]
    console.fields([row for row in plan.shown_rows() if not any(text.startswith(row[1]) for text in said)])
    for refusal in plan.refusals:
        console.line(f"refused: {refusal.message}")
        if refusal.hint:
            console.line(f"  hint: {refusal.hint}")


def _show_done(done: RestoreReport) -> None:
    """What a restore came to, for people."""
    plan = done.plan
    console.line(f"restored savepoint {plan.savepoint} of {plan.job}, batch {plan.batch}, into {plan.place}")
    console.fields(done.shown_rows())


VERBS = {"restore": (restore, EXAMPLES)}
