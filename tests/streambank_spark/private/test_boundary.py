"""Where a query's thread is, by stacks as Spark 4.3.0 has them."""

from __future__ import annotations

import pytest

from streambank_spark.private.boundary import Moment, moment

WAITING = ["Thread.sleep", "SystemClock.waitTillTime", "ProcessingTimeExecutor.execute"]
TRIGGER = [
    "MicroBatchExecution.executeOneBatch",
    "MicroBatchExecution.$anonfun$runActivatedStream$1",
    "ProcessingTimeExecutor.execute",
]
PLANNING = [
    "QueryExecution.executedPlan",
    "MicroBatchExecution.$anonfun$runBatch$9",
    "MicroBatchExecution.runBatch",
]
CONSTRUCTING = [
    "ReentrantLock.lock",
    "StreamExecution.withProgressLocked",
    "MicroBatchExecution.constructNextBatch",
    "MicroBatchExecution.$anonfun$executeOneBatch$2",
]
EXECUTING = [
    "DAGScheduler.runJob",
    "SQLExecution$.withNewExecutionId0",
    "SQLExecution$.withNewExecutionId",
    "MicroBatchExecution.$anonfun$runBatch$18",
    "MicroBatchExecution.runBatch",
]
COMMITTING = ["ReentrantLock.lock", "StreamExecution.withProgressLocked", "MicroBatchExecution.runBatch"]
SOURCE_JOB = ["SQLExecution$.withNewExecutionId0", "Source.latestOffset", *CONSTRUCTING[2:]]


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ([], "between"),
        (WAITING, "between"),
        (CONSTRUCTING + TRIGGER, "planning"),
        (PLANNING + TRIGGER, "planning"),
        (SOURCE_JOB + TRIGGER, "planning"),
        (EXECUTING + TRIGGER, "executing"),
        (COMMITTING + TRIGGER, "executing"),
        (["Thread.sleep", *TRIGGER], "between"),
        (["Thread.sleep0", "Thread.sleep", *TRIGGER], "between"),
        (TRIGGER, "planning"),
        (["Thread.sleep", *CONSTRUCTING, *TRIGGER], "planning"),
    ],
)
def test_moments(stack: list[str], expected: Moment) -> None:
    assert moment(stack) == expected
