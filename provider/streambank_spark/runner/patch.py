"""PySpark's writers and contexts with the runner in between: no session is made, no application changed.

* `DataStreamWriter.start` and `toTable`: the query gets its job's current generation as checkpoint, whatever
  the application says; undeclared queries are refused; after a stop was asked nothing starts any more.
* `DataStreamWriter.trigger`, `option`, `options`: what cannot be run is refused where it is asked for; and
  at the start, before Spark writes anything, whatever speaks against it (driver/preflight.py).
  A launch that redirects a query has another output than the application names (redirect.py).
* `DataStreamWriter.format`, `foreachBatch`, `foreach`: where a query is to write is remembered, and the
  checkpointLocation that the application itself names: by them two queries are told apart.
* `SparkContext.stop` (also behind `SparkSession.stop`): queries end at a batch boundary first.
* `StreamingQuery.stop`: held while the runner itself ends the query at a boundary.
* `awaitTermination`, `awaitAnyTermination` without a timeout: the application has started what it starts.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from streambank.core.errors import InputError
from streambank.driver.outputs import FILES, TABLE, Output
from streambank.driver.spec import QuerySpec
from streambank.storage import normalize_location
from streambank_spark.private import jvm
from streambank_spark.runner import redirect, refusals, replay
from streambank_spark.runner.key_sampling import sampling_of
from streambank_spark.runner.queries import Looks, Managed, Queries

_NAME = "_streambank_query_name"
_PATH = "_streambank_path"
_KAFKA = "_streambank_kafka"
_FORMAT = "_streambank_format"
_CHECKPOINT = "_streambank_checkpoint"
_SAID = (_NAME, _PATH, _KAFKA, _FORMAT, _CHECKPOINT)
"""Attributes in which a writer keeps what its application has said of it."""
_FILE_FORMATS = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
"""Formats that Spark writes by its file sink."""
_KAFKA_OPTIONS = {"kafka.bootstrap.servers": "bootstrap", "topic": "topic"}
"""Options of a Kafka sink that are written down. Others may hold secrets, and are not even looked at."""


class Host(Protocol):
    """What the wrappers ask of the runner."""

    @property
    def queries(self) -> Queries:
        """What is declared, and what runs."""

    def before_start(self) -> None:
        """A query is about to start; raises SystemExit where a stop was asked."""

    def check_start(self, name: str, spec: QuerySpec, output: Output) -> None:
        """Spark is about to start a query; raises a refusal where something speaks against it."""

    def started(self, managed: Managed, sources: list[str]) -> None:
        """Spark has started a query."""

    def note(self, kind: str, **facts: Any) -> None:
        """Write down what came out of a copy of a query."""

    def before_context_stops(self) -> None:
        """The application ends its context: returns when every query has ended."""

    def before_query_stops(self) -> None:
        """The application stops a query: returns at once, or when a stop that is under way is done."""

    def waiting(self) -> AbstractContextManager[None]:
        """The application waits for its queries, for as long as they run."""


def install(host: Host) -> None:
    """Wrap PySpark's classes, once in the life of a driver."""
    from pyspark import SparkContext
    from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    writer: Any = DataStreamWriter
    start, to_table = writer.start, writer.toTable
    writer.start = _starting(start, host, start)
    writer.toTable = _starting(to_table, host, start)
    writer.format = _remembering_format(writer.format)
    writer.foreachBatch = _remembering_function(writer.foreachBatch, "foreachBatch")
    writer.foreach = _remembering_function(writer.foreach, "foreach")
    writer.queryName = _remembering_name(writer.queryName)
    writer.trigger = _checking_trigger(writer.trigger)
    writer.option = _checking_option(writer.option)
    writer.options = _checking_options(writer.options)
    context: Any = SparkContext
    context.stop = _after(host.before_context_stops, context.stop)
    query: Any = StreamingQuery
    query.stop = _after(host.before_query_stops, query.stop)
    query.awaitTermination = _waiting(query.awaitTermination, host)
    manager: Any = StreamingQueryManager
    manager.awaitAnyTermination = _waiting(manager.awaitAnyTermination, host)


def _starting(
    original: Callable[..., Any], host: Host, plain_start: Callable[..., Any]
) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        host.before_start()
        call = signature.bind(self, *args, **kwargs)
        options = call.arguments.get("options", {})
        for key, value in options.items():
            refusals.check_option(key, value)
        # The application's own location, however it spells the option, gives way to the job's.
        kept = {key: value for key, value in options.items() if key.lower() != "checkpointlocation"}
        if options:
            call.arguments["options"] = kept
        name = call.arguments.get("queryName") or getattr(self, _NAME, None)
        path = call.arguments.get("path") or getattr(self, _PATH, None)
        path = next((value for key, value in options.items() if key.lower() == "path"), path)
        _remember(self, options)
        sources = jvm.sources_of(self._df)
        kafka = {**jvm.kafka_of(self._df), "sink": dict(getattr(self, _KAFKA, {}))}
        output = _output(self, call.arguments.get("format"), path, call.arguments.get("tableName"))
        named = getattr(self, _CHECKPOINT, None)
        looks = Looks(name, tuple(sources), output, jvm.operators_of(self._df), _normalized(named))
        asked = _Start(self, original, plain_start, call, output, kafka)
        with host.queries.starting(looks) as (declared, spec):
            if spec.redirect is None:
                refusals.check_output(path, spec.new_sinks)
                host.check_start(declared, spec, output)
                managed = asked.begin(host, declared, spec, output)
                managed.fixed_options = redirect.fixed_options(self._df)
            else:
                replay.read_state(self._df, spec, host.note, declared)
                to = redirect.place_of(self._df, spec.redirect, output, declared, host.note)
                host.check_start(declared, spec, to)
                if spec.replay is not None:

                    def once() -> Any:
                        host.before_start()
                        run = asked.begin(host, declared, spec, to, once=True)
                        host.started(run, sources)
                        return run.query

                    return replay.run(self._df, spec, to, once, host.note, declared, asked.format)
                managed = asked.begin(host, declared, spec, to)
        host.started(managed, sources)
        return managed.query

    return start


@dataclass(frozen=True, slots=True)
class _Start:
    """A start that an application asks for.

    Attributes:
        original: PySpark's own method that was called.
        plain_start: PySpark's own `start`.
        output: Where the application would have the query write.
        kafka: What is known of Kafka (`jvm.kafka_of`), with the sink that the application names.
    """

    writer: Any
    original: Callable[..., Any]
    plain_start: Callable[..., Any]
    call: inspect.BoundArguments
    output: Output
    kafka: Mapping[str, Any]

    @property
    def format(self) -> str:
        return _format(self.writer, self.call.arguments.get("format"))

    def begin(self, host: Host, name: str, spec: QuerySpec, to: Output, **trigger: Any) -> Managed:
        """Start the query.

        Args:
            trigger: Another trigger than the application's, as PySpark's `trigger` takes it.
        """
        moved = to is not self.output
        kafka = dict(self.kafka)
        with _as_the_application_said(self.writer):
            self.writer.option("checkpointLocation", spec.checkpoint)
            if trigger:
                self.writer.trigger(**trigger)
            if moved:
                kafka["sink"] = {**kafka["sink"], "topic": to.name} if to.kind == "kafka" else {}
                starter = self.original if to.kind == TABLE else self.plain_start
                start = functools.partial(redirect.start, self.writer, starter, self.call.arguments, to)
            else:
                start = functools.partial(self.original, *self.call.args, **self.call.kwargs)
            sampling = sampling_of(host.queries.hot_keys, name, self.writer._df, host.note)
            query = start() if sampling is None else sampling.start(self.writer, start)
        managed = Managed(name, spec, query, str(query.id), str(query.runId), kafka=kafka, output=to)
        managed.sampling = sampling
        managed.named = self.output if moved else None
        host.queries.add(managed)
        return managed


@contextmanager
def _as_the_application_said(writer: Any) -> Iterator[None]:
    """Forget afterwards what was said of a writer meanwhile: the application may start it again."""
    said = {name: value for name, value in vars(writer).items() if name in _SAID}
    try:
        yield
    finally:
        for name in _SAID:
            vars(writer).pop(name, None)
        vars(writer).update(said)


def _output(writer: Any, said: Any, path: str | None, table: Any) -> Output:
    """Where a query is to write, by what its application has said so far.

    Args:
        said: The format that the start itself names; None for none.
        table: The table that it is to write; None for none.
    """
    if table is not None:
        located = jvm.table_location(str(table), _FILE_FORMATS, writer._df)
        return Output(TABLE, name=str(table), located=located)
    kind = _format(writer, said)
    if kind in ("foreachBatch", "foreach"):
        return Output(kind)
    location = jvm.location_of(path, writer._df) if path else None
    if kind.lower() in _FILE_FORMATS:
        return Output(FILES, location)
    return Output(kind.lower(), location, getattr(writer, _KAFKA, {}).get("topic"))


def _format(writer: Any, said: Any) -> str:
    """The format in which a query writes: what its start names, else its writer, else Spark's default."""
    return str(said or getattr(writer, _FORMAT, None) or jvm.default_format(writer._df))


def _normalized(location: str | None) -> str | None:
    try:
        return normalize_location(location) if location else None
    except InputError:
        return location


def _remembering_format(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_format(self: Any, source: str) -> Any:
        writer = original(self, source)
        setattr(writer, _FORMAT, source)
        return writer

    return set_format


def _remembering_function(original: Callable[..., Any], kind: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        writer = original(self, *args, **kwargs)
        setattr(writer, _FORMAT, kind)
        return writer

    return set_function


def _remembering_name(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def query_name(self: Any, queryName: str) -> Any:
        writer = original(self, queryName)
        setattr(writer, _NAME, queryName)
        return writer

    return query_name


def _checking_trigger(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def trigger(self: Any, *args: Any, **kwargs: Any) -> Any:
        refusals.check_trigger(kwargs)
        return original(self, *args, **kwargs)

    return trigger


def _checking_option(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def option(self: Any, key: str, value: Any) -> Any:
        refusals.check_option(key, value)
        _remember(self, {key: value})
        return original(self, key, value)

    return option


def _checking_options(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def options(self: Any, **values: Any) -> Any:
        for key, value in values.items():
            refusals.check_option(key, value)
        _remember(self, values)
        return original(self, **values)

    return options


def _remember(writer: Any, options: Mapping[str, Any]) -> None:
    """Keep where a query will write to: Spark does not say it in the words that it has for sinks."""
    for key, value in options.items():
        if key.lower() == "path":
            setattr(writer, _PATH, str(value))
        elif key.lower() == "checkpointlocation":
            setattr(writer, _CHECKPOINT, str(value))
        elif (name := _KAFKA_OPTIONS.get(key.lower())) is not None:
            setattr(writer, _KAFKA, {**getattr(writer, _KAFKA, {}), name: str(value)})


def _waiting(original: Callable[..., Any], host: Host) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(self: Any, timeout: int | None = None) -> Any:
        with host.waiting() if timeout is None else nullcontext():
            return original(self, timeout)

    return wait


def _after(first: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def stop(self: Any, *args: Any, **kwargs: Any) -> Any:
        first()
        return original(self, *args, **kwargs)

    return stop
