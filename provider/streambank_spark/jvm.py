"""What the runner asks of the JVM beside PySpark's own API (what is private to Spark: boundary.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from streambank.errors import InternalError
from streambank.storage import normalize_location

_FILE_SINK = re.compile(r"FileSink\[(.*)\]\Z", re.DOTALL)
_INTERVAL = re.compile(r"ProcessingTimeTrigger\((\d+)\)")
_EXPRESSION_ID = re.compile(r"#\d+L?")
_KAFKA_OPTIONS = {
    "bootstrap": "kafka.bootstrap.servers",
    "subscribe": "subscribe",
    "subscribepattern": "subscribePattern",
    "assign": "assign",
}
_IDENTITY_HASH = re.compile(r"@[0-9a-f]{4,}\b")


def gateway() -> Any:
    """PySpark's gateway to the JVM, which is there from the application's first session on.

    Raises:
        InternalError: There is no session yet.
    """
    from pyspark.core.context import SparkContext

    found = SparkContext._gateway
    if found is None:
        raise InternalError(
            "There is no connection to the JVM before the application has made a session.",
            hint="Report it, with the driver's log.",
        )
    return found


def jvm_pid() -> int:
    """The process id of the JVM at the other end of the gateway."""
    return int(getattr(gateway().jvm, "java.lang.ProcessHandle").current().pid())


def wait_ended(query: Any) -> None:
    """Return when a query's thread has ended, well or not.

    Neither `isActive` nor `awaitTermination` with a timeout tells: both answer from the moment a stop was
    asked, while the batch still runs. Only the wait without a timeout waits for the thread.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
    from pyspark.errors import StreamingQueryException

    try:
        query._jsq.awaitTermination()
    except (StreamingQueryException, Py4JError, OSError):
        # It failed, which `failure` tells, or the JVM is gone, and with it the query.
        return


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


def trigger_s(query: Any) -> float | None:
    """The interval of a query's trigger in seconds, 0 where it has none; None for another kind of trigger."""
    match = _INTERVAL.fullmatch(str(query._jsq.streamingQuery().trigger().toString()))
    return None if match is None else int(match[1]) / 1000


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
    streaming = (leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming())
    described = (str(leaf.toString()) for leaf in streaming)
    return [_IDENTITY_HASH.sub("", _EXPRESSION_ID.sub("", text)) for text in described]


def kafka_sources_of(frame: Any) -> list[dict[str, str]]:
    """Where the Kafka sources of a streaming DataFrame read, as the application told Spark.

    Only options that name servers and topics are looked at; whatever else there is may be a secret.
    """
    from py4j.protocol import Py4JError

    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = []
    for leaf in map(leaves.apply, range(leaves.size())):
        try:
            if not leaf.isStreaming() or str(leaf.sourceName()) != "kafka":
                continue
            options = leaf.extraOptions()
            named = {key: options.get(option) for key, option in _KAFKA_OPTIONS.items()}
        except Py4JError:
            continue  # a relation that has no options is none of Kafka's
        found.append({key: str(value) for key, value in named.items() if value is not None})
    return found


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
