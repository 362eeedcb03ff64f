"""What of a checkpoint a release of Spark does not go on with: found before anything is stopped or launched.

Spark itself says it, too: in a driver's log, after the job was stopped for it. The table of what each release
reads is in spark_releases.py; `make test-matrix` compares it with what each release does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.rewritable import JOIN_FORMAT
from streambank.checkpoint.shape import OperatorState
from streambank.control.control import JobControl
from streambank.core.errors import ConflictError, FormatError, NotFoundError, RefusedError, StreambankError
from streambank.core.names import QueryRef
from streambank.declaration.declaration import Job
from streambank.driver.installed import installation_that_submits
from streambank.driver.spark_properties import read_properties
from streambank.driver.spark_releases import FOR_STATE, SparkRelease, listed, release_of
from streambank.storage import open_store

_OF_VARIABLES = "transformWithState"
SCHEMA_CHECK = "spark.sql.streaming.stateStore.stateSchemaCheck"
_NO_METADATA = "3.5"
"""It writes no operator metadata, and the keys of joins as columns that are never null, as no later one."""
_TRIES = 5
_ALONE = "4.0"
"""Its format v2 of RocksDB state is read by no other release, nor reads it that of another."""


def obstacles(
    closure: Closure,
    version: str,
    written_by: str | None = None,
    conf: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """What of a checkpoint a Spark does not go on with; empty where it does, or is not in the table.

    Args:
        version: The version of that Spark, such as `4.3.0`.
        written_by: The version that wrote the checkpoint, where that is known.

    Returns:
        Each as the rest of a sentence about the checkpoint, such as `its offset log has format v2`.
    """
    release = release_of(version)
    if release is None:
        return []
    spark = closure.spark
    found = []
    if spark.offsets_version > release.offsets_version:
        found.append(f"its offset log has format v{spark.offsets_version}")
    if spark.checkpoint_format > release.checkpoint_format:
        found.append(f"its state has checkpoint format v{spark.checkpoint_format}")
    elif writer := _stranger(closure, release, written_by):
        found.append(f"Spark {writer} wrote its RocksDB state in checkpoint format v2")
    join = closure.offset_conf.get(JOIN_FORMAT, "")
    if join.isdigit() and int(join) > release.join_format and any(map(_is_join, closure.operators)):
        found.append(f"its joins have state format v{join}")
    old_join = any(map(_is_old_join, closure.operators)) and conf.get(SCHEMA_CHECK) != "false"
    if old_join and release.name != _NO_METADATA:
        found.append(
            f"Spark {_NO_METADATA} wrote the state of its joins, whose keys a newer Spark takes for another "
            f'type, since they can be null there (declare {SCHEMA_CHECK} = "false"; the rows are the same)'
        )
    if not release.variables and any(
        _OF_VARIABLES in (operator.name or "") for operator in closure.operators
    ):
        found.append(f"it has state of {_OF_VARIABLES}")
    return found


def check_release(
    job: str,
    closure: Closure,
    version: str,
    written_by: str | None,
    conf: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse a launch on a Spark that does not go on with a checkpoint of `job` or `job/query`.

    Raises:
        RefusedError: It does not (code `checkpoint-of-another-spark`).
    """
    found = obstacles(closure, version, written_by, conf)
    if not found:
        return
    raise RefusedError(
        f"Spark {version} cannot go on with the checkpoint of job {job}: {'; '.join(found)}.",
        code="checkpoint-of-another-spark",
        hint="Name the Spark that wrote it as the job's `spark_home` or `python`, or restore a savepoint "
        "that was taken before the job changed to that Spark.",
    )


def check_rewritable(closure: Closure, written_by: str | None) -> None:
    """Refuse to rewrite state that the Spark for work on state does not read, or not as it has to be written.

    Raises:
        RefusedError: It is such state (code `state-of-another-spark`).
    """
    if _of_alone(closure, written_by):
        raise RefusedError(
            f"Spark {_ALONE} wrote this RocksDB state in checkpoint format v2, and Spark "
            f"{listed(FOR_STATE)}, which would rewrite it, cannot read it for that.",
            code="state-of-another-spark",
            hint="Nothing was stopped. State that is HDFS-backed, or that a newer Spark has begun, can be "
            "rewritten.",
        )


def writer_of(control: JobControl, query: str | None) -> str | None:
    """The version of the Spark that last worked in the checkpoint that counts; None where no record tells.

    A checkpoint that was restored, and in which no query has been started since, is of whatever Spark its
    savepoint was taken from: no record says which.
    """
    generation, facts = control.generation(query), control.query_facts(query) or {}
    said = facts.get("spark_version")
    known = generation is not None and facts.get("generation") == generation.number
    return said if known and isinstance(said, str) else None


def check_change(job: Job, control: JobControl, version: str | None) -> None:
    """Refuse a launch on a release that does not go on with what another one wrote.

    Reads the checkpoints of queries that last ran on another release, or on one that no record names. Spark
    itself judges one that cannot be read.

    Raises:
        ConflictError: A checkpoint moved each time it was read (code `checkpoint-moved`).
    """
    release = None if version is None else release_of(version)
    if version is None or release is None:
        return
    for name in job.queries:
        generation, written_by = control.generation(name), writer_of(control, name)
        if generation is None or (written_by is not None and release_of(written_by) == release):
            continue
        closure = newest_closure(generation.location)
        if closure is not None:
            conf = settings_of(job) if any(map(_is_old_join, closure.operators)) else job.spark
            check_release(str(QueryRef.of(job.name, name)), closure, version, written_by, conf)


def settings_of(job: Job) -> Mapping[str, str]:
    """The settings of Spark that a job declares, over the defaults of the Spark that submits its drivers.

    Defaults that cannot be found or read count for nothing: the launch says what is wrong with them.
    """
    try:
        defaults = read_properties(installation_that_submits(job).defaults(os.environ))
    except StreambankError:
        defaults = {}
    return {**defaults, **job.spark}


def newest_closure(location: str) -> Closure | None:
    """What a checkpoint holds after its newest batch; None where it has none that is understood.

    Raises:
        ConflictError: It moved each time it was read (code `checkpoint-moved`).
    """
    for again in range(_TRIES, 0, -1):
        try:
            return CheckpointReader(open_store(location)).closure(None, "minimal")
        except ConflictError:
            if again == 1:
                raise
        except (FormatError, NotFoundError):
            break
    return None


def _stranger(closure: Closure, release: SparkRelease, written_by: str | None) -> str | None:
    """Whose state in format v2 it is, where a release cannot read it; None where it can, or nothing tells."""
    if release.name != _ALONE:
        return _ALONE if _of_alone(closure, written_by) else None
    wrote = None if written_by is None else release_of(written_by)
    of_another = _has_ids(closure) and wrote is not None and wrote.name != _ALONE
    return written_by if of_another else None


def _of_alone(closure: Closure, written_by: str | None) -> bool:
    """Whether only Spark 4.0 reads this state.

    It writes snapshots of version 2, which no other release reads; some of version 1, too, where another
    query of its JVM had format v1. Where there is no snapshot, it is asked who wrote it.
    """
    if not _has_ids(closure):
        return False
    if closure.spark.snapshot_version is not None:
        return closure.spark.snapshot_version == 2
    wrote = None if written_by is None else release_of(written_by)
    return wrote is not None and wrote.name == _ALONE


def _has_ids(closure: Closure) -> bool:
    return closure.spark.checkpoint_format == 2 and closure.spark.provider == "rocksdb"


def _is_join(operator: OperatorState) -> bool:
    return "join" in (operator.name or "").lower()


def _is_old_join(operator: OperatorState) -> bool:
    """Without operator metadata, which Spark 3.5 does not write, the names of the stores tell."""
    return operator.name is None and any(store.store.startswith("left-") for store in operator.stores)
