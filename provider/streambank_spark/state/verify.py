"""The deepest verification: Spark opens every store of a savepoint, and rows are as many as were counted.

What hashing cannot tell, this does: that the files are not only those that were saved, but state that Spark
can go on from. RocksDB counts its rows in each snapshot; where a partition has changes after its newest one,
or is HDFS-backed, nobody has counted, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streambank.checkpoint.closure import OperatorState
from streambank.core.errors import FormatError, NotFoundError
from streambank.core.finding import Finding
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank_spark.failures import WRONG_SCHEMA, first_line, has_wrong_schema
from streambank_spark.state.staging import Staging, materialized_savepoint, require_shared
from streambank_spark.state.state import Part, QueryState, parts_of, store_part

_EFFECT = "A query restored from this savepoint would fail, or go on with wrong state."
_WITH_WRONG_SCHEMA = (None, "dedupe")
"""Operators of which Spark may have written one; Spark 3 does not say their names."""
_HINT = "Restore another savepoint, and check which Spark version wrote this one."


def look_deep(
    spark: SparkSession, repository: Repository, job: str, savepoint: str, staging: Staging
) -> list[Finding]:
    """Open all state of a savepoint, and compare how many rows there are.

    Args:
        spark: A session.
        repository: Where the savepoint is.
        job: `job` or `job/query`.
        savepoint: Its whole id.
        staging: Where it is laid out meanwhile.

    Returns:
        What is wrong, and of which stores nobody had counted the rows.

    Raises:
        StreambankError: It cannot be laid out, or executors do not see it.
    """
    with materialized_savepoint(repository, job, savepoint, staging) as found:
        require_shared(spark, found.location)
        try:
            state = QueryState(spark, found.location)
        except (NotFoundError, FormatError) as error:
            return [Finding(error.code, "error", "state", error.message, _EFFECT, _HINT)]
        counts = _counts(found.manifest)
        named = {one["operator"]: one.get("name") for one in found.manifest.operators}
        return [
            finding
            for operator in state.operators()
            for part, counted in _readings(operator, counts)
            for finding in _open(state, part, counted, named.get(operator.operator))
        ]


def _open(state: QueryState, part: Part, counted: int | None, name: str | None) -> Iterator[Finding]:
    where = f"state/{part.operator}, {part.name}"
    try:
        rows = state.frame(part).count()
    except (PySparkException, Py4JError) as error:
        if name in _WITH_WRONG_SCHEMA and has_wrong_schema(error):
            yield Finding(
                "wrong-state-schema",
                "warning",
                where,
                WRONG_SCHEMA,
                "The bytes are those that were saved, but no row was read. The query can go on from them if "
                "it is dropDuplicates.",
                "If it is dropDuplicates, nothing needs to be done. If not, restore another savepoint.",
            )
            return
        cause = f"Spark cannot read it: {first_line(error)}"
        yield Finding("state-unreadable", "error", where, cause, _EFFECT, _HINT)
        return
    if counted is None:
        yield Finding(
            "rows-not-counted",
            "info",
            where,
            f"Spark reads {rows:,} rows; the savepoint does not say how many there must be.",
            "The bytes are those that were saved, but no row count confirms that no row is missing.",
            "RocksDB counts rows in its snapshots: a savepoint taken right after one has a count to compare.",
        )
    elif counted != rows:
        cause = f"Spark reads {rows:,} rows, but the savepoint says {counted:,}."
        yield Finding("rows-differ", "error", where, cause, _EFFECT, _HINT)


def _counts(manifest: Manifest) -> dict[tuple[int, str], int | None]:
    """How many rows each store has, as the manifest says."""
    return {
        (operator["operator"], store["store"]): store.get("rows")
        for operator in manifest.operators
        for store in operator.get("stores", ())
    }


def _readings(
    operator: OperatorState, counts: dict[tuple[int, str], int | None]
) -> Iterator[tuple[Part, int | None]]:
    """What is read, and how many rows it must have.

    Stores of their own are read one by one, so that their rows can be compared. Where one store holds several
    parts, rows are counted over all of them and over Spark's own indexes, which its reader does not show.
    """
    parts = parts_of(operator)
    if (len(operator.stores) == 1 and len(parts) > 1) or operator.variables or operator.timers:
        yield from ((part, None) for part in parts)
        return
    for store in operator.stores:
        yield store_part(operator, store.store), counts.get((operator.operator, store.store))
