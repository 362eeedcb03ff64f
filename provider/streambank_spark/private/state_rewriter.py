"""Rewriting state stores through Spark: the one place that uses its `StateRewriter`, which is private.

It reads each store of each operator as raw rows (`partition_key`, the bytes of key and value, the column
family), hands them to a function, and writes what that gives as one snapshot of each partition. It is what
Spark's own offline repartitioning is made of. With a directory to read from apart from the one to write to,
Spark allows the same batch for both, which is what keeps sinks and sources out of it.

Private, read in Spark 4.3.0's source and tried there: the constructor and `run` of
`org.apache.spark.sql.execution.streaming.state.StateRewriter`, and the options of the relation that it hands
to the function. What was written is verified by whoever asks (rewrite/check.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streambank.checkpoint.logs import UniqueIds
from streambank.core.errors import StorageError
from streambank.driver.spark_releases import FOR_STATE, listed, rewrites_state
from streambank_spark.failures import first_line, not_supported
from streambank_spark.private.jvm import gateway

_STATE = "org.apache.spark.sql.execution.streaming.state."
_OPTIONS = "org.apache.spark.sql.execution.datasources.v2.state.StateSourceOptions"

Change = Callable[[int, str, DataFrame], DataFrame]
"""What becomes of the raw rows of a store: operator and store's name, its rows -> those to write."""


def require_known_spark(version: str) -> None:
    """Refuse a Spark in which rewriting was never tried.

    Raises:
        FormatError: It was not (code `spark-not-supported`).
    """
    if not rewrites_state(version):
        raise not_supported(
            f"State cannot be rewritten with Spark {version}: the rewrite needs a private part of Spark.",
            f"Run it with PySpark {listed(FOR_STATE)}; the query may run on another one.",
        )


def quiet_session(spark: SparkSession, checkpoint_format: int) -> SparkSession:
    """A separate session for reading and writing raw state.

    Its plans are what they look like, since the place of a partition among a job's tasks says where it is
    written; and it has the checkpoint format, which Spark takes from the session.
    """
    session = spark.newSession()
    session.conf.set(FORMAT_VERSION, str(checkpoint_format))
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session


def raw_rows(session: SparkSession, location: str, batch: int, operator: int, store: str) -> DataFrame:
    """A store's partition_key, key_bytes, value_bytes and column_family_name, by a `quiet_session`."""
    everything = str(_java(_OPTIONS).INTERNAL_ONLY_READ_ALL_COLUMN_FAMILIES())
    reader = session.read.format("statestore").option("batchId", batch).option("operatorId", operator)
    return reader.option("storeName", store).option(everything, "true").load(location)


def rewrite_stores(
    session: SparkSession,
    source: str,
    target: str,
    batch: int,
    change: Change,
) -> UniqueIds | None:
    """Rewrite every store of every operator.

    Args:
        session: Of `quiet_session`.
        source: The checkpoint to read, as a URI.
        target: The one to write to, with its logs, schemas and operator metadata in place and no state.
        batch: After which batch the state is, in both.
        change: What becomes of the rows; the schema must stay.

    Returns:
        The new state versions by operator, partition and store; None for checkpoint format v1.

    Raises:
        FormatError: Another Spark (code `spark-not-supported`).
        StorageError: Spark failed (code `spark-failed`).
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
    from pyspark import __version__
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import ensure_callback_server_started

    require_known_spark(__version__)
    ensure_callback_server_started(gateway())  # type: ignore[no-untyped-call]
    function = _Function(session, change)
    java_session: Any = session._jsparkSession
    scala = gateway().jvm.scala
    nothing = getattr(getattr(scala, "None$"), "MODULE$")
    try:
        rewriter = _java(f"{_STATE}StateRewriter")(
            java_session,
            batch,
            batch,
            target,
            java_session.sessionState().newHadoopConf(),
            scala.Some(source),
            scala.Some(function),
            nothing,
        )
        return _unique_ids(rewriter.run())
    except (Py4JError, PySparkException) as error:
        if function.error is not None:
            raise function.error from error
        raise StorageError(
            f"Spark could not rewrite the state: {first_line(error)}",
            code="spark-failed",
            hint="The full message is in the driver's log. The savepoint is unchanged.",
        ) from error


class _Function:
    """A Python function as Scala's `DataFrame => DataFrame`."""

    def __init__(self, session: SparkSession, change: Change) -> None:
        self._session = session
        self._change = change
        self.error: Exception | None = None

    def apply(self, java_frame: Any) -> Any:
        """Called by Spark, once for each store."""
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

        try:
            options = java_frame.queryExecution().analyzed().collectLeaves().apply(0).options()
            operator, store = int(options.get("operatorId")), str(options.get("storeName"))
            frame: Any = ClassicDataFrame(java_frame, self._session)
            return self._change(operator, store, frame)._jdf
        except Exception as error:
            self.error = error  # what comes back through the JVM has lost its type
            raise

    class Java:
        implements = ("scala.Function1",)


def _java(name: str) -> Any:
    return getattr(gateway().jvm, name)


def _unique_ids(found: Any) -> UniqueIds | None:
    if not found.isDefined():
        return None
    result: dict[int, tuple[tuple[str, ...], ...]] = {}
    entries = found.get().iterator()
    while entries.hasNext():
        entry = entries.next()
        result[int(entry._1())] = tuple(tuple(str(one) for one in stores) for stores in entry._2())
    return result


FORMAT_VERSION = "spark.sql.streaming.stateStore.checkpointFormatVersion"
