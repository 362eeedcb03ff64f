"""A copy of a query executes batches of the live one again, and compares what comes out.

Each batch is a separate run: the live query's plan is laid into the copy's offset log, and the trigger
`once` makes Spark execute that planned batch and no other. Then its output is compared with what the live
query has written for that batch, and at the end the state with that of the live checkpoint after the same
batch. The live checkpoint and output are only read.

A comparison that is not possible is no failure: what was not compared, and why, is written down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from streambank.checkpoint.replay import Replay, lay_plan
from streambank.core.errors import StreambankError
from streambank.core.json_text import loads
from streambank.core.shape import decode
from streambank.driver.outputs import FILES, Output
from streambank.driver.spec import QuerySpec
from streambank.sinks.file.named import added_by
from streambank.storage import open_store
from streambank_spark.failures import first_line
from streambank_spark.private import jvm

STATE_READ = "copy-state-read"
BATCH = "copy-batch"
STATE_COMPARED = "copy-state-compared"
DONE = "copy-done"

_LINES = frozenset({"json", "text"})
"""Formats whose rows are compared as lines of text, so that no option of the writer plays a part."""
_SHUFFLE = "spark.sql.shuffle.partitions"
_WILDCARDS = frozenset("*?[]{}")

Note = Callable[..., None]
"""Writes an event of the driver down: its kind, and facts by name."""


def read_state(frame: Any, spec: QuerySpec, note: Note, query: str) -> None:
    """Open all state of the copy before its first batch, count its rows and fingerprint them."""
    began = time.monotonic()
    facts = _state(frame, spec.checkpoint, None)
    note(STATE_READ, query=query, seconds=round(time.monotonic() - began, 3), **facts)


def run(
    frame: Any,
    spec: QuerySpec,
    output: Output,
    start: Callable[[], Any],
    note: Note,
    query: str,
    written_as: str,
) -> Any:
    """Execute the batches, one after the other.

    Args:
        start: Starts the query with the trigger `once`, and refuses where a stop was asked.

    Returns:
        The query, ended after the last batch.

    Raises:
        SystemExit: A batch failed (1), or a stop was asked (0).
    """
    replay = decode(Replay, spec.replay, "launch spec", at="replay")
    plans, copy = open_store(replay.plans), open_store(spec.checkpoint)
    if replay.batches and copy.exists(f"commits/{replay.batches[-1]}"):
        raise SystemExit(0)  # the application starts again what has ended: the copy has done its part
    started = None
    for batch in replay.batches:
        if copy.exists(f"commits/{batch}"):
            continue  # an application that starts it again, or another driver in this one's place
        lay_plan(plans, copy, batch)
        began = time.monotonic()
        started = start()
        jvm.wait_ended(started)
        seconds = round(time.monotonic() - began, 3)
        failure = jvm.failure(started)
        if failure is None and not copy.exists(f"commits/{batch}"):
            failure = f"Spark ended without a commit of batch {batch}"
        if failure is not None:
            note(BATCH, query=query, batch=batch, seconds=seconds, failure=failure)
            raise SystemExit(1)
        compared = _compare_outputs(frame, replay.output, output, batch, written_as)
        note(BATCH, query=query, batch=batch, seconds=seconds, **_progress(started, batch), output=compared)
    if replay.live is not None and replay.batches:
        last = replay.batches[-1]
        ours, theirs = _state(frame, spec.checkpoint, last), _state(frame, replay.live, last)
        note(STATE_COMPARED, query=query, batch=last, copy=ours, live=theirs)
    note(DONE, query=query, batches=list(replay.batches))
    return started


def _progress(query: Any, batch: int) -> dict[str, int | None]:
    """What Spark says about a batch: rows read, and rows of state after it."""
    for text in jvm.new_progress(query, batch - 1):
        said = loads(text)
        operators = said.get("stateOperators") or []
        state = sum(int(one.get("numRowsTotal", 0)) for one in operators)
        return {"input_rows": int(said.get("numInputRows", 0)), "state_rows": state if operators else None}
    return {"input_rows": None, "state_rows": None}


def _state(frame: Any, location: str, batch: int | None) -> dict[str, Any]:
    """Rows and fingerprint of each part of the state, or why they could not be read."""

    def read() -> dict[str, Any]:
        from streambank_spark.state.digest import digest_of
        from streambank_spark.state.state import QueryState

        # Before its first query a session of Spark 4.1 and 4.2 has no StateStoreCoordinator, which opening
        # state asks for: the manager of queries makes it.
        _ = frame.sparkSession.streams.active
        state = QueryState(frame.sparkSession, location, batch)
        return {"batch": state.closure.batch, "parts": [one.to_dict() for one in digest_of(state)]}

    return _or_why(read)


def _or_why(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was read, or why it could not be."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
    from pyspark.errors import PySparkException

    try:
        return read()
    except StreambankError as error:
        return {"why": error.message}
    except (PySparkException, Py4JError, ImportError, AttributeError) as error:
        # Spark 3.5 cannot read state as rows at all, and lacks types that the fingerprint knows.
        return {"why": f"Spark cannot read it: {first_line(error)}"}


def _compare_outputs(
    frame: Any, live: str | None, output: Output, batch: int, written_as: str
) -> Mapping[str, Any]:
    """How many rows of a batch only one of the two outputs has, or why that is not known."""
    place = output.path
    if output.kind != FILES or place is None or live is None:
        return {"why": "only what a file sink writes is compared, row by row"}
    if written_as in ("csv", "xml"):
        return {"why": f"{written_as} files have heads and frames, so their lines are not compared"}

    def compare() -> dict[str, Any]:
        session = frame.sparkSession.newSession()
        session.conf.set(_SHUFFLE, str(session.sparkContext.defaultParallelism))
        ours = _rows(session, place, batch, written_as)
        theirs = _rows(session, live, batch, written_as)
        if isinstance(ours, str) or isinstance(theirs, str):
            return {"why": ours if isinstance(ours, str) else theirs}
        return _difference(ours, theirs)

    return _or_why(compare)


def _rows(session: Any, location: str, batch: int, written_as: str) -> Any:
    """How often each row of a batch was written to each folder; None for no rows, a text for why not."""
    from pyspark.sql import functions as F

    from streambank_spark.state.row_hash import row_hash

    keys = [one.key for one in added_by(open_store(location), batch)]
    if not keys:
        return None
    if any(key is None or _WILDCARDS & set(key) for key in keys):
        return "a data file lies outside of the output directory, or has a wildcard in its name"
    depth = max(key.count("/") for key in keys if key is not None)
    reader = session.read.format("text" if written_as in _LINES else written_as)
    rows = reader.load([f"{location}/{key}" for key in keys])
    first, second = row_hash(rows)
    name = F.split(F.input_file_name(), "/")
    folder = F.array_join(F.slice(name, F.size(name) - depth, depth), "/") if depth else F.lit("")
    found = rows.select(folder.alias("folder"), first.alias("first"), second.alias("second"))
    return found.groupBy("folder", "first", "second").count()


def _difference(ours: Any, theirs: Any) -> dict[str, int]:
    from pyspark.sql import functions as F

    if ours is None or theirs is None:
        rows, live = _count(ours), _count(theirs)
        return {"rows": rows, "live_rows": live, "only_copy": rows, "only_live": live}
    both = ours.withColumnRenamed("count", "ours").join(
        theirs.withColumnRenamed("count", "theirs"), ["folder", "first", "second"], "full_outer"
    )
    both = both.na.fill(0, ["ours", "theirs"])
    more = F.col("ours") - F.col("theirs")
    (found,) = both.select(
        F.coalesce(F.sum("ours"), F.lit(0)),
        F.coalesce(F.sum("theirs"), F.lit(0)),
        F.coalesce(F.sum(F.greatest(more, F.lit(0))), F.lit(0)),
        F.coalesce(F.sum(F.greatest(-more, F.lit(0))), F.lit(0)),
    ).collect()
    rows, live, only_copy, only_live = (int(value) for value in found)
    return {"rows": rows, "live_rows": live, "only_copy": only_copy, "only_live": only_live}


def _count(counted: Any) -> int:
    from pyspark.sql import functions as F

    if counted is None:
        return 0
    return int(counted.select(F.coalesce(F.sum("count"), F.lit(0))).collect()[0][0])
