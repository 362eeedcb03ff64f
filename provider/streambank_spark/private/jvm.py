"""What the runner asks of the JVM beside PySpark's own API (what is private to Spark: boundary.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError, InternalError
from streambank.storage import normalize_location
from streambank_spark.failures import first_line, python_error, with_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE_SINK = re.compile(r"FileSink\[(.*)\]\Z", re.DOTALL)
_INTERVAL = re.compile(r"ProcessingTimeTrigger\((\d+)\)")
_MOST_CAUSES = 30
_EXPRESSION_ID = re.compile(r"#\d+L?")
_KAFKA_OPTIONS = {
    "bootstrap": "kafka.bootstrap.servers",
    "subscribe": "subscribe",
    "subscribepattern": "subscribePattern",
    "assign": "assign",
}
_KAFKA = "kafka"
_KAFKA_CLASS = re.compile(r"(?:.*[.$])?Kafka(?:Table|Sink)\Z")
"""Classes of Spark's connector by which it is known, however an application wrote `format(...)`."""
_STATEFUL = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "TransformWithState",
        "TransformWithStateInPySpark",
    }
)
"""Nodes of a streaming plan that keep state, as Spark 4.3 calls them; and joins of two streams."""
STREAMING = "spark.sql.streaming."
_TABLE_DETAILS = "# Detailed Table Information"
_IDENTITY_HASH = re.compile(r"@[0-9a-f]{4,}\b")


def gateway() -> Any:
    """PySpark's gateway to the JVM, which is there from the application's first session on.

    Raises:
        InternalError: There is no session yet.
    """
    from pyspark import SparkContext

    found = SparkContext._gateway
    if found is None:
        raise InternalError(
            "The connection to the JVM exists only once the application has created a session.",
            hint="Report it, with the driver's log.",
        )
    return found


def session_beside(session: SparkSession) -> Any:
    """Another session of the same JVM, with the settings of streaming of one.

    It is none of Python: a `SparkSession` of Python makes itself the one of `RDD.toDF`, for the application
    too (pyspark/sql/session.py). The state store takes some settings from the first query of a JVM, for all
    of them (`StateStore`, `RocksDBMemoryManager`).
    """
    ours = session._jsparkSession
    beside = ours.newSession()
    given = ours.conf().getAll().iterator()
    while given.hasNext():
        pair = given.next()
        name, value = pair._1(), pair._2()
        ours_alone = name == f"{STREAMING}checkpointLocation"
        if name.startswith(STREAMING) and not ours_alone and beside.conf().get(name, None) != value:
            beside.conf().set(name, value)
    return beside


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
    """Why a query failed: in one line, and in another one the innermost cause; None where it did not."""
    error = query.exception()
    if error is None:
        return None
    return python_error(error) or with_cause(first_line(error), _causes(query))


def _causes(query: Any) -> list[str]:
    """What led to the failure of a query, the innermost last, as Java says it."""
    failed = query._jsq.exception()
    causes: list[str] = []
    cause = failed.get().getCause() if failed.isDefined() else None
    while cause is not None and len(causes) < _MOST_CAUSES:
        causes.append(str(cause.toString()))
        cause = cause.getCause()
    return causes


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
    qualified = _qualified(match[1], query._jsq.streamingQuery().sparkSession())
    return f"FileSink[{qualified}]", normalize_location(qualified)


def _qualified(path: str, session: Any) -> str:
    place = getattr(gateway().jvm, "org.apache.hadoop.fs.Path")(path)
    configuration = session.sessionState().newHadoopConf()
    return str(place.getFileSystem(configuration).makeQualified(place).toString())


def location_of(path: str, frame: Any) -> str | None:
    """A path of an application as Hadoop takes it here, as a URI; None where it is none (Spark will tell)."""
    from py4j.protocol import Py4JError

    try:
        return normalize_location(_qualified(path, frame._jdf.sparkSession()))
    except (Py4JError, InputError):
        return None


def table_location(name: str, formats: Collection[str], frame: Any) -> str | None:
    """The directory of a table that is there and has one of these formats, as a URI.

    Args:
        formats: Names of formats, in small letters.

    Returns:
        None where there is no such table, or Spark does not tell.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        if not frame.sparkSession.catalog.tableExists(name):  # to describe it would log an error
            return None
        rows = frame.sparkSession.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except (PySparkException, Py4JError):
        return None
    # Columns come first, and may have any name.
    words = [str(row[0]) for row in rows]
    begin = words.index(_TABLE_DETAILS) if _TABLE_DETAILS in words else len(words)
    details = {str(row[0]): str(row[1]) for row in rows[begin:]}
    if details.get("Provider", "").lower() not in formats or not details.get("Location"):
        return None
    return location_of(details["Location"], frame)


def default_format(frame: Any) -> str:
    """The format that Spark writes where an application names none."""
    return str(frame._jdf.sparkSession().sessionState().conf().defaultDataSourceName())


def operators_of(frame: Any) -> tuple[str, ...]:
    """Spark's words for what keeps state in a streaming DataFrame, in the order of its plan."""
    return tuple(_operators(frame._jdf.queryExecution().analyzed()))


def _operators(node: Any) -> Iterator[str]:
    if not node.isStreaming():
        return
    if keeps_state(node):
        yield str(node.nodeName())
    for one in elements(node.children()):
        yield from _operators(one)


def keeps_state(node: Any) -> bool:
    """Whether a streaming node of an analysed plan keeps state."""
    name = str(node.nodeName())
    return name in _STATEFUL or (
        name == "Join" and all(one.isStreaming() for one in elements(node.children()))
    )


def elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(number) for number in range(sequence.size()))


def is_kafka_sink(query: Any) -> bool:
    """Whether a query writes to Kafka, by the class of its sink: a path may hold any word."""
    return _is_kafkas(query._jsq.streamingQuery().sink())


def _is_kafkas(part: Any) -> bool:
    return _KAFKA_CLASS.match(str(part.getClass().getName())) is not None


def _streams(frame: Any) -> Iterator[Any]:
    """The leaves of a streaming DataFrame's plan that are sources of a stream."""
    leaves = elements(frame._jdf.queryExecution().analyzed().collectLeaves())
    return (leaf for leaf in leaves if leaf.isStreaming())


def sources_of(frame: Any) -> list[str]:
    """Spark's own words for what a streaming DataFrame reads, without the ids that differ from run to run."""
    described = (str(leaf.toString()) for leaf in _streams(frame))
    return [_IDENTITY_HASH.sub("", _EXPRESSION_ID.sub("", text)) for text in described]


def source_options(frame: Any, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Some options of a streaming DataFrame's sources, wherever they were set; others may be secrets."""
    for leaf in _streams(frame):
        for name in names:
            value = _source_option(leaf, name)
            if value is not None:
                yield name, value


def table_options(frame: Any, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Some options set by the catalog's tables that a streaming DataFrame reads; others may be secrets."""
    asked = {name.lower(): name for name in names}
    for leaf in _streams(frame):
        table = _table_of(leaf)
        for pair in () if table is None else elements(table.storage().properties().toSeq()):
            if str(pair._1()).lower() in asked:
                yield asked[str(pair._1()).lower()], str(pair._2())


def _answer(ask: Callable[[], Any]) -> Any:
    """What a leaf of a plan answers; None where it has no such method, which differ from source to source."""
    from py4j.protocol import Py4JError

    try:
        return ask()
    except Py4JError:
        return None


def _table_of(leaf: Any) -> Any:
    """The `CatalogTable` that a leaf reads; None where it reads none."""
    relation = _answer(lambda: leaf.v1Relation())  # StreamingRelationV2, as of Kafka
    if relation is not None:
        if not relation.isDefined():
            return None
        leaf = relation.get()
    table = _answer(lambda: leaf.dataSource().catalogTable())  # StreamingRelation
    return table.get() if table is not None and table.isDefined() else None


def _source_option(leaf: Any, name: str) -> str | None:
    options = _answer(lambda: leaf.extraOptions())  # StreamingRelationV2
    if options is not None:
        value = options.get(name)
        return None if value is None else str(value)
    found = _answer(lambda: leaf.dataSource().caseInsensitiveOptions().get(name))  # StreamingRelation
    return str(found.get()) if found is not None and found.isDefined() else None


def kafka_of(frame: Any) -> dict[str, Any]:
    """What a streaming DataFrame reads, and where its Kafka sources do, as the application told Spark.

    Spark's offset log has the sources in the order of the plan's leaves (MicroBatchExecution collects them
    from it), so a leaf's position is the name of its source. Not where one leaf is there twice: then the
    offset log's second version counts otherwise.

    Returns:
        `streams`: Spark's word for each leaf, `kafka` for Kafka's, None where it has none. `sources`: of
        each of Kafka the options that name servers and topics, and its `position` where that tells.
        Whatever other options there are may be secrets, and are not looked at.
    """
    streams = list(_streams(frame))
    words = [_word(leaf) for leaf in streams]
    twice = any(one.equals(other) for one, other in combinations(streams, 2))
    sources = [
        {**_kafka_options(leaf), **({} if twice else {"position": number})}
        for number, (leaf, word) in enumerate(zip(streams, words, strict=True))
        if word == _KAFKA
    ]
    return {"sources": sources, "streams": words}


def _word(leaf: Any) -> str | None:
    """`kafka`, or what else Spark calls a source, without a path; None where it does not say."""
    name = _answer(lambda: str(leaf.sourceName()))
    if name is None or name.lower() == _KAFKA:
        return None if name is None else _KAFKA
    # A source of the first version has no table.
    return _KAFKA if _answer(lambda: _is_kafkas(leaf.table())) else str(name).partition("[")[0]


def _kafka_options(leaf: Any) -> dict[str, str]:
    options = _answer(lambda: leaf.extraOptions())
    if options is None:
        return {}
    named = {key: options.get(option) for key, option in _KAFKA_OPTIONS.items()}
    return {key: str(value) for key, value in named.items() if value is not None}


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
