"""Verbs on a checkpoint: `inspect` and `take`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import (
    Batch,
    Checkpoint,
    Debug,
    Json,
    Kafka,
    KafkaJobsFile,
    Master,
    MaxRate,
    NewQuery,
    Note,
    On,
    Parallel,
    Pin,
    RepositoryOption,
    SparkConf,
    SparkProperties,
    brokers_of,
    bytes_per_s,
)
from streambank.cli.output import console
from streambank.core.choices import ClosureKind

if TYPE_CHECKING:
    from streambank.checkpoint.reader import CheckpointReader
    from streambank.control.control import JobControl
    from streambank.savepoint.sinks import SinkCapture
    from streambank.savepoint.take import TakeResult
    from streambank.storage.store import Store

INSPECT_EXAMPLES = """Examples:

  streambank inspect /data/checkpoints/orders

  streambank inspect /data/checkpoints/orders --batch 41 --json

  streambank inspect /data/checkpoints/orders --history /data/savepoints/jobs/orders/progress/main --within 6h
"""
TAKE_EXAMPLES = """Examples:

  streambank take /data/checkpoints/orders -r /data/savepoints --job orders

  streambank take /data/checkpoints/orders -r /data/savepoints --job orders --file-sink /data/out --pin

  streambank take s3a://live/orders -r s3://backups/streambank --job orders --master spark://spark:7077
"""


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog=INSPECT_EXAMPLES)(inspect)
    app.command(epilog=TAKE_EXAMPLES)(take)


def inspect(
    checkpoint: Checkpoint,
    batch: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Look at this batch instead of the newest.")
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="LOCATION",
            help="Also show progress records: <control>/<job>/progress/<query>, or one file of it.",
        ),
    ] = None,
    within: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="How much of the history to show, counted back from its newest record."
        ),
    ] = "1d",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what a checkpoint holds: query, batches, watermark, state, what is wrong. Only reads."""
    from streambank.checkpoint.reader import CheckpointReader
    from streambank.storage import open_store

    told = None if history is None else recorded(history, within)
    reader = CheckpointReader(open_store(checkpoint))
    found = reader.inspect(batch).to_dict()
    found |= {"measured": measured(reader, found), "history": told}

    def show() -> None:
        _show(found)
        show_measures(found)

    console.answer(found, show)


def _show(found: dict[str, Any]) -> None:
    batches = found["retained_batches"]
    console.fields(
        [
            ("checkpoint", found.get("checkpoint")),
            ("query id", found["query_id"]),
            ("last committed batch", found["last_committed_batch"]),
            ("last planned batch", found["last_planned_batch"]),
            ("retained batches", _ranges(batches) if batches else "none"),
            ("watermark", found["watermark"]),
        ]
    )
    rows = [
        (operator["operator"], operator["name"], store["store"], store["partitions"], store["rows"],
         console.size(store["bytes"]))
        for operator in found["operators"]
        for store in operator["stores"]
    ]  # fmt: skip
    if rows:
        console.line()
        numbers = ("operator", "partitions", "rows", "bytes")
        console.table(("operator", "name", "store", "partitions", "rows", "bytes"), rows, right=numbers)
    if found["findings"]:
        console.line()
        console.findings(found["findings"])


def _ranges(batches: list[int]) -> str:
    """`3-5, 8` for 3, 4, 5, 8."""
    runs: list[list[int]] = []
    for batch in batches:
        if runs and batch == runs[-1][1] + 1:
            runs[-1][1] = batch
        else:
            runs.append([batch, batch])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def take(
    checkpoint: Checkpoint,
    repository: RepositoryOption,
    job: Annotated[str, typer.Option(metavar="NAME", help="The job of the savepoint: job, or job/query.")],
    batch: Batch = None,
    closure: Annotated[
        ClosureKind,
        typer.Option(help="safe also keeps one older snapshot, so that Spark can repair a bad one."),
    ] = "safe",
    file_sink: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Output directory of a file sink of the query; may be repeated."),
    ] = None,
    kafka: Kafka = None,
    kafka_sink: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic of a Kafka sink of the query.")
    ] = None,
    jobs: KafkaJobsFile = None,
    note: Note = "",
    pin: Pin = False,
    new_query: NewQuery = False,
    parallel: Parallel = None,
    max_rate: MaxRate = None,
    gentle: Annotated[
        bool,
        typer.Option("--gentle", help="Give way to other work on this machine, such as the query."),
    ] = False,
    on: On = "auto",
    master: Master = None,
    spark_conf: SparkConf = None,
    spark_properties: SparkProperties = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Take a savepoint of a checkpoint, whether its query runs or not. Only reads the checkpoint."""
    from streambank.checkpoint.reader import CheckpointReader
    from streambank.cli.options import executor
    from streambank.cli.verbs.savepoints import declared_kafka
    from streambank.control.processes import who
    from streambank.declaration.kafka import kafka_sink as capture_of
    from streambank.declaration.kafka import kafka_sources
    from streambank.job.savepoint import managed_take, record_taken
    from streambank.repository.header import check_apart
    from streambank.repository.repository import Repository
    from streambank.savepoint.take import TakeRequest
    from streambank.savepoint.take import take as take_savepoint
    from streambank.sinks.file.capture import FileSinkCapture
    from streambank.storage import open_store
    from streambank.work.executor import Pace
    from streambank.work.pace import give_way

    rate = bytes_per_s(max_rate)
    machines = executor(on, master, spark_conf, spark_properties, parallel, rate)
    if gentle:
        give_way()
    source = open_store(checkpoint)
    CheckpointReader(source).query_id()  # before a repository is made for nothing
    place = open_store(repository)
    check_apart(place, source.uri)
    _refuse_lost(place, job, jobs, source)
    target = Repository.open(place, create=True)
    brokers = brokers_of(kafka, declared_kafka(job, jobs))
    named: list[SinkCapture] = [FileSinkCapture(location) for location in file_sink or []]
    if kafka_sink is not None:
        facts = {"kafka": {"sink": {"bootstrap": kafka, "topic": kafka_sink}}}
        named += [one for one in (capture_of(facts, source, brokers),) if one is not None]
    request = TakeRequest(
        source,
        target,
        job,
        batch=batch,
        closure=closure,
        sinks=named,
        sources=kafka_sources({}, brokers),
        note=note,
        pin=pin,
        taken_by={"via": "cli"},
        new_query=new_query,
    )
    managed = _managed(target.store.uri, job, jobs, source)
    if managed is not None:
        request = managed_take(request, managed.control, managed.query, brokers)
    with console.progress() as progress:
        pace = Pace(parallel=parallel, max_bytes_per_s=rate, executor=machines, progress=progress)
        result = take_savepoint(request, pace=pace)
    if managed is not None:
        by, generation = who("cli"), managed.generation
        record_taken(managed.control, managed.query, result, generation=generation, by=by)
    console.answer(result.to_dict(), lambda: show_taken(result))


@dataclass(frozen=True, slots=True)
class _Managed:
    """The records of a managed job, and which of its queries and generations a checkpoint is."""

    control: JobControl
    query: str
    generation: int


def _refuse_lost(repository: Store, name: str, jobs: str | None, checkpoint: Store) -> None:
    """Make no repository in the place of a declared job's own, where that or the job's records are lost."""
    from streambank.cli.verbs.savepoints import declared_job
    from streambank.core.names import QueryRef
    from streambank.driver.preflight import check_records, declared_query, savepoints_lost
    from streambank.storage import open_store

    declared, query = declared_job(name, jobs), QueryRef.parse(name).name
    if (
        declared is None
        or query not in declared.queries
        or open_store(declared.repository).uri != repository.uri
    ):
        return
    asked = declared_query(declared, query, declared.records())
    if checkpoint.uri.startswith(asked.checkpoint):
        check_records(asked)
        lost = savepoints_lost(asked)
        if lost is not None:
            raise lost


def _managed(repository: str, name: str, jobs: str | None, checkpoint: Store) -> _Managed | None:
    """Look whether a job of this name has records, declared or beside the savepoints, and this checkpoint."""
    from streambank.cli.verbs.savepoints import declared_job
    from streambank.control.control import JobControl
    from streambank.core.names import QueryRef

    asked = QueryRef.parse(name)
    declared = declared_job(asked.job, jobs)
    control = declared.records() if declared else JobControl.open(f"{repository}/jobs", asked.job)
    generation = control.generation(asked.query)
    if generation is None or generation.location != checkpoint.uri:
        return None
    return _Managed(control, asked.name, generation.number)


def show_taken(result: TakeResult) -> None:
    """What a take came to, for people."""
    console.line(f"savepoint {result.savepoint} of {result.job}, batch {result.batch}")
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


_MOST_PARTITIONS = 24
_FEW_STORES = 500
"""So many stores' files are opened where the inspection itself found too many to open."""


def measured(reader: CheckpointReader, found: dict[str, Any]) -> dict[str, Any] | None:
    """What a checkpoint tells by itself.

    Args:
        reader: It has just inspected the checkpoint.
        found: What it found. That nothing of the state can be read for measuring becomes a finding.

    Returns:
        None before its first commit, and where it cannot be read.
    """
    from streambank.core.errors import StorageError
    from streambank.core.finding import Finding
    from streambank.sla.history.unmanaged import MOST_STORES, measure_checkpoint

    if reader.planner is None or not reader.planner.index.commits:
        return None
    # Where every file of the state has been opened already, nothing is read again.
    most = MOST_STORES if found["retained_by"] == "closure" else _FEW_STORES
    try:
        return measure_checkpoint(reader.store, planner=reader.planner, most_stores=most).to_dict()
    except StorageError as error:
        effect = "The checkpoint is not measured."
        finding = Finding(error.code, "warning", "", error.message, effect, error.hint)
        found["findings"].append(finding.to_dict())
        return None


def recorded(location: str, within: str) -> dict[str, Any]:
    """What progress records tell.

    Args:
        location: A folder of them, or one file.
        within: How much of them, up to the newest one.

    Raises:
        InputError: `within` is no duration.
        NotFoundError: There are none.
    """
    from streambank.core.units import parse_duration_s
    from streambank.sla.history.history import HistoryScan, Records
    from streambank.sla.history.summary import Gathered

    window = timedelta(seconds=parse_duration_s(within))
    records = Records.at(location)
    newest = records.newest()
    scan = HistoryScan(records, since=None if newest is None else newest.at - window)
    gathered = Gathered(records.query)
    gathered.take(scan)
    gathered.runs, gathered.notes = scan.runs, scan.notes()
    return gathered.to_dict()


def show_measures(found: dict[str, Any]) -> None:
    """Both, for people."""
    told = found["measured"]
    if told is not None:
        _show_metrics("measured by its files", told)
        _show_growth(told["growth"])
        _show_partitions(told["partitions"])
        _show_notes(told["notes"])
    told = found["history"]
    if told is not None:
        runs = console.count(told["runs"], "run")
        _show_metrics(f"recorded progress of {told['query']}, {runs}", told)
        _show_notes(told["notes"])


def _show_metrics(title: str, told: dict[str, Any]) -> None:
    console.line()
    if not told["batches"]:
        console.line(f"{title}: no batches")
        return
    console.line(f"{title}: {_batches(told['batches'])}, {told['from']} to {told['to']}")
    columns = ("metric", "newest", "median", "p95", "max")
    rows = [
        (name, *(_value(one[column], one["unit"]) for column in columns[1:]))
        for name, one in told["metrics"].items()
    ]
    console.table(columns, rows, right=columns[1:])


def _show_growth(growth: dict[str, Any] | None) -> None:
    if growth is None:
        return
    grown = [_signed(growth["bytes"], "bytes")]
    if growth["rows"] is not None:
        grown.append(_signed(growth["rows"], "rows"))
    console.line(
        f"state from batch {growth['from_batch']} to {growth['to_batch']}: {', '.join(grown)} "
        f"in {console.age(growth['seconds'])}"
    )


def _show_partitions(partitions: list[dict[str, Any]]) -> None:
    if len(partitions) > _MOST_PARTITIONS:
        console.line(f"{len(partitions)} stores in partitions: --json lists them")
    elif partitions:
        console.line()
        columns = ("operator", "partition", "store", "snapshot", "rows", "bytes", "changes")
        rows = [
            (one["operator"], one["partition"], one["store"], one["snapshot_version"] or None, one["rows"],
             console.size(one["bytes"]), one["changes"])
            for one in partitions
        ]  # fmt: skip
        console.table(columns, rows, right=[name for name in columns if name != "store"])


def _show_notes(notes: list[str]) -> None:
    for note in notes:
        console.line(f"note: {note}")


def _signed(value: float, unit: str) -> str:
    return f"{'-' if value < 0 else '+'}{_value(abs(value), unit)}"


def _value(value: float, unit: str) -> str:
    if unit == "bytes":
        return console.size(round(value))
    if unit == "s":
        return f"{value:,.3f} s" if value < 100 else console.age(value)
    return f"{value:,.3f} {unit}" if unit == "ms" else f"{value:,.0f} {unit}"


def _batches(number: int) -> str:
    return f"{number:,} batch" if number == 1 else f"{number:,} batches"
