"""The verbs `advise` and `plan-memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import Debug, Json, job_named
from streambank.cli.output import console
from streambank.core.errors import InputError

if TYPE_CHECKING:
    from streambank.advice.of_job import StateNow
    from streambank.advice.sizes import StateSize

ADVISE = """Examples:

  streambank advise --keys 5000000 --update-share 0.1 --latency 5s

  streambank advise --state-size 10g --row-bytes 200 --executors 4 --cores 4

  streambank advise --job orders --jobs dags/streaming_jobs.toml --latency 2s
"""
PLAN = """Examples:

  streambank plan-memory --executors 4 --cores 4 --partitions 64 --keys 50000000 --row-bytes 200

  streambank plan-memory --partitions 16 --stores 4 --bounded --max-memory 1g

  streambank plan-memory --partitions 16 --window 10m --slide 5m --watermark 15m --events-per-second 5000
  --keys 100000

  streambank plan-memory --partitions 1 --column-families 3 --write-buffer 128m --state-size 10g
"""
DEFAULT_ROW_BYTES, DEFAULT_SHARE, DEFAULT_HEAP = 100, 0.1, "1g"
STATE_PANEL, PLACE_PANEL, ROCKSDB_PANEL, BEFORE_PANEL = (
    "The state", "Where it runs", "RocksDB's settings", "The state before the job runs"
)  # fmt: skip

StateSizeOption = Annotated[
    str | None,
    typer.Option("--state-size", metavar="SIZE", rich_help_panel=STATE_PANEL,
                 help="Uncompressed keys and values, such as 10g; in place of --keys."),
]  # fmt: skip
Keys = Annotated[
    int | None,
    typer.Option("--keys", min=1, metavar="N", rich_help_panel=STATE_PANEL, help="Rows of the state."),
]
RowBytes = Annotated[
    int | None,
    typer.Option("--row-bytes", min=1, metavar="N", rich_help_panel=STATE_PANEL,
                 help=f"Bytes of a key and its value, {DEFAULT_ROW_BYTES} by default."),
]  # fmt: skip
UpdateShare = Annotated[
    float | None,
    typer.Option("--update-share", metavar="X", rich_help_panel=STATE_PANEL,
                 help="The part of the rows that a batch changes: 0.1 for one of ten, "
                 "which is the default."),
]  # fmt: skip
JobNamed = Annotated[
    str | None,
    typer.Option("--job", metavar="NAME", rich_help_panel=STATE_PANEL,
                 help="Read what is not given from this declared job, or job/query: from its newest progress "
                 "record and its settings."),
]  # fmt: skip
Jobs = Annotated[
    str | None,
    typer.Option("--jobs", envvar="STREAMBANK_JOBS", metavar="FILE", rich_help_panel=STATE_PANEL,
                 help="The file that declares the job."),
]  # fmt: skip
Executors = Annotated[
    int | None,
    typer.Option("--executors", min=1, metavar="N", rich_help_panel=PLACE_PANEL,
                 help="Executors, 1 by default."),
]  # fmt: skip
Cores = Annotated[
    int | None,
    typer.Option("--cores", min=1, metavar="N", rich_help_panel=PLACE_PANEL,
                 help="Task slots of an executor, 1 by default."),
]  # fmt: skip
Partitions = Annotated[
    int | None,
    typer.Option("--partitions", min=1, metavar="N", rich_help_panel=PLACE_PANEL,
                 help="Partitions of the state (spark.sql.shuffle.partitions when the query first ran)."),
]  # fmt: skip
ExecutorMemory = Annotated[
    str | None,
    typer.Option("--executor-memory", metavar="SIZE", rich_help_panel=PLACE_PANEL,
                 help=f"spark.executor.memory, the heap: {DEFAULT_HEAP} by default."),
]  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog=ADVISE)(advise)
    app.command("plan-memory", epilog=PLAN)(plan_memory)


def advise(
    state_size: StateSizeOption = None,
    keys: Keys = None,
    row_bytes: RowBytes = None,
    update_share: UpdateShare = None,
    latency: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=STATE_PANEL, help="How long a batch may take."),
    ] = None,
    job: JobNamed = None,
    jobs: Jobs = None,
    executors: Executors = None,
    cores: Cores = None,
    partitions: Partitions = None,
    executor_memory: ExecutorMemory = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Choose a state store and its settings, each sentence with the measurement behind it."""
    from streambank.advice.measured import measurements
    from streambank.advice.memory import Cluster
    from streambank.advice.stores import Asked
    from streambank.advice.stores import advise as choose
    from streambank.core.units import parse_duration_s

    now = _state_now(job, jobs)
    rows, each = _rows(state_size, keys, row_bytes, now)
    if rows is None:
        raise InputError(
            "How large the state is is not known.",
            code="usage",
            hint="Give --keys or --state-size, or --job NAME; `streambank plan-memory` estimates it.",
        )
    place = _cluster(executors, cores, partitions, executor_memory, None, now)
    if partitions is None and (now is None or now.partitions is None):
        place = Cluster(
            place.executors, place.cores, place.executors * place.cores, place.stores, place.heap_bytes
        )
    share = update_share
    if share is None:
        share = (now.update_share if now is not None else None) or DEFAULT_SHARE
    asked = Asked(rows, each, share, None if latency is None else parse_duration_s(latency), place)
    found = measurements()
    advice = choose(asked, found)
    document = {
        "asked": {
            "keys": rows,
            "row_bytes": each,
            "state_bytes": asked.state_bytes,
            "update_share": share,
            "latency_s": asked.latency_s,
            "executors": place.executors,
            "cores": place.cores,
            "partitions": place.partitions,
            "executor_memory_bytes": place.heap_bytes,
        },
        "job": None if now is None else {"name": job, **now.to_dict()},
        "measured_with": {"spark": found.spark, "machine": found.machine, "made": found.made,
                          "command": found.command, "rounds": found.rounds},
        **advice.to_dict(),
    }  # fmt: skip
    console.answer(document, lambda: _show_advice(document, job))


def plan_memory(
    executors: Executors = None,
    cores: Cores = None,
    partitions: Partitions = None,
    executor_memory: ExecutorMemory = None,
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
    state_size: StateSizeOption = None,
    keys: Keys = None,
    row_bytes: RowBytes = None,
    update_share: UpdateShare = None,
    job: JobNamed = None,
    jobs: Jobs = None,
    block_cache: Annotated[
        str, typer.Option(metavar="SIZE", rich_help_panel=ROCKSDB_PANEL, help="blockCacheSizeMB.")
    ] = "8m",
    write_buffer: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=ROCKSDB_PANEL,
            help="writeBufferSizeMB; Spark's -1 leaves RocksDB's 64m.",
        ),
    ] = "64m",
    write_buffers: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=ROCKSDB_PANEL,
            help="maxWriteBufferNumber; Spark's -1 leaves RocksDB's 2.",
        ),
    ] = 2,
    block_size: Annotated[
        str, typer.Option(metavar="SIZE", rich_help_panel=ROCKSDB_PANEL, help="blockSizeKB.")
    ] = "4k",
    column_families: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=ROCKSDB_PANEL,
            help="Real column families of an instance: 1 in Spark, whose are virtual; as many as "
            "states in Flink.",
        ),
    ] = 1,
    key_bytes: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", rich_help_panel=ROCKSDB_PANEL, help="Bytes of a key, for the index."
        ),
    ] = 40,
    changelog: Annotated[
        bool,
        typer.Option(
            "--changelog/--no-changelog",
            rich_help_panel=ROCKSDB_PANEL,
            help="changelogCheckpointing: write buffers live until the next snapshot.",
        ),
    ] = True,
    min_deltas: Annotated[
        int, typer.Option(min=1, metavar="N", rich_help_panel=ROCKSDB_PANEL, help="minDeltasForSnapshot.")
    ] = 10,
    bounded: Annotated[
        bool,
        typer.Option(
            "--bounded",
            rich_help_panel=ROCKSDB_PANEL,
            help="boundedMemoryUsage: one cache for all instances of an executor.",
        ),
    ] = False,
    max_memory: Annotated[
        str, typer.Option(metavar="SIZE", rich_help_panel=ROCKSDB_PANEL, help="maxMemoryUsageMB.")
    ] = "500m",
    write_buffer_ratio: Annotated[
        float, typer.Option(metavar="X", rich_help_panel=ROCKSDB_PANEL, help="writeBufferCacheRatio.")
    ] = 0.5,
    high_priority_ratio: Annotated[
        float, typer.Option(metavar="X", rich_help_panel=ROCKSDB_PANEL, help="highPriorityPoolRatio.")
    ] = 0.1,
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
    from streambank.advice.memory import RocksDBSettings, StateLoad
    from streambank.advice.memory import plan_memory as plan
    from streambank.advice.sizes import Load, estimate
    from streambank.core.units import parse_any_bytes, parse_duration_s

    now = _state_now(job, jobs)
    lives = {"--window": window, "--slide": slide, "--watermark": watermark, "--dedup": dedup, "--ttl": ttl}
    estimated: StateSize | None = None
    if events_per_second is not None or any(value is not None for value in lives.values()):
        if state_size is not None:
            raise InputError(
                "--state-size is the answer to what --window, --watermark, --ttl and a rate ask for.",
                code="usage", hint="Leave one of them out.",
            )  # fmt: skip
        window_s, slide_s, watermark_s, dedup_s, ttl_s = (
            None if one is None else parse_duration_s(one) for one in lives.values()
        )
        estimated = estimate(
            Load(keys, row_bytes or DEFAULT_ROW_BYTES, events_per_second, window_s, slide_s,
                 watermark_s, dedup_s, ttl_s, 0.0 if trigger is None else parse_duration_s(trigger))
        )  # fmt: skip
    rows, each = (
        _rows(state_size, keys, row_bytes, now)
        if estimated is None
        else (estimated.rows, estimated.row_bytes)
    )
    share = update_share
    if share is None:
        of = estimated if estimated is not None else now
        share = None if of is None else of.update_share
    place = _cluster(executors, cores, partitions, executor_memory, stores, now)
    settings = RocksDBSettings(
        parse_any_bytes(block_cache), parse_any_bytes(write_buffer), write_buffers,
        parse_any_bytes(block_size), column_families, changelog, min_deltas, bounded,
        parse_any_bytes(max_memory), write_buffer_ratio, high_priority_ratio,
    )  # fmt: skip
    load = None if rows is None else StateLoad(rows, each, key_bytes, share)
    found = plan(settings, place, load)
    document = {
        "executors": place.executors,
        "cores": place.cores,
        "partitions": place.partitions,
        "stores": place.stores,
        "executor_memory_bytes": place.heap_bytes,
        "state": None if load is None else {"rows": rows, "row_bytes": each, "bytes": load.rows * each,
                                            "update_share": share},
        "estimate": None if estimated is None else estimated.to_dict(),
        **found.to_dict(),
    }  # fmt: skip
    console.answer(document, lambda: _show_plan(document))


def _state_now(job: str | None, jobs: str | None) -> StateNow | None:
    if job is None:
        return None
    if jobs is None:
        raise InputError(
            "--job needs --jobs, the file that declares the job.",
            code="usage",
            hint="Give --jobs FILE, or set STREAMBANK_JOBS.",
        )
    from streambank.advice.of_job import state_of_job
    from streambank.core.names import QueryRef

    asked = QueryRef.parse(job)
    return state_of_job(job_named(asked.job, jobs), asked.query)


def _rows(
    state_size: str | None, keys: int | None, row_bytes: int | None, now: StateNow | None
) -> tuple[int | None, int]:
    """Rows of the state, and bytes of one: what is given, else what the job shows.

    Raises:
        InputError: Three things are given of which two say the third (code `usage`).
    """
    from streambank.core.units import parse_any_bytes

    if state_size is not None and keys is not None and row_bytes is not None:
        raise InputError(
            "--state-size is --keys times --row-bytes.", code="usage", hint="Leave one of them out."
        )
    size = None if state_size is None else parse_any_bytes(state_size)
    if size is not None and keys is not None:
        return keys, max(1, size // keys)
    each = row_bytes or (now.row_bytes if now is not None else None) or DEFAULT_ROW_BYTES
    if size is not None:
        return max(1, size // each), each
    return keys or (now.rows if now is not None and now.rows else None), each


def _cluster(
    executors: int | None,
    cores: int | None,
    partitions: int | None,
    executor_memory: str | None,
    stores: int | None,
    now: StateNow | None,
) -> Any:
    from streambank.advice.memory import Cluster
    from streambank.core.units import parse_any_bytes

    usual = Cluster()
    heap = None if executor_memory is None else parse_any_bytes(executor_memory)
    return Cluster(
        executors or (now.executors if now is not None else None) or usual.executors,
        cores or (now.cores if now is not None else None) or usual.cores,
        partitions or (now.partitions if now is not None else None) or usual.partitions,
        stores or (now.stores if now is not None else None) or usual.stores,
        heap or (now.heap_bytes if now is not None else None) or usual.heap_bytes,
    )


def _show_advice(found: dict[str, Any], job: str | None) -> None:
    from streambank.advice.measured import TITLES

    asked = found["asked"]
    if found["job"] is not None:
        console.line(f"State of {job} at batch {found['job']['batch']}: {found['job']['provider']}.")
    console.fields(
        [
            ("store", TITLES[found["store"]]),
            (
                "state",
                f"{asked['keys']:,} rows of {asked['row_bytes']:,} B: {console.size(asked['state_bytes'])}",
            ),
            ("changed", f"{asked['update_share']:.3g} of the rows in a batch"),
        ]
    )
    console.line()
    for reason in found["reasons"]:
        console.line(reason["text"])
        console.line(f"  measured: {reason['measurement']}")
    console.line()
    columns = (
        "store",
        "batch ms",
        "of a processor",
        "commit ms",
        "restart s",
        "heap",
        "outside of it",
        "a batch writes",
        "fits",
    )
    console.table(
        columns,
        [
            (TITLES[one["store"]], f"{one['batch_ms']:,}", f"{one['cpu_ms']:,}",
             f"{one['commit_ms']:,}", f"{one['restart_s']:.1f}",
             console.size(one["heap_bytes"]), console.size(one["native_bytes"]),
             console.size(one["written_bytes"]), "yes" if one["fits"] else "no")
            for one in found["expected"]
        ],
        right=columns[1:-1],
    )  # fmt: skip
    console.line()
    console.line("For spark-submit or spark-defaults.conf:")
    for one in found["settings"]:
        console.line(f"{one['name']} {one['value']}")
    console.line()
    name = (job or "NAME").partition("/")[0]
    console.line(f"For streaming_jobs.toml, in [jobs.{name}.spark]:")
    for one in found["settings"]:
        console.line(f'"{one["name"]}" = "{one["value"]}"')
    console.line()
    for one in found["settings"]:
        console.line(f"{one['name']}: {one['text']}")
        console.line(f"  by: {one['measurement']}")
    warnings = found["memory"]["warnings"] if found["memory"] is not None else []
    for kind, sentences in (("warning", warnings), ("not known", found["unknown"])):
        for sentence in sentences:
            console.line()
            console.line(f"{kind}: {sentence}")


def _show_plan(found: dict[str, Any]) -> None:
    from streambank.advice.memory import say_mib

    def mib(size_bytes: int | None) -> str:
        return "?" if size_bytes is None else say_mib(size_bytes)

    estimated = found["estimate"]
    if estimated is not None:
        for sentence in estimated["how"]:
            console.line(sentence)
        for sentence in estimated["unknown"]:
            console.line(f"not known: {sentence}")
        console.line()
    state = found["state"]
    console.fields(
        [
            ("state", "not given: only what the settings allow is known" if state is None else
             f"{state['rows']:,} rows of {state['row_bytes']:,} B: {console.size(state['bytes'])}"),
            ("instances", f"{found['instances']} in an executor: {found['partitions']} partitions of "
             f"{found['stores']} store(s) in {found['executors']} executor(s)"),
        ]
    )  # fmt: skip
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
            ("set", f"spark.executor.memoryOverhead {found['memory_overhead_bytes'] >> 20}m"),
        ]
    )  # fmt: skip
    for warning in found["warnings"]:
        console.line()
        console.line(f"warning: {warning}")
