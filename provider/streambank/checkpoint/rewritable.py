"""Which state can be rewritten at all: what speaks against it is in the small files of a checkpoint."""

from __future__ import annotations

from importlib.util import find_spec

from streambank.checkpoint.operators import GLOBAL_LIMIT
from streambank.checkpoint.schema.query import read_query_schema
from streambank.checkpoint.schema.unnamed import operator_names
from streambank.checkpoint.shape import Closure
from streambank.core.errors import FormatError, InputError, NotFoundError, RefusedError, StorageError
from streambank.storage.store import Readable

JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
_PACKAGES = {"lz4": ("lz4", "xxhash"), "zstd": ("zstandard",)}
"""What rewriting HDFS-backed state takes, by the codec of its files."""
_ROW_CHECKSUM = "spark.sql.streaming.stateStore.rowChecksum.enabled"

_JOIN = "symmetricHashJoin"


def check_no_limit(checkpoint: Readable, closure: Closure) -> None:
    """Refuse to rewrite RocksDB state of a limit.

    Raises:
        RefusedError: There is such an operator (code `limit-state`).
        FormatError: A schema is not understood.
    """
    if closure.spark.provider != "rocksdb":
        return
    names = operator_names(checkpoint, closure)
    limits = [str(number) for number, name in sorted(names.items()) if name == GLOBAL_LIMIT]
    if limits:
        raise RefusedError(
            f"The RocksDB state of a limit (operator {', '.join(limits)}) cannot be rewritten.",
            code="limit-state",
            hint="Spark's writer does not support a limit. Start with an empty checkpoint, or keep it.",
        )


def check_join(closure: Closure) -> None:
    """Refuse to rewrite a join's state of format 4, of which Spark cannot read what its rewriter has written.

    Raises:
        RefusedError: There is such an operator (code `join-format`).
    """
    version = closure.offset_conf.get(JOIN_FORMAT)
    if version == "4" and any((operator.name or "").startswith(_JOIN) for operator in closure.operators):
        raise RefusedError(
            "The state of a join of format 4 cannot be rewritten.",
            code="join-format",
            hint=f"The first batch fixes {JOIN_FORMAT}: start the job with an empty checkpoint and format 3, "
            "or keep it. Savepoints and restores take every format.",
        )


STRICT = "spark.sql.streaming.statefulOperator.useStrictDistribution"


def is_strict(closure: Closure) -> bool:
    """Whether Spark places the rows of each stateful operator by all columns of its key.

    If not, rows may lie by some of the columns, for example those of a `repartition` before the operator.
    The offset log keeps the setting; a checkpoint that was begun before Spark 3.3 has none, and is not strict
    (Spark: OffsetSeqMetadata, StatefulOpClusteredDistribution).
    """
    return closure.offset_conf.get(STRICT, "false").lower() == "true"


def check_strict(checkpoint: Readable, closure: Closure) -> None:
    """Make sure that the partition of each row is known from its key, before rows get another partition.

    It is known of a join, which Spark places by all columns of its key (StreamingSymmetricHashJoinExec), and
    of a key of one column.

    Raises:
        RefusedError: It is not (code `loose-distribution`).
    """
    loose = [] if is_strict(closure) else _of_several_columns(checkpoint, closure)
    if loose:
        raise RefusedError(
            f"The number of partitions cannot be changed: {STRICT} is false, so the key of operator "
            f"{', '.join(map(str, loose))} does not say where Spark looks for a row.",
            code="loose-distribution",
            hint="The first batch fixes the setting, and Spark before 3.3 had none: start with an empty "
            "checkpoint.",
        )


def _of_several_columns(checkpoint: Readable, closure: Closure) -> list[int]:
    ids = {operator.operator for operator in closure.operators}
    try:
        schema = read_query_schema(closure.paths, checkpoint.read, closure.offset_conf)
        names = operator_names(checkpoint, closure)
    except (FormatError, NotFoundError):
        return sorted(ids)
    known = {
        operator.operator
        for operator in schema.operators
        if names.get(operator.operator, "").startswith(_JOIN)
        or all(
            len(family.key.get("fields", ())) <= 1
            for store in operator.stores
            for family in store.newest.values()
        )
    }
    return sorted(ids - known)


def check_codec(closure: Closure, elsewhere: bool) -> None:
    """Make sure that HDFS-backed state can be read and written as it is compressed, or `elsewhere`.

    A Spark elsewhere has Python packages of its own.

    Raises:
        RefusedError: It cannot (codes `unknown-codec`, `row-checksum`).
        StorageError: A package for it is not installed (code `missing-package`).
    """
    codec = closure.spark.codec or "lz4"
    if codec not in _PACKAGES:
        raise RefusedError(
            f"HDFS-backed state compressed with {codec} cannot be rewritten.",
            code="unknown-codec",
            hint=f"Codecs that can be rewritten: {' or '.join(_PACKAGES)}. RocksDB state can be rewritten "
            "with any codec.",
        )
    missing = [name for name in _PACKAGES[codec] if find_spec(name) is None]
    if missing and not elsewhere:
        raise StorageError(
            f"Rewriting HDFS-backed state takes {' and '.join(missing)}; not installed here.",
            code="missing-package",
            hint=f"Install {' and '.join(missing)}, on the executors too.",
        )
    if closure.offset_conf.get(_ROW_CHECKSUM, "false").lower() == "true":
        raise RefusedError(
            "HDFS-backed state with checksums of its rows cannot be rewritten.",
            code="row-checksum",
            hint=f"{_ROW_CHECKSUM} is fixed by the first batch: start the job from nothing without it, or "
            "with RocksDB.",
        )


def check_state(closure: Closure) -> None:
    """Refuse to rewrite state where there is none.

    Raises:
        RefusedError: The query keeps none (code `no-state`).
    """
    if not closure.operators or closure.spark.provider is None:
        raise RefusedError(
            "The query keeps no state: there is nothing to rewrite.",
            code="no-state",
            hint="`streambank inspect` shows what a checkpoint holds.",
        )


def check_partitions(checkpoint: Readable, closure: Closure) -> None:
    """Refuse another number of partitions where Spark has no way to spread the rows.

    Raises:
        RefusedError: The state is HDFS-backed (code `hdfs-backed`), or as `check_strict`.
    """
    if closure.spark.provider == "hdfs":
        raise RefusedError(
            "The number of partitions of HDFS-backed state cannot be changed: Spark refuses it, too.",
            code="hdfs-backed",
            hint="`streambank state migrate --partitions N` turns it into RocksDB with that many partitions.",
        )
    check_strict(checkpoint, closure)


def check_earlier(savepoint: str, then: tuple[str, int], now: tuple[str, int]) -> None:
    """Refuse to compare state with a savepoint that is not from before it; each is a query id and a batch.

    Raises:
        InputError: It is of another query, or of no lower batch (code `not-earlier`).
    """
    if then[0] != now[0] or then[1] >= now[1]:
        raise InputError(
            f"{savepoint} is of batch {then[1]} of query {then[0]}, which is not earlier than batch {now[1]} "
            f"of query {now[0]}.",
            code="not-earlier",
            hint="Name a savepoint of the same query with a lower batch.",
        )
