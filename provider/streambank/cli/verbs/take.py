"""`take`: a savepoint of a checkpoint. `import`: one of a copy of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from streambank.cli.options import (
    Checkpoint,
    KafkaJobsFile,
    LockOptions,
    Note,
    Parallel,
    RepositoryOption,
    WorkOptions,
    brokers_of,
    declared_job,
    with_progress,
)
from streambank.cli.output import console
from streambank.core.choices import CLOSURE_KINDS
from streambank.core.errors import check_choice
from streambank.core.options import Option
from streambank.core.verb_options import ImportOptions, TakeOptions

if TYPE_CHECKING:
    from streambank.control.control import JobControl
    from streambank.declaration.declaration import Job
    from streambank.savepoint.import_copy import Imported
    from streambank.savepoint.sinks import SinkCapture
    from streambank.savepoint.take import TakeResult
    from streambank.sinks.declared import DeclaredSink
    from streambank.storage.store import Store

EXAMPLES = """Examples:

  streambank take /data/checkpoints/orders -r /data/savepoints --job orders

  streambank take /data/checkpoints/orders -r /data/savepoints --job orders --file-sink /data/out --pin

  streambank take /data/checkpoints/orders -r /data/savepoints --job orders --name before-upgrade --pin

  streambank take s3a://live/orders -r s3://backups/streambank --job orders --master spark://spark:7077
"""

IMPORT_EXAMPLES = """Examples:

  streambank import /backup/orders-monday -r /data/savepoints --job orders

  streambank import s3://backup/orders -r s3://lake/savepoints --job orders --jobs streaming_jobs.toml
"""
OfJob = Annotated[str, Option("The job of the savepoint: job, or job/query.", flag="--job", metavar="NAME")]


def take(
    checkpoint: Checkpoint,
    repository: RepositoryOption,
    job: OfJob,
    options: TakeOptions,
    work: WorkOptions,
    locked: LockOptions,
    kafka_sink: Annotated[
        str | None, Option("The topic of a Kafka sink of the query.", metavar="TOPIC")
    ] = None,
    jobs: KafkaJobsFile = None,
    note: Note = "",
    gentle: Annotated[
        bool,
        Option("Give way to other work on this machine, such as the query."),
    ] = False,
) -> None:
    """Take a savepoint of a checkpoint, whether its query runs or not. Only reads the checkpoint."""
    from streambank.checkpoint.reader import CheckpointReader
    from streambank.cli.verbs.savepoints import declared_kafka
    from streambank.control.processes import who
    from streambank.core.names import QueryRef
    from streambank.declaration.kafka import kafka_sink as capture_of
    from streambank.declaration.kafka import kafka_sources
    from streambank.inputs.folders import check_new_repository
    from streambank.job.import_copy import refuse_lost
    from streambank.job.savepoint import managed_take, record_taken, with_found_sinks
    from streambank.repository.repository import Repository
    from streambank.savepoint.take import TakeRequest
    from streambank.savepoint.take import take as take_savepoint
    from streambank.sinks.file.capture import FileSinkCapture
    from streambank.storage import open_store
    from streambank.work.pace import give_way

    pace = work.pace(partial(declared_job, job, jobs))
    if gentle:
        give_way()
    source = open_store(checkpoint)
    CheckpointReader(source).query_id()  # before a repository is made for nothing
    place = open_store(repository)
    check_new_repository(place, source, options.file_sinks)
    declared = declared_job(job, jobs)
    refuse_lost(declared, QueryRef.parse(job), place, source)
    target = Repository.open(place, create=True, like=source.uri, lock=locked.policy())
    brokers = brokers_of(options.kafka, declared_kafka(job, jobs))
    named: list[SinkCapture] = [FileSinkCapture(location) for location in options.file_sinks]
    if kafka_sink is not None:
        facts = {"kafka": {"sink": {"bootstrap": options.kafka, "topic": kafka_sink}}}
        named += [sink for sink in (capture_of(facts, source, brokers),) if sink is not None]
    usual = "safe" if declared is None else declared.savepoint.closure
    request = TakeRequest(
        source,
        target,
        job,
        batch=options.batch,
        closure=check_choice(options.closure or usual, "closure", CLOSURE_KINDS),
        sinks=named,
        sources=kafka_sources({}, brokers),
        note=note,
        name=options.name or "",
        pin=options.pin,
        taken_by={"via": "cli"},
        new_query=options.new_query,
    )
    managed = _managed(target.store.uri, job, jobs, source)
    if managed is not None:
        request = managed_take(request, managed.control, managed.query, brokers, managed.sinks)
    request = with_found_sinks(request, _owners(source, jobs))
    with with_progress(pace) as shown:
        result = take_savepoint(request, pace=shown)
    if managed is not None:
        by, generation = who("cli"), managed.generation
        record_taken(managed.control, managed.query, result, generation=generation, by=by)
    console.answer(result.to_dict(), lambda: show_taken(result))


def import_copy(
    copy: Annotated[
        str, Option("A copy of the checkpoint: a directory, or its URI.", metavar="COPY", positional=True)
    ],
    options: ImportOptions,
    repository: RepositoryOption,
    job: OfJob,
    jobs: KafkaJobsFile = None,
    note: Note = "",
    parallel: Parallel = None,
) -> None:
    """Make a copy of a checkpoint a savepoint, once it is verified. Only reads the copy.

    A copy of a query that ran is seldom whole at its newest batch: the newest whole one is taken.
    """
    from streambank.control.processes import who
    from streambank.job.import_copy import ImportRequest, import_of_job
    from streambank.storage import open_store
    from streambank.work.executor import Pace

    request = ImportRequest(
        copy,
        open_store(repository),
        job,
        job=declared_job(job, jobs),
        note=note,
        by=who("cli"),
        **vars(options),
    )
    with with_progress(Pace(parallel=parallel)) as pace:
        result = import_of_job(request, pace=pace)
    console.answer(result.to_dict(), lambda: _show_imported(result))


def _show_imported(result: Imported) -> None:
    show_taken(result.taken)
    console.fields([("copy", result.source), ("batch planned at", result.to_dict()["batch_at"])])
    for one in result.passed_over:
        console.line(f"not whole: batch {one.batch}: {one.why}")


@dataclass(frozen=True, slots=True)
class _Managed:
    """The records of a managed job, and which of its queries and generations a checkpoint is."""

    control: JobControl
    query: str
    generation: int
    sinks: tuple[DeclaredSink, ...]


def _managed(repository: str, name: str, jobs: str | None, checkpoint: Store) -> _Managed | None:
    """Look whether a job of this name has records, declared or beside the savepoints, and this checkpoint."""
    from streambank.control.control import JobControl
    from streambank.core.names import QueryRef
    from streambank.storage import open_store, same_place

    asked = QueryRef.parse(name)
    declared = declared_job(asked.job, jobs)
    control = declared.records() if declared else JobControl.of_repository(open_store(repository), asked.job)
    generation = control.generation(asked.query)
    if generation is None or not same_place(generation.location, checkpoint.uri):
        return None
    sinks = declared.sinks if declared is not None else ()
    return _Managed(control, asked.name, generation.number, sinks)


def _owners(checkpoint: Store, jobs: str | None) -> list[tuple[Job, str]]:
    """The declared jobs whose checkpoint it is, whatever the savepoint's job is called."""
    from streambank.declaration.load import read_jobs
    from streambank.job.savepoint import owners_of

    return [] if jobs is None else owners_of(read_jobs(jobs).jobs.values(), checkpoint.uri)


def show_taken(result: TakeResult) -> None:
    """What a take came to, for people."""
    called = f" ({result.name})" if result.name else ""
    console.line(f"savepoint {result.savepoint}{called} of {result.job}, batch {result.batch}")
    if result.already_there:
        console.line("It was there already; nothing was written.")
    else:
        size, new = console.size(result.bytes), console.size(result.new_bytes)
        console.line(
            f"{console.count(result.files, 'file')}, {size}, of which {new} are new; {result.seconds:.1f} s"
        )
        if result.replans:
            again = console.count(result.replans, "time")
            console.line(f"The query moved on {again} while files were copied, so the plan was made again.")
    for warning in result.warnings:
        console.line(f"warning: {warning}")


VERBS = {
    "take": (take, EXAMPLES),
    "import": (import_copy, IMPORT_EXAMPLES),
}
