"""Ending a query at a batch boundary: the one place where the runner uses private parts of Spark.

`query.stop()` sets the query's state to `TERMINATED`, cancels its jobs and interrupts its thread. Setting the
state alone lets the running batch finish and commit, and no other one begin. But not at any moment: from the
begin of a trigger until its plan is ready the batch would be written into the offset log, and then
interrupted before it runs. So the state is set only

* while no trigger runs, or one has found nothing and sleeps before it looks again, as those without an
  interval do (then the thread's wait is interrupted too, so that the end comes at once);
* while the batch executes, or waits to commit.

Which of them it is, the stack of the query's thread says. Spark's own lock around planning and committing is
held meanwhile, so a thread that executes cannot have gone on to the next batch before the state is set. A
trigger that begins in the very moment between the look and the setting is seen by a second look, and the
state is set back.

Private, read in the byte code of Spark 4.3.0, and tried on each release of driver/spark_releases.py:
`StreamExecution.state`, `.awaitProgressLock` and `.queryExecutionThread`, the states `ACTIVE` and
`TERMINATED`, and the names of a few methods on the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from streambank.driver.spark_releases import FOR_JOBS, SparkRelease, listed, release_of
from streambank_spark.failures import not_supported
from streambank_spark.private import jvm

_LOCK_WAIT_S = 1
_TRIGGER = "MicroBatchExecution.$anonfun$runActivatedStream$1"
"""What a trigger does, whatever calls it; since Spark 4.0 that is nothing but `executeOneBatch`."""
_BATCH = "MicroBatchExecution.$anonfun$runBatch$"

Moment = Literal["between", "planning", "executing"]
Outcome = Literal["not-now", "ends-at-once", "ends-after-batch"]


def require_known_spark(version: str) -> SparkRelease:
    """The release of a Spark, unless a stop at a batch boundary was never tried there.

    Raises:
        FormatError: It was not (code `spark-not-supported`).
    """
    release = release_of(version)
    if release is None:
        raise not_supported(
            f"The runner does not support Spark {version}: it stops queries through a private part of Spark.",
            f"Run the job with Spark {listed(FOR_JOBS)}.",
        )
    return release


def moment(methods: Sequence[str]) -> Moment:
    """Where a query's thread is, by its stack, innermost first: `Class.method` without the packages."""
    if _TRIGGER not in methods or _has_found_nothing(methods):
        return "between"
    for inner, outer in pairwise(methods):
        if inner == "SQLExecution$.withNewExecutionId" and outer.startswith(_BATCH):
            return "executing"
        if inner.endswith(".withProgressLocked") and outer.endswith("MicroBatchExecution.runBatch"):
            return "executing"
    return "planning"


def _has_found_nothing(methods: Sequence[str]) -> bool:
    """Whether a trigger sleeps because there was nothing to plan (`spark.sql.streaming.pollingDelay`)."""
    calls = [method for method in methods if not method.startswith("Thread.sleep")]
    asleep = len(calls) < len(methods)
    return asleep and calls[:1] in (["MicroBatchExecution.executeOneBatch"], [_TRIGGER])


def finish_batch_then_end(query: Any) -> Outcome:
    """Let a query end after the batch that executes, or at once where none does, if this is a moment for it.

    Returns:
        Whether it ends; `not-now` asks for another try a little later.
    """
    from pyspark import __version__

    states = require_known_spark(__version__).query_states
    execution = query._jsq.streamingQuery()
    lock = execution.awaitProgressLock()
    if not lock.tryLock(_LOCK_WAIT_S, jvm.gateway().jvm.java.util.concurrent.TimeUnit.SECONDS):
        return "not-now"
    try:
        before = moment(_stack(execution))
        if before == "planning":
            return "not-now"
        state = execution.state()
        found = state.getAndSet(_state(states, "TERMINATED"))
        if before == "executing":
            return "ends-after-batch"
        if moment(_stack(execution)) != "between":
            state.set(found)
            return "not-now"
    finally:
        lock.unlock()
    # The state is set, so the thread begins nothing any more; this only wakes it.
    query._jsq.stop()
    return "ends-at-once"


def _state(package: str, name: str) -> Any:
    return getattr(getattr(jvm.gateway().jvm, f"{package}{name}$"), "MODULE$")


def _stack(execution: Any) -> list[str]:
    """The stack of a query's thread at one moment, innermost first."""
    methods = []
    for frame in execution.queryExecutionThread().getStackTrace():
        # `java.base/java.lang.Thread.sleep(Native Method)`
        called = str(frame.toString()).partition("(")[0].rpartition("/")[2]
        methods.append(".".join(called.rsplit(".", 2)[-2:]))
    return methods
