"""What a function of `foreachBatch` can know of its query.

Spark runs the function in the thread of the query and keeps there, as local properties of the context,
`sql.streaming.queryId` and, as the job group, the id of the query's run (StreamExecution and
MicroBatchExecution in Spark's sources). So they are those of the query that calls, whichever else run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streambank.core.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY = "sql.streaming.queryId"
_RUN = "spark.jobGroup.id"


def query_id_of(frame: DataFrame) -> str:
    """The id of the query that calls `foreachBatch`.

    Raises:
        InputError: No streaming query calls (code `no-streaming-query`).
    """
    found = frame.sparkSession.sparkContext.getLocalProperty(_QUERY)
    if not found:
        raise InputError(
            "This is not the thread of a streaming query, so the id of the query is not known.",
            code="no-streaming-query",
            hint="Call it in the function that foreachBatch gets, in the same thread, on classic Spark "
            "(not Connect), and leave PYSPARK_PIN_THREAD as it is.",
        )
    return str(found)


def run_id_of(frame: DataFrame) -> str | None:
    """The id of the query's run, which is another one after each start; None where Spark does not tell."""
    return frame.sparkSession.sparkContext.getLocalProperty(_RUN)


def compute(frame: DataFrame) -> None:
    """Compute a batch whose rows are there already, and write them nowhere.

    Spark writes the state of a batch while it computes its rows. Where that has not happened, a query with
    state fails: Spark 4.3 at the end of that batch (STATE_STORE_COMMIT_VALIDATION_FAILED), older ones at the
    next one (CANNOT_LOAD_STATE_STORE).
    """
    frame.write.format("noop").mode("overwrite").save()
