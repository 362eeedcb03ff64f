"""The average of each device's newest ten readings, at each reading.

    spark-submit rolling_average.py --input DIR --output DIR [--readings 10]

A list of the newest readings is the whole state: at most `--readings` numbers for each device, read and
written once a batch of the device. `InOrder` hands the readings over in the order in which they were made.

A sliding window answers another question ("the average of the last ten minutes, each minute") and keeps a row
for each slide. Here the list could as well hold the readings of ten minutes, but then it is as long as a
device is busy: put a bound on it. In Flink: `countWindow(10, 1)`, or `ListState` in a `KeyedProcessFunction`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import application
import in_order
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

READINGS = "event_time TIMESTAMP, device STRING, milli_degrees BIGINT"
AVERAGE = "device STRING, event_time TIMESTAMP, readings INT, milli_degrees BIGINT"


class Rolling(in_order.InOrder):
    """Keeps the newest readings of a device.

    Args:
        readings: How many.
    """

    def __init__(self, readings: int) -> None:
        """Keep the setting; this runs in the driver."""
        super().__init__(READINGS)
        self.readings = readings

    def open(self, handle: StatefulProcessorHandle) -> None:
        """Open the list."""
        self.newest = handle.getListState("newest", "milli_degrees BIGINT")

    def event(self, key: Any, row: Row) -> Iterator[Row]:
        """Add a reading; return the average of those that are kept, rounded down."""
        kept = [*self.newest.get(), (row.milli_degrees,)][-self.readings :]
        self.newest.put(kept)
        average = sum(one for (one,) in kept) // len(kept)
        yield Row(device=key[0], event_time=row.event_time, readings=len(kept), milli_degrees=average)


def averages(readings: DataFrame, count: int, watermark: str) -> DataFrame:
    """One row for each reading."""
    return (
        readings.withWatermark("event_time", watermark)
        .groupBy("device")
        .transformWithState(Rolling(count), AVERAGE, outputMode="Append", timeMode="EventTime")
    )


def main() -> None:
    """Read readings, append averages."""
    parser = application.arguments(__doc__)
    parser.add_argument("--readings", type=int, default=10, metavar="N")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    application.ship(in_order)
    readings = application.events(application.session("rolling_average"), args, READINGS)
    application.append(averages(readings, args.readings, args.watermark), args, "rolling_average")


if __name__ == "__main__":
    main()
