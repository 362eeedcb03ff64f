"""One Spark for the tests of a process, and streaming runs in it that end by themselves."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streambank.driver.spark_releases import RELEASES, release_of
from tests.support.spark.jvm import spark_options
from tests.support.spark.queries import LAYOUTS, STATE, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STREAMING = "org.apache.spark.sql.execution.streaming"
_RELEASE = release_of(version("pyspark")) or RELEASES[-1]
"""Of the Spark that this process has, which need not be that of requirements.lock."""

BUILD_CONF = {
    "spark.master": "local[2]",
    "spark.driver.extraJavaOptions": spark_options(),
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}

HURRIED = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    f"{STATE}maintenanceInterval": "100ms",
    f"{STATE}minDeltasForSnapshot": "3",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
"""As little time as Spark can be made to give: old batches and old state go away as soon as they may."""

BY_FILE_SYSTEM = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
        if _RELEASE.query_states.endswith(".runtime.")
        else f"{_STREAMING}.FileSystemBasedCheckpointFileManager"
    )
}
"""Spark's other way to write a checkpoint. On a local disk its usual one starts sixty processes a batch: four
times `readlink` and once `chmod` for each file that it writes, since Hadoop's native library is not there.
For runs of which only the rows count, not for a checkpoint of which a savepoint is to be proved."""

LATE_WORKER = "Python worker failed to connect back"
ATTEMPTS = 4

END_S = 240
"""How long a run of a few dozen small batches may take before a test gives up on it."""


def own_spark(conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session for its own process; tests take the fixture `spark`."""
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    for key, value in {**BUILD_CONF, **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare(session: SparkSession) -> None:
    """Make a JVM ready for the queries: quiet, and with the functions of the queries travelling by value.

    Spark's Python workers cannot import the tests. All state stores are unloaded, so that the next one that
    is loaded starts maintenance at the interval of its own query.
    """
    from pyspark import cloudpickle

    from tests.support.spark import queries

    modules = [queries]
    if _RELEASE.variables:
        from tests.support.spark import stateful_processors

        modules.append(stateful_processors)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # vendored, untyped
    session.sparkContext.setLogLevel("OFF")
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def session_for(base: SparkSession, layout: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Its own session with the layout's conf; a query copies the conf when it starts."""
    session = base.newSession()
    for key, value in {**HURRIED, **LAYOUTS[layout].conf, **(conf or {})}.items():
        session.conf.set(key, value)
    return session


@dataclass(slots=True)
class Batches:
    """A `foreachBatch` function: what each batch gave, as one JSON file of sorted rows a batch.

    Attributes:
        gate_at: A batch that waits, before it is committed, until `gate` is set; `reached` tells that it
            waits.
    """

    folder: Path
    gate_at: int | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        texts = sorted(
            json.dumps(row.asDict(recursive=True), default=str, sort_keys=True) for row in rows.collect()
        )
        temporary = self.folder / f".{batch}.tmp"
        temporary.write_text(json.dumps(texts, indent=0))
        temporary.rename(self.folder / f"{batch}.json")
        if batch == self.gate_at:
            self.reached.set()
            if not self.gate.wait(END_S):
                raise TimeoutError(f"batch {batch} was never let go")


def read_batches(folder: Path) -> dict[int, list[str]]:
    """What `Batches` wrote: the rows of every batch."""
    return {int(path.stem): json.loads(path.read_text()) for path in folder.glob("*.json")}


def start(
    session: SparkSession,
    query: Query,
    source: Path,
    checkpoint: Path | str,
    output: Path,
    batches: Batches | None = None,
) -> StreamingQuery:
    """Start a query that reads what input there is, batch after batch without a pause, and then ends."""
    output.mkdir(parents=True, exist_ok=True)
    writer = query.build(session, source).writeStream.outputMode(query.output_mode)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if query.file_sink:
        return writer.format("json").option("path", str(output)).start()
    return writer.foreachBatch(batches or Batches(output)).start()


def run_to_end(
    session: SparkSession, query: Query, source: Path, checkpoint: Path | str, output: Path
) -> None:
    """Run until all input is read."""
    finish(lambda: start(session, query, source, checkpoint, output))


def finish(begin: Callable[[], StreamingQuery]) -> None:
    """Start a query and wait for its end.

    Spark gives the Python worker of a transformWithState ten seconds to appear, which a machine under load
    may need for its imports alone. A run that ended so, before its first batch began, is started again.
    """
    from pyspark.errors import StreamingQueryException

    for attempt in range(ATTEMPTS):
        try:
            with ended(begin()):
                return
        except StreamingQueryException as error:
            if LATE_WORKER not in str(error) or attempt == ATTEMPTS - 1:
                raise


@contextmanager
def ended(running: StreamingQuery) -> Iterator[StreamingQuery]:
    """Wait at the end of the block until the query has ended by itself; stop it if the block fails."""
    try:
        yield running
        if not running.awaitTermination(END_S):
            raise TimeoutError(f"the query did not end within {END_S} s")
    finally:
        running.stop()


def run_until(
    session: SparkSession, query: Query, source: Path, checkpoint: Path | str, output: Path, batch: int
) -> None:
    """Run up to the commit of `batch` and stop there, with nothing planned after it.

    The batch waits inside `foreachBatch` while the query is marked as terminated, so it still commits and no
    other one starts.
    """
    batches = Batches(output, gate_at=batch)
    with ended(start(session, query, source, checkpoint, output, batches)) as running:
        if not batches.reached.wait(END_S):
            raise TimeoutError(f"batch {batch} did not come: {running.exception()}")
        jvm: Any = session._jvm
        terminated = getattr(jvm, f"{_RELEASE.query_states}TERMINATED$")
        inner: Any = running._jsq.streamingQuery()
        inner.state().set(getattr(terminated, "MODULE$"))
        batches.gate.set()
