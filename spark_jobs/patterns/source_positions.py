"""Where a query is in its sources: the only state of a query that keeps none.

    spark-submit source_positions.py --input DIR --output DIR

This query filters and marks each row with the file that it came from. It has no stateful operator, and still
its checkpoint says something that nothing else knows: which rows it has read. The log `offsets` holds the
position of each source at the end of each batch, written *before* the batch runs; `commits` says that it is
done; `sources` lists the files behind each position. So a batch that runs again reads the same rows, and a
restored savepoint goes on after its own last batch: that is why even this query is worth a savepoint.

With Kafka a position is an offset for each partition: Spark keeps it here, and never in a consumer group. In
Flink this is operator state: list state that a source splits over its subtasks, or union list state. User
code has none in Spark. `streambank inspect CHECKPOINT --json` shows positions.
"""

from __future__ import annotations

import application
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"


class Positions(StreamingQueryListener):
    """Prints from where to where each batch read."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Print the positions before and after a batch, of each source."""
        for source in event.progress.sources:
            batch = event.progress.batchId
            print(f"batch {batch}: {source.description} from {source.startOffset} to {source.endOffset}")

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Print nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Print nothing."""


def large(payments: DataFrame, cents: int) -> DataFrame:
    """Payments of at least so much, each with the name of its file."""
    file = F.element_at(F.split(F.col("_metadata.file_path"), "/"), -1)
    return payments.select("payment", "card", "cents", file.alias("file")).where(F.col("cents") >= cents)


def main() -> None:
    """Read payments, append the large ones; say where the source is after each batch."""
    parser = application.arguments(__doc__)
    parser.add_argument("--cents", type=int, default=50_000)
    args = parser.parse_args()
    spark = application.session("source_positions")
    spark.streams.addListener(Positions())
    rows = large(application.events(spark, args, PAYMENTS), args.cents)
    application.append(rows, args, "source_positions")


if __name__ == "__main__":
    main()
