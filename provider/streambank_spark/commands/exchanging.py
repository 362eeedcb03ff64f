"""`job compact` and `job rescale`: the state of a declared job is exchanged for one made of its savepoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from streambank.cli.options import JobName, JobsFile, Note, Why
from streambank.cli.output import console
from streambank.cli.verb_options import Commands
from streambank.core.options import Option
from streambank.core.state_options import ExpireKeysOptions
from streambank_spark.commands.rewrite import Partitions, say, show_going
from streambank_spark.commands.subject import SparkOptions, spark_of, staging_of
from streambank_spark.private.own_pyspark import use_own_pyspark

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.recovery.exchange_state import ExchangeResult
    from streambank.repository.repository import Repository
    from streambank_spark.rewrite.derive import Derived
    from streambank_spark.rewrite.rewrite_request import RewriteRequest

COMPACT_EXAMPLE = "Example: streambank job compact orders --idle-for 30d --why 'too many old customers'"
RESCALE_EXAMPLE = "Example: streambank job rescale orders --partitions 64"


@dataclass(kw_only=True)
class ExchangeOptions:
    """Of which query the state is exchanged, and how."""

    query: Annotated[str | None, Option("The query to change, if the job has several.", metavar="QUERY")] = (
        None
    )
    force_after_s: Annotated[
        float | None,
        Option(
            "Force the stop if no batch boundary is reached within this time, such as 60s. The job then "
            "goes on unchanged."
        ),
    ] = None
    why: Why = ""
    note: Note = ""


def compact(
    name: JobName,
    jobs: JobsFile,
    expired: ExpireKeysOptions,
    options: ExchangeOptions,
    spark: SparkOptions,
) -> None:
    """Stop a job, remove expired keys, and start it again. If anything fails, it goes on unchanged."""
    job = _loaded(jobs, name)
    from streambank_spark.rewrite.rewrite_request import RewriteRequest

    order = RewriteRequest(operation="compact", note=options.note, **vars(expired))
    _exchange(order, job, options, spark)


def rescale(
    name: JobName,
    jobs: JobsFile,
    partitions: Partitions,
    options: ExchangeOptions,
    spark: SparkOptions,
) -> None:
    """Stop a job, change its number of state partitions, and start it. If this fails it is unchanged."""
    job = _loaded(jobs, name)
    from streambank_spark.rewrite.rewrite_request import RewriteRequest

    order = RewriteRequest(operation="rescale", partitions=partitions, note=options.note)
    _exchange(order, job, options, spark)


compact_app = Commands(name="compact", add_completion=False)
compact_app.command(epilog=COMPACT_EXAMPLE)(compact)
rescale_app = Commands(name="rescale", add_completion=False)
rescale_app.command(epilog=RESCALE_EXAMPLE)(rescale)


def _loaded(jobs: str, name: str) -> Job:
    """The job, once this process has the Spark that works on its state: before anything imports PySpark.

    Which Spark the job itself runs on is settled before that, since it is started again in this process.
    """
    from dataclasses import replace

    from streambank.declaration.load import read_jobs
    from streambank.driver.installed import installation_for_state, installation_of

    job = read_jobs(jobs).around(name).job(name)
    works_on_state = installation_for_state(job)
    if not job.launch.in_cluster:
        job = replace(job, spark_home=str(installation_of(job).spark_home))
    use_own_pyspark(works_on_state.spark_home)
    return job


def _exchange(order: RewriteRequest, job: Job, options: ExchangeOptions, given: SparkOptions) -> None:
    order.check()
    from streambank.control.processes import who
    from streambank.declaration.launch import is_local
    from streambank.recovery.exchange_state import exchange
    from streambank.recovery.foresee import foresee
    from streambank_spark.rewrite.request import check_where

    query = options.query
    spark = declared_spark(job, query, given)
    foresee(job, query, order.to_dict(), elsewhere=not is_local(spark.master))
    by = who("cli")
    with spark_of(spark) as session, console.progress() as progress:
        if order.where is not None:
            check_where(session, job.records().generation(query), order)
        made: list[Derived] = []

        def make(repository: Repository, of: str, savepoint: str) -> str | None:
            from streambank_spark.rewrite.derive import SourceSavepoint
            from streambank_spark.rewrite.request import carry_out

            staging = staging_of(spark, progress)
            source = SourceSavepoint(session, repository, of, savepoint, staging, by, say)
            made.append(carry_out(source, order))
            return made[-1].savepoint

        result = exchange(
            job,
            make,
            by=by,
            query=query,
            why=options.why,
            force_after_s=options.force_after_s,
            progress=progress,
        )
    (derived,) = made
    document = result.to_dict() | {"operation": order.operation, "rewritten": derived.to_dict()}
    console.answer(document, lambda: _show(result, derived))


def declared_spark(job: Job, query: str | None, given: SparkOptions) -> SparkOptions:
    """By which Spark a job's state is worked on: as the command says, else as the job declares."""
    conf = {**job.spark, **job.state.spark}
    return SparkOptions(
        master=given.master or job.state.master or job.master,
        spark_conf=(*(f"{key}={value}" for key, value in conf.items()), *given.spark_conf),
        work=given.work or job.work_location(query),
    )


def _show(result: ExchangeResult, derived: Derived) -> None:
    done = {"exchanged": "has new state", "nothing-to-do": "is unchanged: nothing has expired"}
    goes_on = "runs" if result.running else "stays stopped"
    console.line(f"job {result.job} {done[result.state]}, and {goes_on}")
    fields: list[tuple[str, Any]] = [
        ("batch", result.batch),
        ("generation", result.generation),
        ("savepoint", result.savepoint),
        ("to go back", result.before),
    ]
    console.fields(fields)
    show_going(derived)
