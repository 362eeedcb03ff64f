"""The deepest verification: Spark opens every store of a savepoint, and rows are as many as were counted.

What hashing cannot tell, this does: that the files are not only those that were saved, but state that Spark
can go on from. RocksDB counts its rows in each snapshot; where a partition has changes after its newest one,
or is HDFS-backed, nobody has counted, and that is said.

What Spark's *reader* cannot open, its *query* may well load: the reader needs a schema file, which Spark
before 3.1 did not write. Such state is not checked, and that is no damage: damage is what a query would
stumble over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streambank.checkpoint.closure import OperatorState
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.inspection import counted_twice
from streambank.checkpoint.schema.store import parse_state_schema
from streambank.checkpoint.state.rocksdb import read_zip_metadata
from streambank.core.errors import FormatError, NotFoundError
from streambank.core.finding import Finding
from streambank.driver.failure import NO_ROOM
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.view import SavedFiles
from streambank_spark.failures import WRONG_SCHEMA, first_line, has_wrong_schema
from streambank_spark.state.staging import Staging, materialized_savepoint, require_shared
from streambank_spark.state.state import QueryState, StatePart, parts_of, store_part

_EFFECT = "A query restored from this savepoint would fail, or go on with wrong state."
_READERS_OWN = "STDS_FAILED_TO_READ_STATE_SCHEMA"
"""What Spark's state reader alone needs: a query writes its schema anew. No other `STDS_` condition is so."""
_ENVIRONMENT = (
    (re.compile(r"OutOfMemoryError|exceeding memory limits|GC overhead"), "Spark ran out of memory"),
    (NO_ROOM, "a disk was full"),
    (re.compile(r"Too many open files"), "too many files were open"),
    (
        re.compile(r"CODEC_NOT_AVAILABLE|ClassNotFoundException|NoClassDefFoundError|UnsatisfiedLinkError"),
        "a class that the state needs is not here",
    ),
    (
        re.compile(r"SparkContext was shut down|ExecutorLost|[Ee]xecutor \S+ (lost|exited)|Py4JNetworkError"),
        "Spark ended, or an executor was lost",
    ),
)
"""What may have nothing to do with the state, in Spark's words and in ours."""
_NO_SCHEMA = (
    "Not checked: no schema file of {store} is in the savepoint, without which Spark's state reader opens "
    "nothing (Spark before 3.1 wrote none); every byte is verified (full)."
)
_WITH_WRONG_SCHEMA = (None, "dedupe")
"""Operators of which Spark may have written one; Spark 3 does not say their names."""
_HINT = "Restore another savepoint, and check which Spark version wrote this one."


def look_deep(
    spark: SparkSession, repository: Repository, job: str, savepoint: str, staging: Staging
) -> list[Finding]:
    """What is wrong with a savepoint's state, all of it opened, and which stores' rows nobody had counted."""
    with materialized_savepoint(repository, job, savepoint, staging) as found:
        require_shared(spark, found.location)
        try:
            state = QueryState(spark, found.location)
        except (NotFoundError, FormatError) as error:
            return [Finding(error.code, "error", "state", error.message, _EFFECT, _HINT)]
        counts = _counts(found.manifest)
        look = _Look(state, CheckpointIndex.build(SavedFiles(repository, found.manifest).listing()))
        named = {one["operator"]: one.get("name") for one in found.manifest.operators}
        sizes = {file.path: file.size_bytes for file in state.closure.files}
        miscounted = counted_twice(
            state.closure, lambda path: read_zip_metadata(path, sizes[path], state.store.read)
        )
        return [replace(one, severity="info") for one in miscounted] + [
            finding
            for operator in state.operators()
            for part, counted in _readings(operator, counts)
            for finding in _open(look, operator, part, counted, named.get(operator.operator))
        ]


@dataclass(frozen=True, slots=True)
class _Look:
    """What is opened: the state that was laid out, and what files the savepoint has of it."""

    state: QueryState
    index: CheckpointIndex

    def lacks_schema(self, operator: OperatorState, part: StatePart) -> str | None:
        """A store of a part that has no schema file; None where each has one."""
        files = self.index.operators[operator.operator]
        if files.schemas_v3:
            return None
        names = [store.store for store in operator.stores]
        wanted = [part.name] if part.name in names else names
        for name in wanted:
            stores = [store for (_, store_name), store in files.stores.items() if store_name == name]
            if not any(store.schema for store in stores):
                return f"store {name}" if len(names) > 1 else f"state/{operator.operator}"
        return None

    def readable_schemas(self, operator: OperatorState) -> bool:
        """Whether each schema file of an operator is whole, as far as we understand them."""
        files = self.index.operators[operator.operator]
        paths = [*files.schemas_v3.values(), *(one.schema for one in files.stores.values() if one.schema)]
        try:
            for path in paths:
                parse_state_schema(self.state.store.read(path), path)
        except (FormatError, NotFoundError):
            return False
        return True

    def said(self, error: BaseException) -> str:
        """What Spark says of a failure, without the folder in which the state was laid out."""
        text = first_line(error)
        folder = self.state.location.rstrip("/")
        bare = folder.partition("://")[2] or folder
        for form in (folder, f"file://{bare}", f"file:{bare}", bare):
            text = text.replace(f"{form}/", "").replace(form, "the checkpoint")
        return _JAVA_OPTIONS.sub("", text)


_JAVA_OPTIONS = re.compile(r"\s*\b[A-Za-z.]*(Options|StoreProvider|StoreId|ProviderId)[(\[][^)\]]*[)\]]")


def _not_checked(where: str, why: str, *, remedy: bool) -> Finding:
    return Finding(
        "state-not-checked",
        "warning" if remedy else "info",
        where,
        why,
        "It is not known whether a query can go on from this state."
        if remedy
        else "Nothing speaks against the state: a restore is not affected.",
        "Verify again when that has been put right. If memory never suffices, a state file may be damaged."
        if remedy
        else "Nothing needs to be done. Spark writes a schema when the query starts: a savepoint taken after "
        "that can be opened.",
    )


def _open(
    look: _Look, operator: OperatorState, part: StatePart, counted: int | None, name: str | None
) -> Iterator[Finding]:
    where = f"state/{part.operator}, {part.name}"
    state = look.state
    if (store := look.lacks_schema(operator, part)) is not None:
        yield _not_checked(where, _NO_SCHEMA.format(store=store), remedy=False)
        return
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
        text = str(error)
        why = next((words for pattern, words in _ENVIRONMENT if pattern.search(text)), None)
        if why is not None:
            yield _not_checked(
                where, f"Not checked: {why}; every byte is verified (full). {look.said(error)}", remedy=True
            )
            return
        if _READERS_OWN in text and look.readable_schemas(operator):
            yield _not_checked(
                where,
                f"Not checked: Spark's state reader cannot open this state ({_READERS_OWN}), which a "
                "query can; every byte is verified (full).",
                remedy=False,
            )
            return
        cause = f"Spark cannot read it: {look.said(error)}"
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
) -> Iterator[tuple[StatePart, int | None]]:
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
