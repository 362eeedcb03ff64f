"""The verb `plan-memory`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    queries_asked,
    show_values,
    size_of,
)
from streambank.core.errors import InputError

if TYPE_CHECKING:
    from streambank.advice.memory import Cluster, StateLoad
    from streambank.advice.sizes import StateSize as Estimate
    from streambank.advice.values import Value
    from streambank.cli.verbs.advice.options import Asked

EXAMPLES = """Examples:

  streambank plan-memory --executors 4 --cores 4 --partitions 64 --keys 50000000 --row-bytes 200

  streambank plan-memory --job orders --jobs dags/streaming_jobs.toml

  streambank plan-memory --job orders/sums --jobs dags/streaming_jobs.toml

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
    from streambank.advice.memory import StateLoad, plan_queries
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

    asked, named = queries_asked(context, job, jobs), job is not None and "/" in job
    before = {
        "--events-per-second": events_per_second, "--window": window, "--slide": slide,
        "--watermark": watermark, "--dedup": dedup, "--ttl": ttl, "--trigger": trigger,
    }  # fmt: skip
    before = {option: value for option, value in before.items() if value is not None}
    if len(asked) > 1:
        _check_of_all(
            asked,
            {"--stores": stores, "--state-size": state_size, "--keys": keys, "--row-bytes": row_bytes,
             "--update-share": update_share, **before},
        )  # fmt: skip
    estimated: Estimate | None = None
    given = StateOptions(size_of(state_size), keys, row_bytes)
    planned: dict[str, _Query] = {}
    each_query: Sequence[Asked | None] = asked or (None,)
    for one in each_query:
        now = None if one is None else one.now
        values = Values(None if one is None else one.declared)
        rows, each = rows_of(given, values, now, estimated=bool(before))
        if before:
            if state_size is not None:
                raise InputError(
                    f"--state-size is what {' and '.join(before)} would say.",
                    code="usage", hint="Leave one of them out.",
                )  # fmt: skip
            rate = events_per_second
            window_s, slide_s, watermark_s, dedup_s, ttl_s, trigger_s = (
                None if text is None else parse_duration_s(text)
                for text in (window, slide, watermark, dedup, ttl, trigger)
            )
            estimated = estimate(
                Load(keys, each, rate, window_s, slide_s, watermark_s, dedup_s, ttl_s, trigger_s)
            )
            rows = estimated.rows
        if rows is None and len(asked) < 2:
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
            PlaceOptions(
                executors, cores, partitions, size_of(executor_memory), stores, size_of(python_worker)
            ),
            values,
            now,
        )
        settings = settings_of(
            RocksDBOptions(
                size_of(block_cache), size_of(write_buffer), write_buffers, size_of(block_size),
                column_families, changelog, min_deltas, bounded, size_of(max_memory), write_buffer_ratio,
                high_priority_ratio,
            ),
            values,
        )  # fmt: skip
        load = None if rows is None else StateLoad(rows, each, values.take(KEY_BYTES, key_bytes), share)
        provider, warnings = (
            (None, [])
            if one is None
            else warnings_of_job(
                one.declared, len(one.job.queries) if named else 1, one.query, now, executors
            )
        )
        name = "" if one is None or len(asked) < 2 else one.query
        planned[name] = _Query(one, place, load, values.found, provider, warnings)
    found = plan_queries(settings, {name: (one.place, one.load) for name, one in planned.items()})
    document = _document(planned) | {
        "estimate": None if estimated is None else estimated.to_dict(), **found.to_dict()
    }  # fmt: skip
    warned = dict.fromkeys(text for one in planned.values() for text in one.warnings)
    document["warnings"] = [*warned, *found.warnings]
    console.answer(document, lambda: _show(document, planned))


@dataclass(frozen=True, slots=True)
class _Query:
    """What is calculated for one query."""

    asked: Asked | None
    place: Cluster
    load: StateLoad | None
    values: Sequence[Value]
    provider: str | None
    warnings: Sequence[str]

    @property
    def state(self) -> dict[str, Any] | None:
        """Its state, as JSON."""
        load = self.load
        return None if load is None else {
            "rows": load.rows, "row_bytes": load.row_bytes, "bytes": load.rows * load.row_bytes,
            "update_share": load.update_share,
        }  # fmt: skip


def _check_of_all(asked: Sequence[Asked], options: Mapping[str, object]) -> None:
    """Refuse what is said of one query where all queries of a job are planned together.

    Raises:
        InputError: Something is (code `usage`).
    """
    given = [option for option, value in options.items() if value is not None]
    if given:
        name, queries = asked[0].job.name, " and ".join(one.query for one in asked)
        raise InputError(
            f"{given[0]} is of one query, and the queries {queries} of job {name} are planned together.",
            code="usage",
            hint=f"Leave {given[0]} out, or name one query: --job {name}/{asked[0].query}.",
        )


def _document(planned: Mapping[str, _Query]) -> dict[str, Any]:
    """What is planned with, as JSON: of one query, or of several that share the executors."""
    first = next(iter(planned.values()))
    place, asked, several = first.place, first.asked, len(planned) > 1
    job = None if asked is None else {**asked.to_dict(), "provider": first.provider}
    if several and asked is not None:
        same = len({one.provider for one in planned.values()}) == 1
        job = {"name": asked.job.name, "query": None, "provider": first.provider if same else None}
    queries = [
        {"query": name, "partitions": one.place.partitions, "stores": one.place.stores,
         "provider": one.provider, "batch": one.asked.now.batch if one.asked and one.asked.now else None,
         "state": one.state, "values": [value.to_dict() for value in _values(planned, of=one)]}
        for name, one in planned.items() if several
    ]  # fmt: skip
    return {
        "executors": place.executors,
        "cores": place.cores,
        "partitions": None if several else place.partitions,
        "stores": None if several else place.stores,
        "executor_memory_bytes": place.heap_bytes,
        "job": job,
        "queries": queries,
        "values": [value.to_dict() for value in _values(planned)],
        "state": None if several else first.state,
    }


def _values(planned: Mapping[str, _Query], of: _Query | None = None) -> list[Value]:
    """The values with which all queries are calculated; or those of one of them alone."""
    every = next(iter(planned.values())) if of is None else of
    return [
        value
        for value in every.values
        if all(value in one.values for one in planned.values()) is (of is None)
    ]


def _show(found: dict[str, Any], planned: Mapping[str, _Query]) -> None:
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
    store = None if job is None else job["provider"]
    absent = "not given" if job is None else "in no progress record"
    console.fields(
        [
            ("job", None if job is None else job["name"] if job["query"] == MAIN else
             f"{job['name']}, query {job['query']}" if job["query"] is not None else
             f"{job['name']}, queries {' and '.join(planned)} together"),
            ("state store", None if store is None else STORES.get(store, store) + (
             "" if store == "rocksdb" else ": the figures are of RocksDB in its place")),
            *((f"state{f' of {name}' if name else ''}", _state_text(one, absent))
              for name, one in planned.items()),
            ("changed", None if state is None or state["update_share"] is None else
             f"{state['update_share']:.3g} of the rows in a batch"),
            ("instances", f"{found['instances']} in an executor: "
             + " and ".join(f"{one.place.partitions} partitions of {one.place.stores} store(s)"
                            for one in planned.values())
             + f" in {found['executors']} executor(s)"),
        ]
    )  # fmt: skip
    console.line()
    show_values(_values(planned))
    for name, each in planned.items():
        if len(planned) > 1:
            console.line()
            console.line(f"of query {name}")
            show_values(_values(planned, of=each))
    console.line()
    rows = [
        (", ".join(filter(None, (one["part"], one.get("query")))),
         mib(one["each_bytes"]), mib(one["executor_bytes"]),
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


def _state_text(query: _Query, absent: str) -> str:
    state = query.state
    if state is None:
        return f"{absent}: only what the settings allow is known"
    return f"{state['rows']:,} rows of {state['row_bytes']:,} B: {console.size(state['bytes'])}"
