"""A query that is a copy writes elsewhere, and leaves its sources as they are.

The application stays unchanged. Where it starts a query, the place that it names gives way to the one of the
launch: the option `path` of a file sink or a Delta table, the option `topic` of Kafka (which goes before a
column `topic`), the name of a table. Any other sink that Spark knows by format gives way to `foreachBatch`,
which keeps each batch as Parquet. What an application's own `foreachBatch` writes cannot be redirected, so
such a query is not started.

Reading changes something, too: `cleanSource` deletes or moves the files of a file source, and a
`kafka.group.id` is shared with the live query. Both options are left out for a copy.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streambank.core.errors import RefusedError
from streambank.driver.outputs import FILES, TABLE, Output
from streambank.driver.redirected import (
    SCRATCH,
    SHARED_WITH_THE_LIVE_QUERY,
    check_source_kinds,
    reaches_live_query,
    redirected,
)
from streambank.sinks.redirect import Redirect, batch_folder
from streambank.storage import service_name
from streambank_spark.private import jvm

_log = logging.getLogger(__name__)

REFUSED = "copy-refused"
"""The event of a copy that may not start."""
_SHARED = frozenset(name.lower() for name in SHARED_WITH_THE_LIVE_QUERY)
_PARTITIONING = "_streambank_partitioning"


def install() -> None:
    """Let no reader of this driver ask for what would touch the live query's sources.

    And put partitioning off until it is known which sink a query gets: `foreachBatch` refuses any.
    """
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

    reader: Any = DataStreamReader
    reader.option = _leaving_out_option(reader.option)
    reader.options = _leaving_out_options(reader.options)
    writer: Any = DataStreamWriter
    for name in ("partitionBy", "clusterBy"):
        if hasattr(writer, name):  # clusterBy came with Spark 4.0
            setattr(writer, name, _put_off(getattr(writer, name)))


def fixed_options(frame: Any) -> tuple[str, ...]:
    """Options of the sources of a query that a copy of it could not leave out: those of tables."""
    found = jvm.table_options(frame, SHARED_WITH_THE_LIVE_QUERY)
    return tuple(dict.fromkeys(name for name, value in found if value.lower() != "off"))


def _leaving_out_option(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def option(self: Any, key: str, value: Any) -> Any:
        return self if _is_left_out(key) else original(self, key, value)

    return option


def _leaving_out_options(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def options(self: Any, **values: Any) -> Any:
        return original(self, **{key: value for key, value in values.items() if not _is_left_out(key)})

    return options


def _is_left_out(key: str) -> bool:
    found = key.lower() in _SHARED
    if found:
        _log.info("The option %s of a source is left out: this query is a copy of one that runs.", key)
    return found


def _put_off(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def partition(self: Any, *columns: Any) -> Any:
        setattr(self, _PARTITIONING, functools.partial(original, self, *columns))
        return self

    return partition


def place_of(
    frame: Any, redirect: Redirect, output: Output, called: str, note: Callable[..., None]
) -> Output:
    """Where a copy of a query writes."""
    try:
        found = redirected(redirect, output, called)
        check_sources(frame, called, redirect.sources)
    except RefusedError as refused:
        note(REFUSED, query=called, code=refused.code, message=refused.message)
        raise
    return found


def check_sources(frame: Any, called: str, allowed: Sequence[str] = ()) -> None:
    """Refuse a copy that would touch sources of the live query; `allowed` kinds are declared as harmless.

    Raises:
        RefusedError: One of its sources would (code `source-not-left-alone`).
    """
    check_source_kinds(jvm.kafka_of(frame)["streams"], called, allowed)
    for option, value in jvm.source_options(frame, SHARED_WITH_THE_LIVE_QUERY):
        if value.lower() != "off":
            raise reaches_live_query(called, f"{option} = {value}")


def start(writer: Any, start_writer: Callable[..., Any], said: Mapping[str, Any], output: Output) -> Any:
    """Start a query that writes to another output than its application says.

    Args:
        start_writer: PySpark's own `start`, or its `toTable` for an output of that kind.
        said: The arguments of the application's call, by name, `options` among them.

    Raises:
        RefusedError: Spark writes elsewhere all the same (code `sink-not-redirected`); the query has been
            stopped.
    """
    arguments = {name: value for name, value in said.items() if name not in ("self", "options")}
    options = {key: value for key, value in said.get("options", {}).items() if key.lower() not in _PLACES}
    _partition(writer, arguments.pop("partitionBy", None), output)
    if output.kind == TABLE:
        arguments["tableName"] = output.name
    else:
        for name in ("path", "tableName"):
            arguments.pop(name, None)
    if output.kind == SCRATCH:
        arguments.pop("format", None)
        assert output.path is not None
        writer.foreachBatch(_keep(output.path))
    elif output.path is not None:
        writer.option("path", output.path)
    elif output.kind == "kafka":
        writer.option("topic", output.name)
    query = start_writer(writer, **arguments, **options)
    _verify(query, output)
    return query


_PLACES = frozenset({"path", "topic"})


def _partition(writer: Any, columns: Any, output: Output) -> None:
    if columns is not None:
        writer.partitionBy(columns)
    put_off = getattr(writer, _PARTITIONING, None)
    if put_off is not None and output.kind != SCRATCH:
        put_off()


def _keep(directory: str) -> Callable[[Any, int], None]:
    def write(frame: Any, batch: int) -> None:
        frame.write.mode("overwrite").parquet(batch_folder(directory, batch))

    return write


def _verify(query: Any, output: Output) -> None:
    """Ask Spark which sink the query has: it may not be the application's."""
    sink, path = jvm.sink_of(query)
    is_right = {
        FILES: path is not None and service_name(path) == service_name(output.path),
        SCRATCH: sink.startswith("ForeachBatchSink"),
        TABLE: True,  # Spark does not say it, and a table of a file format has a path
    }.get(output.kind, path is None)
    if not is_right:
        query.stop()
        raise RefusedError(
            f"A copy of a query was to write to {output}, and Spark gave it the sink {sink}.",
            code="sink-not-redirected",
            hint="The query was stopped at once. Report it, with the way in which the application starts it.",
        )
