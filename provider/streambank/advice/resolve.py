"""From options, a job and defaults to what is calculated: the executors, RocksDB's settings, and the state.

Options that exclude each other end in an error here, as what would be ignored misleads.
"""

from __future__ import annotations

import re
from dataclasses import replace

from streambank.advice.memory import MOST, OVERHEAD, PYSPARK, Cluster, RocksDBSettings, check_numbers
from streambank.advice.of_job import StateNow
from streambank.advice.request import PlaceRequest, RocksDBRequest, StateRequest
from streambank.advice.values import (
    DeclaredConf,
    Spec,
    Values,
    count,
    count_or_default,
    factor,
    kibibytes,
    mebibytes,
    mebibytes_or_default,
    ratio,
    size,
    switch,
)
from streambank.core.errors import InputError
from streambank.doctor.checks.rocksdb import BOUNDED, CHANGELOG, MAX_MEMORY, PREFIX
from streambank.doctor.spark_conf import DEFAULT_OVERHEAD_FACTOR, MIN_OVERHEAD_BYTES

STATE = "spark.sql.streaming.stateStore."
PROVIDER = f"{STATE}providerClass"
PARTITIONS = "spark.sql.shuffle.partitions"
DYNAMIC = "spark.dynamicAllocation.enabled"
DEFAULT_ROW_BYTES = 100
STORES = {"rocksdb": "RocksDB", "hdfs": "HDFS-backed"}

_SOME, _MB = "a whole number above 0", "a whole number of MiB above 0"
_SIZE, _SWITCH, _RATIO = "a size above 0 such as 4g", "true or false", "a number from 0 to 1"
_SET, _AT = RocksDBSettings(), Cluster()

_EXECUTORS = Spec("--executors", _AT.executors, "count", "spark.executor.instances", count, _SOME, False)
_CORES = Spec("--cores", _AT.cores, "count", "spark.executor.cores", count, _SOME)
_PARTITIONS = Spec("--partitions", _AT.partitions, "count", PARTITIONS, count, _SOME)
_STORES = Spec("--stores", _AT.stores, "count", of_spark=False)
_HEAP = Spec("--executor-memory", _AT.heap_bytes, "bytes", "spark.executor.memory", size, _SIZE)
_WORKER = Spec("--python-worker", 0, "bytes", of_spark=False)
_PYSPARK = Spec("", 0, "bytes", PYSPARK, size, _SIZE)
_OVERHEAD = Spec("", 0, "bytes", OVERHEAD, size, _SIZE)
_FACTOR = Spec("", DEFAULT_OVERHEAD_FACTOR, "ratio", f"{OVERHEAD}Factor", factor, "a number above 0")
_DYNAMIC = Spec("--executors", False, "switch", DYNAMIC, switch, _SWITCH)

_KEYS = Spec("--keys", 1, "count", of_spark=False)
KEY_BYTES = Spec("--key-bytes", 40, "bytes", of_spark=False)
"""Bytes of a key, for the index."""
SHARE = Spec("--update-share", 0.1, "ratio", of_spark=False)
"""The part of the rows that a batch changes; `advise` takes the default where it is not known."""
_ROW_BYTES = Spec("--row-bytes", DEFAULT_ROW_BYTES, "bytes", of_spark=False)

_BOUNDED = Spec("--bounded", _SET.bounded, "switch", BOUNDED, switch, _SWITCH)
_MAX_MEMORY = Spec("--max-memory", _SET.max_memory_bytes, "bytes", MAX_MEMORY, mebibytes, _MB)
_BUFFER_RATIO = Spec(
    "--write-buffer-ratio", _SET.write_buffer_ratio, "ratio", f"{PREFIX}writeBufferCacheRatio", ratio, _RATIO
)
_PRIORITY_RATIO = Spec(
    "--high-priority-ratio", _SET.high_priority_ratio, "ratio", f"{PREFIX}highPriorityPoolRatio", ratio,
    _RATIO,
)  # fmt: skip
_CACHE = Spec(
    "--block-cache", _SET.block_cache_bytes, "bytes", f"{PREFIX}blockCacheSizeMB", mebibytes, _MB
)  # fmt: skip
_BUFFER = Spec(
    "--write-buffer", _SET.write_buffer_bytes, "bytes", f"{PREFIX}writeBufferSizeMB", mebibytes_or_default,
    "a whole number of MiB, or -1 for RocksDB's default",
)  # fmt: skip
_BUFFERS = Spec(
    "--write-buffers", _SET.write_buffers, "count", f"{PREFIX}maxWriteBufferNumber", count_or_default,
    "a whole number, or -1 for RocksDB's default",
)  # fmt: skip
_BLOCK = Spec(
    "--block-size", _SET.block_bytes, "bytes", f"{PREFIX}blockSizeKB", kibibytes,
    "a whole number of KiB above 0",
)  # fmt: skip
_CHANGELOG = Spec("--changelog", _SET.changelog, "switch", CHANGELOG, switch, _SWITCH)
_FAMILIES = Spec("--column-families", _SET.column_families, "count", of_spark=False)
_DELTAS = Spec("--min-deltas", _SET.min_deltas, "count", f"{STATE}minDeltasForSnapshot", count, _SOME)


def cluster_of(
    given: PlaceRequest,
    values: Values,
    now: StateNow | None,
    *,
    stores: int | None = None,
    of_cores: bool = False,
) -> Cluster:
    """Where the query runs.

    Args:
        of_cores: Whether each task slot gets a partition where their number is not known.

    Raises:
        InputError: A setting of the job cannot be read (code `bad-input`).
    """
    conf = None if values.declared is None else values.declared.conf
    executors, cores, heap = _EXECUTORS, _CORES, _HEAP
    if conf is not None and conf.is_local:
        executors = replace(executors, setting="master", read=lambda _: 1)
        slots = re.fullmatch(r"local(?:\[([0-9]+)(?:,.*)?\])?", conf.master)
        if slots is not None:
            cores = replace(cores, setting="master", read=lambda _: int(slots[1] or 1))
        heap = replace(heap, setting=conf.heap_setting)
        values.declared = _with_master(values.declared)
    elif values.declared is not None and given.executors is None and values.declared.read(_DYNAMIC):
        executors = replace(executors, read=None)
    count_of = values.take(executors, given.executors)
    slots_of = values.take(cores, given.cores)
    partitions = _PARTITIONS
    if of_cores:
        partitions = replace(partitions, usual=count_of * slots_of, of_spark=False)
    found = Cluster(
        count_of,
        slots_of,
        values.take(partitions, given.partitions, None if now is None else now.partitions),
        values.take(_STORES, stores, None if now is None else now.stores),
        values.take(heap, given.executor_memory_bytes),
        given.python_worker_bytes,
    )
    if given.python_worker_bytes is not None:
        values.take(_WORKER, given.python_worker_bytes)
    pyspark, overhead = values.take_declared(_PYSPARK), values.take_declared(_OVERHEAD)
    if overhead is None and (part := values.take_declared(_FACTOR)) is not None:
        overhead = max(MIN_OVERHEAD_BYTES, int(found.heap_bytes * part))
    return replace(found, pyspark_bytes=pyspark, overhead_bytes=overhead)


def settings_of(given: RocksDBRequest, values: Values) -> RocksDBSettings:
    """RocksDB's settings.

    Raises:
        InputError: Options exclude each other (code `usage`), or a setting of the job cannot be read (code
            `bad-input`).
    """
    bounded = values.take(_BOUNDED, given.bounded)
    brief = values.found[-1].brief
    if bounded and given.block_cache_bytes is not None:
        raise InputError(
            f"--block-cache has no effect, since {BOUNDED} is on ({brief}).",
            code="usage",
            hint="Leave --block-cache out, or give --unbounded.",
        )
    for option, value in (
        ("--max-memory", given.max_memory_bytes),
        ("--write-buffer-ratio", given.write_buffer_ratio),
        ("--high-priority-ratio", given.high_priority_ratio),
    ):
        if value is not None and not bounded:
            raise InputError(
                f"{option} has no effect, since {BOUNDED} is off ({brief}).",
                code="usage",
                hint=f"Give --bounded, or leave {option} out.",
            )
    changelog = values.take(_CHANGELOG, given.changelog)
    if given.min_deltas is not None and not changelog:
        raise InputError(
            f"--min-deltas has no effect, since {CHANGELOG} is off ({values.found[-1].brief}).",
            code="usage",
            hint="Give --changelog, or leave --min-deltas out.",
        )
    deltas = values.take(_DELTAS, given.min_deltas) if changelog else _SET.min_deltas
    usual = replace(
        _SET,
        write_buffer_bytes=values.take(_BUFFER, given.write_buffer_bytes),
        write_buffers=values.take(_BUFFERS, given.write_buffers),
        block_bytes=values.take(_BLOCK, given.block_size_bytes),
        column_families=values.take(_FAMILIES, given.column_families),
        changelog=changelog,
        min_deltas=deltas,
        bounded=bounded,
    )
    if not bounded:
        return replace(usual, block_cache_bytes=values.take(_CACHE, given.block_cache_bytes))
    return replace(
        usual,
        max_memory_bytes=values.take(_MAX_MEMORY, given.max_memory_bytes),
        write_buffer_ratio=values.take(_BUFFER_RATIO, given.write_buffer_ratio),
        high_priority_ratio=values.take(_PRIORITY_RATIO, given.high_priority_ratio),
    )


def rows_of(
    given: StateRequest, values: Values, now: StateNow | None, *, estimated: bool = False
) -> tuple[int | None, int]:
    """Rows of the state, and bytes of one: what is given, else what the job's progress shows.

    Args:
        estimated: Whether the rows are estimated from the keys, so that those of the job do not count.

    Raises:
        InputError: Three things are given of which two say the third (code `usage`), or a number makes no
            sense (code `bad-input`).
    """
    size_bytes, keys, row_bytes = given.state_size_bytes, given.keys, given.row_bytes
    if size_bytes is not None and keys is not None and row_bytes is not None:
        raise InputError(
            "--state-size is --keys times --row-bytes.", code="usage", hint="Leave one of them out."
        )
    check_numbers({"--keys": keys, "--row-bytes": row_bytes})
    check_numbers({"--state-size": size_bytes}, MOST * 1000)
    if size_bytes is not None and keys is not None:
        if size_bytes < keys:
            raise InputError(
                f"--state-size of {size_bytes:,} B is less than one byte for each of {keys:,} --keys.",
                code="bad-input",
                hint="Correct one of them.",
            )
        return keys, size_bytes // keys
    if size_bytes is None and not estimated and keys is None and (now is None or not now.rows):
        return None, row_bytes or DEFAULT_ROW_BYTES
    rows = None
    if size_bytes is None and (keys is not None or not estimated):
        rows = values.take(_KEYS, keys, None if now is None else now.rows)
    each = values.take(_ROW_BYTES, row_bytes, None if now is None else now.row_bytes)
    return (rows if size_bytes is None else max(1, size_bytes // each)), each


def share_of(given: float | None, values: Values, now: StateNow | None) -> float | None:
    """The part of the rows that a batch changes; None where it is not known."""
    recorded = None if now is None else now.update_share
    known = given is not None or recorded is not None
    return values.take(SHARE, given, recorded) if known else None


def warnings_of_job(
    declared: DeclaredConf, queries: int, query: str, now: StateNow | None, executors: int | None
) -> tuple[str | None, list[str]]:
    """The state store of a job, and the warnings of a plan for it.

    Args:
        queries: How many queries the job has.

    Returns:
        `rocksdb`, `hdfs`, or the class of another store; and warnings.

    Raises:
        InputError: A setting cannot be read (code `bad-input`).
    """
    warnings = []
    job, text = declared.job, (declared.text(PROVIDER) or "").strip()
    class_name = text.rpartition(".")[2]
    set_to = {"": "hdfs", "RocksDBStateStoreProvider": "rocksdb", "HDFSBackedStateStoreProvider": "hdfs"}.get(
        class_name, text
    )
    store = now.provider if now is not None and set_to in STORES else set_to
    how = (
        f"the newest progress record, of batch {now.batch}, shows it"
        if now is not None and set_to in STORES
        else f"{PROVIDER} is {text}"
        if text
        else f"{PROVIDER} is not declared, so Spark's default"
    )
    if store == "hdfs":
        warnings.append(
            f"The state of job {job} is not in RocksDB but HDFS-backed ({how}): it is in the heap, and takes "
            "nothing beside the JVM. The figures are of RocksDB with these settings, in its place."
        )
    elif store != "rocksdb":
        warnings.append(
            f"The state of job {job} is not in RocksDB ({how}): what that store takes is not known. The "
            "figures are of RocksDB with these settings, in its place."
        )
    if store != set_to:
        warnings.append(
            f"The newest progress record shows {STORES[store]} state, and the job declares "
            f"{STORES[set_to]} state{'' if text else ' by leaving ' + PROVIDER + ' out'}. A checkpoint keeps "
            "the store of its first batch; or the application sets it, and perhaps other settings with it: "
            "give those as options."
        )
    if executors is None and not declared.conf.is_local and declared.read(_DYNAMIC):
        warnings.append(
            f"Job {job} allocates executors dynamically ({DYNAMIC}=true), so one executor is calculated "
            "with. Give the fewest that it has as --executors."
        )
    if queries > 1:
        warnings.append(
            f"Job {job} has {queries} queries, which share its executors: these figures are of {query} "
            f"alone. `streambank plan-memory --job {job}` calculates them together."
        )
    if not declared.conf.in_containers:
        warnings.append(
            f"With the master {declared.conf.master} Spark starts no containers, so spark.executor."
            "memoryOverhead limits nothing: the machine needs that much memory beside the heap."
        )
    return store, warnings


def _with_master(declared: DeclaredConf | None) -> DeclaredConf | None:
    if declared is None:
        return None
    conf = declared.conf
    return replace(declared, conf=replace(conf, declared={**conf.declared, "master": conf.master}))
