"""The verb `plan-memory`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from streambank.advice.request import (
    LoadRequest,
    PlanMemoryRequest,
    RocksDBRequest,
    StateRequest,
    flags_given,
)
from streambank.cli.options import OptionalJobsFile
from streambank.cli.output import console
from streambank.cli.verbs.advice.options import JobNamed, queries_asked, show_values
from streambank.core.errors import InputError

if TYPE_CHECKING:
    from streambank.advice.memory import Cluster, RocksDBSettings, StateLoad
    from streambank.advice.sizes import StateSize
    from streambank.advice.values import Value
    from streambank.cli.verbs.advice.options import JobState

EXAMPLES = """Examples:

  streambank plan-memory --executors 4 --cores 4 --partitions 64 --keys 50000000 --row-bytes 200

  streambank plan-memory --job orders --jobs dags/streaming_jobs.toml

  streambank plan-memory --job orders/sums --jobs dags/streaming_jobs.toml

  streambank plan-memory --partitions 16 --stores 4 --bounded --max-memory 1g --python-worker 200m

  streambank plan-memory --partitions 16 --window 10m --slide 5m --watermark 15m --events-per-second 5000
  --keys 100000

  streambank plan-memory --partitions 1 --column-families 3 --write-buffer 128m --state-size 10g
"""


def plan_memory(
    context: typer.Context,
    request: PlanMemoryRequest,
    job: JobNamed = None,
    jobs: OptionalJobsFile = None,
) -> None:
    """Calculate RocksDB's memory beside the JVM, and how large the state gets before a job runs."""
    from streambank.advice.memory import plan_queries

    asked, named = queries_asked(context, job, jobs), job is not None and "/" in job
    _check(asked, request)
    planned: dict[str, _Query] = {}
    each_query: Sequence[JobState | None] = asked or (None,)
    for one in each_query:
        name = "" if one is None or len(asked) < 2 else one.query
        planned[name] = _query(one, request, named=named, alone=len(asked) < 2)
    first = planned[next(iter(planned))]
    found = plan_queries(first.settings, {name: (one.place, one.load) for name, one in planned.items()})
    document = _document(planned) | {
        "estimate": None if first.estimate is None else first.estimate.to_dict(), **found.to_dict()
    }  # fmt: skip
    warned = dict.fromkeys(text for one in planned.values() for text in one.warnings)
    document["warnings"] = [*warned, *found.warnings]
    console.answer(document, lambda: _show(document, planned))


@dataclass(frozen=True, slots=True)
class _Query:
    """What is calculated for one query."""

    asked: JobState | None
    place: Cluster
    settings: RocksDBSettings
    load: StateLoad | None
    estimate: StateSize | None
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


def _query(asked: JobState | None, request: PlanMemoryRequest, *, named: bool, alone: bool) -> _Query:
    """What a query is calculated with.

    Args:
        named: Whether it was chosen of several queries.
        alone: Whether it is the only one that is planned.
    """
    from streambank.advice.memory import StateLoad
    from streambank.advice.resolve import (
        KEY_BYTES,
        cluster_of,
        rows_of,
        settings_of,
        share_of,
        warnings_of_job,
    )
    from streambank.advice.sizes import estimate
    from streambank.advice.values import Values

    now = None if asked is None else asked.now
    values = Values(None if asked is None else asked.declared)
    before = bool(flags_given(request, LoadRequest))
    rows, each = rows_of(request, values, now, estimated=before)
    estimated = estimate(request.keys, each, request) if before else None
    if estimated is not None:
        rows = estimated.rows
    if rows is None and alone:
        of_rows = {"--update-share", "--row-bytes", "--key-bytes"}
        for option in flags_given(request, StateRequest, RocksDBRequest).keys() & of_rows:
            raise InputError(
                f"{option} is of the state's rows, and how many it has is not known.",
                code="usage",
                hint=f"Give --keys or --state-size with it, or leave {option} out.",
            )
    share = share_of(request.update_share, values, now if estimated is None else None)
    if share is None and estimated is not None:
        share = estimated.update_share
    cluster = cluster_of(request, values, now, stores=request.stores)
    settings = settings_of(request, values)
    kept = None if rows is None else StateLoad(rows, each, values.take(KEY_BYTES, request.key_bytes), share)
    provider, warnings = (None, []) if asked is None else warnings_of_job(
        asked.declared, len(asked.job.queries) if named else 1, asked.query, now, request.executors
    )  # fmt: skip
    return _Query(asked, cluster, settings, kept, estimated, values.found, provider, warnings)


def _check(asked: Sequence[JobState], request: PlanMemoryRequest) -> None:
    """Refuse what excludes each other, and what is of one query where all of a job are planned together.

    Raises:
        InputError: Something is (code `usage`).
    """
    before = flags_given(request, LoadRequest)
    of_one = {**flags_given(request, StateRequest), **before}
    if request.stores is not None:
        of_one["--stores"] = request.stores
    if of_one and len(asked) > 1:
        name, queries = asked[0].job.name, " and ".join(one.query for one in asked)
        option = next(iter(of_one))
        raise InputError(
            f"{option} is of one query, and the queries {queries} of job {name} are planned together.",
            code="usage",
            hint=f"Leave {option} out, or name one query: --job {name}/{asked[0].query}.",
        )
    if before and request.state_size_bytes is not None:
        raise InputError(
            f"--state-size is what {' and '.join(before)} would say.",
            code="usage",
            hint="Leave one of them out.",
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


VERBS = {"plan-memory": (plan_memory, EXAMPLES)}
