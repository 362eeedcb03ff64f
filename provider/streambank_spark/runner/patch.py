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
from streambank_spark.runner.queries import Managed, Queries, QueryLooks

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
    writer.format = _around(writer.format, after=_set_format)
    writer.foreachBatch = _around(writer.foreachBatch, after=_set_function("foreachBatch"))
    writer.foreach = _around(writer.foreach, after=_set_function("foreach"))
    writer.queryName = _around(writer.queryName, after=_set_name)
    writer.trigger = _around(writer.trigger, before=_check_trigger)
    writer.option = _around(writer.option, before=_check_option)
    writer.options = _around(writer.options, before=_check_options)
    context: Any = SparkContext
    context.stop = _around(context.stop, before=lambda *args, **kwargs: host.before_context_stops())
    query: Any = StreamingQuery
    query.stop = _around(query.stop, before=lambda *args, **kwargs: host.before_query_stops())
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
        looks = QueryLooks(name, tuple(sources), output, jvm.operators_of(self._df), _normalized(named))
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
        """Start the query, by another `trigger` than the application's where one is given."""
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
    """Where a query is to write, by what its application has said so far."""
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


def _around(
    original: Callable[..., Any],
    *,
    before: Callable[..., None] = lambda writer, /, *args, **kwargs: None,
    after: Callable[..., None] = lambda writer, /, *args, **kwargs: None,
) -> Callable[..., Any]:
    """A method of PySpark with something before it, which may refuse, or after it, with its arguments."""

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        before(self, *args, **kwargs)
        found = original(self, *args, **kwargs)
        after(self, *args, **kwargs)
        return found

    return call


def _set_format(writer: Any, source: str) -> None:
    setattr(writer, _FORMAT, source)


def _set_name(writer: Any, queryName: str) -> None:
    setattr(writer, _NAME, queryName)


def _set_function(kind: str) -> Callable[..., None]:
    return lambda writer, /, *args, **kwargs: setattr(writer, _FORMAT, kind)


def _check_trigger(writer: Any, /, *args: Any, **kwargs: Any) -> None:
    refusals.check_trigger(kwargs)


def _check_option(writer: Any, key: str, value: Any) -> None:
    _check_each(writer, {key: value})


def _check_options(writer: Any, /, **values: Any) -> None:
    _check_each(writer, values)


def _check_each(writer: Any, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        refusals.check_option(key, value)
    _remember(writer, values)


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
