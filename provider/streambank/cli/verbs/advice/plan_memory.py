"""The verb `plan-memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import Debug, Json, OptionalJobsFile
from streambank.cli.output import console
from streambank.cli.verbs.advice.options import (
    PLACE_PANEL,
    Cores,
    ExecutorMemory,
    Executors,
    JobNamed,
    Keys,
    Partitions,
    PythonWorker,
    RowBytes,
    StateSize,
    UpdateShare,
    job_asked,
    show_values,
    size_of,
)
from streambank.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streambank.advice.sizes import StateSize as Estimate
    from streambank.advice.values import Value

EXAMPLES = """Examples:

  streambank plan-memory --executors 4 --cores 4 --partitions 64 --keys 50000000 --row-bytes 200

  streambank plan-memory --job orders --jobs dags/streaming_jobs.toml

  streambank plan-memory --partitions 16 --stores 4 --bounded --max-memory 1g --python-worker 200m

  streambank plan-memory --partitions 16 --window 10m --slide 5m --watermark 15m --events-per-second 5000
  --keys 100000

  streambank plan-memory --partitions 1 --column-families 3 --write-buffer 128m --state-size 10g
"""
ROCKSDB_PANEL, BEFORE_PANEL = "RocksDB's settings", "The state before the job runs"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("plan-memory", epilog=EXAMPLES)(plan_memory)


def plan_memory(
    context: typer.Context,
    job: JobNamed = None,
    jobs: OptionalJobsFile = None,
    executors: Executors = None,
    cores: Cores = None,
    partitions: Partitions = None,
    executor_memory: ExecutorMemory = None,
    python_worker: PythonWorker = None,
    stores: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=PLACE_PANEL,
            help="Stores of all stateful operators: 1 of an aggregation, 4 of a join of two streams, 1 "
            "of transformWithState; 1 by default.",
        ),
    ] = None,
    state_size: StateSize = None,
    keys: Keys = None,
    row_bytes: RowBytes = None,
    update_share: UpdateShare = None,
    block_cache: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=ROCKSDB_PANEL,
            help="blockCacheSizeMB of each instance, 8m by default; not of bounded memory.",
        ),
    ] = None,
    write_buffer: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=ROCKSDB_PANEL,
            help="writeBufferSizeMB; Spark's default of -1 leaves RocksDB's 64m.",
        ),
    ] = None,
    write_buffers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=ROCKSDB_PANEL,
            help="maxWriteBufferNumber; Spark's default of -1 leaves RocksDB's 2.",
        ),
    ] = None,
    block_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", rich_help_panel=ROCKSDB_PANEL, help="blockSizeKB, 4k by default."),
    ] = None,
    column_families: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=ROCKSDB_PANEL,
            help="Real column families of an instance: 1 in Spark, whose are virtual; as many as "
            "states in Flink.",
        ),
    ] = None,
    key_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=ROCKSDB_PANEL,
            help="Bytes of a key, for the index: 40 by default.",
        ),
    ] = None,
    changelog: Annotated[
        bool | None,
        typer.Option(
            "--changelog/--no-changelog",
            show_default=False,
            rich_help_panel=ROCKSDB_PANEL,
            help="changelogCheckpointing: write buffers live until the next snapshot; off by default.",
        ),
    ] = None,
    min_deltas: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=ROCKSDB_PANEL,
            help="minDeltasForSnapshot, 10 by default; with a changelog.",
        ),
    ] = None,
    bounded: Annotated[
        bool | None,
        typer.Option(
            "--bounded/--unbounded",
            show_default=False,
            rich_help_panel=ROCKSDB_PANEL,
            help="boundedMemoryUsage: one cache for all instances of an executor; off by default.",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=ROCKSDB_PANEL,
            help="maxMemoryUsageMB of bounded memory, 500m by default.",
        ),
    ] = None,
    write_buffer_ratio: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            rich_help_panel=ROCKSDB_PANEL,
            help="writeBufferCacheRatio of bounded memory, 0.5 by default.",
        ),
    ] = None,
    high_priority_ratio: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            rich_help_panel=ROCKSDB_PANEL,
            help="highPriorityPoolRatio of bounded memory, 0.1 by default.",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=BEFORE_PANEL, help="Length of the windows."),
    ] = None,
    slide: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            rich_help_panel=BEFORE_PANEL,
            help="How far the next window begins after one; by default they follow each other.",
        ),
    ] = None,
    watermark: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=BEFORE_PANEL, help="The delay of withWatermark."),
    ] = None,
    dedup: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            rich_help_panel=BEFORE_PANEL,
            help="The delay of dropDuplicatesWithinWatermark.",
        ),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            rich_help_panel=BEFORE_PANEL,
            help="How long a row lives otherwise: a TTL; of a join watermark and interval together.",
        ),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=BEFORE_PANEL, help="Time between two batches."),
    ] = None,
    events_per_second: Annotated[
        float | None,
        typer.Option(metavar="X", rich_help_panel=BEFORE_PANEL, help="Events a second; --keys are theirs."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Calculate RocksDB's memory beside the JVM, and how large the state gets before a job runs."""
    from streambank.advice.memory import StateLoad
    from streambank.advice.memory import plan_memory as plan
    from streambank.advice.resolve import (
        KEY_BYTES,
        PlaceOptions,
        RocksDBOptions,
        StateOptions,
        cluster_of,
        rows_of,
        settings_of,
        share_of,
        warnings_of_job,
    )
    from streambank.advice.sizes import Load, estimate
    from streambank.advice.values import Values
    from streambank.core.units import parse_duration_s

    asked = job_asked(context, job, jobs)
    now = None if asked is None else asked.now
    values = Values(None if asked is None else asked.declared)
    before = {
        "--events-per-second": events_per_second, "--window": window, "--slide": slide,
        "--watermark": watermark, "--dedup": dedup, "--ttl": ttl, "--trigger": trigger,
    }  # fmt: skip
    before = {option: value for option, value in before.items() if value is not None}
    given = StateOptions(size_of(state_size), keys, row_bytes)
    rows, each = rows_of(given, values, now, estimated=bool(before))
    estimated: Estimate | None = None
    if before:
        if state_size is not None:
            raise InputError(
                f"--state-size is what {' and '.join(before)} would say.",
                code="usage", hint="Leave one of them out.",
            )  # fmt: skip
        rate = events_per_second
        window_s, slide_s, watermark_s, dedup_s, ttl_s, trigger_s = (
            None if one is None else parse_duration_s(one)
            for one in (window, slide, watermark, dedup, ttl, trigger)
        )
        estimated = estimate(
            Load(keys, each, rate, window_s, slide_s, watermark_s, dedup_s, ttl_s, trigger_s)
        )
        rows = estimated.rows
    if rows is None:
        for option, value in (
            ("--update-share", update_share), ("--row-bytes", row_bytes), ("--key-bytes", key_bytes)
        ):  # fmt: skip
            if value is not None:
                raise InputError(
                    f"{option} is of the state's rows, and how many it has is not known.",
                    code="usage",
                    hint=f"Give --keys or --state-size with it, or leave {option} out.",
                )
    share = share_of(update_share, values, now if estimated is None else None)
    if share is None and estimated is not None:
        share = estimated.update_share
    place = cluster_of(
        PlaceOptions(executors, cores, partitions, size_of(executor_memory), stores, size_of(python_worker)),
        values,
        now,
    )
    settings = settings_of(
        RocksDBOptions(
            size_of(block_cache), size_of(write_buffer), write_buffers, size_of(block_size), column_families,
            changelog, min_deltas, bounded, size_of(max_memory), write_buffer_ratio, high_priority_ratio,
        ),
        values,
    )  # fmt: skip
    load = None if rows is None else StateLoad(rows, each, values.take(KEY_BYTES, key_bytes), share)
    found = plan(settings, place, load)
    provider, warnings = (
        (None, [])
        if asked is None
        else warnings_of_job(asked.declared, len(asked.job.queries), asked.query, now, executors)
    )
    document = {
        "executors": place.executors,
        "cores": place.cores,
        "partitions": place.partitions,
        "stores": place.stores,
        "executor_memory_bytes": place.heap_bytes,
        "job": None if asked is None else {**asked.to_dict(), "provider": provider},
        "values": [one.to_dict() for one in values.found],
        "state": None if load is None else {"rows": rows, "row_bytes": each, "bytes": load.rows * each,
                                            "update_share": share},
        "estimate": None if estimated is None else estimated.to_dict(),
        **found.to_dict(),
    }  # fmt: skip
    document["warnings"] = [*warnings, *found.warnings]
    console.answer(document, lambda: _show(document, values.found))


def _show(found: dict[str, Any], values: Sequence[Value]) -> None:
    from streambank.advice.memory import say_mib
    from streambank.advice.resolve import STORES
    from streambank.core.names import MAIN

    def mib(size_bytes: int | None) -> str:
        return "?" if size_bytes is None else say_mib(size_bytes)

    estimated = found["estimate"]
    if estimated is not None:
        for sentence in estimated["how"]:
            console.line(sentence)
        for sentence in estimated["unknown"]:
            console.line(f"not known: {sentence}")
        console.line()
    state, job = found["state"], found["job"]
    absent = "not given" if job is None else "in no progress record"
    console.fields(
        [
            ("job", None if job is None else job["name"] if job["query"] == MAIN else
             f"{job['name']}, query {job['query']}"),
            ("state store", None if job is None else STORES.get(job["provider"], job["provider"]) + (
             "" if job["provider"] == "rocksdb" else ": the figures are of RocksDB in its place")),
            ("state", f"{absent}: only what the settings allow is known" if state is None else
             f"{state['rows']:,} rows of {state['row_bytes']:,} B: {console.size(state['bytes'])}"),
            ("changed", None if state is None or state["update_share"] is None else
             f"{state['update_share']:.3g} of the rows in a batch"),
            ("instances", f"{found['instances']} in an executor: {found['partitions']} partitions of "
             f"{found['stores']} store(s) in {found['executors']} executor(s)"),
        ]
    )  # fmt: skip
    console.line()
    show_values(values)
    console.line()
    rows = [
        (one["part"], mib(one["each_bytes"]), mib(one["executor_bytes"]),
         "" if one["most_bytes"] is None else mib(one["most_bytes"]), one["how"])
        for one in found["parts"]
    ]  # fmt: skip
    rows.append(("all", "", mib(found["expected_bytes"]), mib(found["most_bytes"]), "as RocksDB counts"))
    columns = ("part", "each instance", "an executor", "at most", "how")
    console.table(columns, rows, right=columns[1:-1])
    console.line()
    console.fields(
        [
            ("resident", f"{mib(found['resident_bytes'])} beside the JVM"),
            ("the JVM itself", f"{mib(found['jvm_overhead_bytes'])} beside its heap of "
             f"{mib(found['executor_memory_bytes'])}"),
            ("Python workers", f"{mib(found['python_bytes'])} for {found['cores']} of them"
             if found["python_bytes"] else None),
            ("set", f"spark.executor.memoryOverhead {found['memory_overhead_bytes'] >> 20}m"),
            ("container", f"{mib(found['container_bytes'])} for an executor: heap, overhead, and "
             "spark.executor.pyspark.memory if that is set"),
        ]
    )  # fmt: skip
    for kind, sentences in (("warning", found["warnings"]), ("not known", found["unknown"])):
        for sentence in sentences:
            console.line()
            console.line(f"{kind}: {sentence}")
