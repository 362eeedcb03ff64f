"""`job restore`: all queries of a job are restored as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated

from streambank.cli.options import DryRun, JobName, JobsFile, Machines, Why, job_named
from streambank.cli.output import console
from streambank.core.options import Option
from streambank.core.verb_options import RestoreJobOptions

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.recovery.choosing.resolve import Chosen
    from streambank.repository.repository import Repository

_PARALLEL = 4
"""Files hashed and copied at once."""
EXAMPLES = """Examples:

  streambank job restore orders --sink rollback --dry-run

  streambank job restore orders latest --jobs dags/streaming_jobs.toml

  streambank job restore orders 03:00 --with reports --sink rollback
"""


def restore(
    name: JobName,
    jobs: JobsFile,
    options: RestoreJobOptions,
    machines: Machines,
    readers: Annotated[
        tuple[str, ...],
        Option(
            "Restore this job first, which reads what the job writes, to its newest savepoints from before.",
            flag="--with",
            metavar="JOB",
        ),
    ] = (),
    dry_run: DryRun = False,
    why: Why = "",
) -> None:
    """Restore all queries of a stopped job as one, each into its next generation."""
    from streambank.cli.options import brokers_of
    from streambank.cli.verbs.recovery.restore import answer
    from streambank.control.processes import who
    from streambank.core.restore_choices import parse_file_sinks
    from streambank.core.units import to_json_time
    from streambank.recovery.choosing.together import from_place
    from streambank.recovery.request import RestoreRequest, TogetherRequest
    from streambank.recovery.together import TogetherPlan, TogetherReport, plan_together, restore_together
    from streambank.work.executor import Pace

    declared = cache(partial(job_named, name, jobs))
    executor = machines.executor(declared, parallel=_PARALLEL)
    job, by = declared(), who("cli")

    def of_job(
        of: Job,
        repository: Repository,
        wanted: RestoreJobOptions,
        chosen: Mapping[str, Chosen] | None = None,
    ) -> TogetherRequest:
        each = RestoreRequest(
            repository,
            wanted.savepoint,
            generation=of.records(),
            sink=wanted.sink,
            sink_of=wanted.sink_of,
            source=wanted.source,
            kafka=brokers_of(wanted.kafka, of.kafka),
            by={**by, "reason": why} if why else by,
        )
        sinks = parse_file_sinks(wanted.file_sinks, of.queries)
        return TogetherRequest(each, of, chosen=chosen, file_sinks=sinks, restored_with=readers)

    plans: list[TogetherPlan] = []
    with console.progress() as progress:
        pace = Pace(executor=executor, progress=progress)
        place = from_place(
            job,
            options.repository,
            options.savepoint,
            control=job.records(),
            target=next(iter(job.queries.values())),
            record=not dry_run,
            by=by,
            pace=pace,
        )
        asked = [of_job(job, place[0], options, place[1])]
        if dry_run or readers:
            plans = [plan_together(asked[0], pace=pace)]
            shown = plans[0].plans
            taken_at = [one.taken_at for one in shown.values()]
            before = to_json_time(min(taken_at)) if taken_at else options.savepoint
            wanted = replace(options, savepoint=before, sink_of={}, file_sinks=())  # these are the job's own
            reading = [job_named(reader, jobs) for reader in readers]
            asked = [*(of_job(reader, reader.open_repository(), wanted) for reader in reading), *asked]
            plans = [*(plan_together(one, pace=pace) for one in asked[:-1]), *plans]
        done: list[TogetherPlan] | list[TogetherReport] = plans
        if not dry_run:
            for plan in plans:  # what speaks against one of several jobs is raised before any is changed
                for refusal in plan.refusals:
                    raise refusal
            if plans and asked[-1].chosen is None:
                chosen = {query: one.savepoint for query, one in plans[-1].plans.items()}
                asked[-1] = replace(asked[-1], savepoints=chosen)
            done = [restore_together(one, pace=pace) for one in asked]
    *of_readers, found = [one.to_dict() for one in done]
    answer({**found, "readers": of_readers} if readers else found, done)


VERBS = {"restore": (restore, EXAMPLES)}
