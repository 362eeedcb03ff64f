"""What the runner asks of the JVM beside PySpark's own API; all that is private to Spark, guarded by version.

The private parts, read in Spark 4.3.0 and tried there: the state of a `StreamExecution` (an
`AtomicReference`) and the singleton `TERMINATED` in `org.apache.spark.sql.execution.streaming.runtime`.
Setting it is what `query.stop()` does first; leaving out the rest of `stop()`, which cancels jobs and
interrupts the thread, lets the running batch finish and commit, and no other one begin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from streambank.errors import FormatError, InternalError
from streambank.storage import normalize_location

KNOWN_SPARK = ("4.3",)
"""The minor versions of Spark whose private parts were read and tried."""

_TERMINATED = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"
_FILE_SINK = re.compile(r"FileSink\[(.*)\]\Z", re.DOTALL)
_EXPRESSION_ID = re.compile(r"#\d+L?")
_IDENTITY_HASH = re.compile(r"@[0-9a-f]{4,}\b")


def require_known_spark(version: str) -> None:
    """Refuse a Spark in which a stop at a batch boundary was never tried.

    Raises:
        FormatError: The version is not among `KNOWN_SPARK` (code `spark-not-supported`).
    """
    if not any(version.startswith(f"{known}.") for known in KNOWN_SPARK):
        raise FormatError(
            f"The runner does not know Spark {version}; it stops queries through a private part of Spark.",
            code="spark-not-supported",
            hint=f"Run the job with PySpark {' or '.join(KNOWN_SPARK)}.",
        )


def gateway() -> Any:
    """PySpark's gateway to the JVM, which is there from the application's first session on.

    Raises:
        InternalError: There is no session yet.
    """
    from pyspark.core.context import SparkContext

    found = SparkContext._gateway
    if found is None:
        raise InternalError("There is no connection to the JVM before the application has made a session.")
    return found


def jvm_pid() -> int:
    """The process id of the JVM at the other end of the gateway."""
    return int(getattr(gateway().jvm, "java.lang.ProcessHandle").current().pid())


def finish_batch_then_end(query: Any) -> None:
    """Let a query end at its next batch boundary: the running batch commits, and no other one begins.

    Args:
        query: PySpark's `StreamingQuery`.
    """
    from pyspark import __version__

    require_known_spark(__version__)
    terminated = getattr(getattr(gateway().jvm, _TERMINATED), "MODULE$")
    query._jsq.streamingQuery().state().set(terminated)


def ended(query: Any, timeout_ms: int = 1) -> bool:
    """Whether a query's thread has ended, waiting that long for it; failed counts as ended.

    `isActive` does not tell: it is false from the moment a stop was asked, while the batch still runs.
    """
    from pyspark.errors import StreamingQueryException

    try:
        return bool(query._jsq.awaitTermination(timeout_ms))
    except StreamingQueryException:
        return True


def spark_version(query: Any) -> str:
    """The version of the JVM's Spark."""
    return str(query._jsq.streamingQuery().sparkSession().version())


def failure(query: Any) -> str | None:
    """Why a query failed, in its first line; None where it did not."""
    error = query.exception()
    if error is None:
        return None
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def sink_of(query: Any) -> tuple[str, str | None]:
    """Spark's own words for a query's sink, and the directory as a URI where it is a file sink.

    A relative path means what Hadoop's file system takes it for in this driver, so it is made absolute here.
    """
    text = str(query._jsq.streamingQuery().sink().toString())
    match = _FILE_SINK.match(text)
    if match is None:
        return _IDENTITY_HASH.sub("", text), None
    jvm = gateway().jvm
    path = getattr(jvm, "org.apache.hadoop.fs.Path")(match[1])
    configuration = query._jsq.streamingQuery().sparkSession().sessionState().newHadoopConf()
    qualified = str(path.getFileSystem(configuration).makeQualified(path).toString())
    return f"FileSink[{qualified}]", normalize_location(qualified)


def sources_of(frame: Any) -> list[str]:
    """Spark's own words for what a streaming DataFrame reads, without the ids that differ from run to run."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    described = (str(leaves.apply(index).toString()) for index in range(leaves.size()))
    return [_IDENTITY_HASH.sub("", _EXPRESSION_ID.sub("", text)) for text in described]


def new_progress(query: Any, after_batch: int) -> Iterator[str]:
    """Spark's progress records as JSON, oldest first, of batches above `after_batch`.

    Only the new ones are turned into JSON: asking for all of them each time costs several times as much.
    """
    records = query._jsq.recentProgress()
    first = len(records)
    while first > 0 and int(records[first - 1].batchId()) > after_batch:
        first -= 1
    for index in range(first, len(records)):
        yield str(records[index].json())
