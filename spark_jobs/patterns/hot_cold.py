"""Hot and cold: the state of keys that are idle goes to files, and comes back when the key does.

    spark-submit hot_cold.py --input DIR --output DIR [--idle-minutes 60] [--cold DIR]

A card that has paid for years has much state, and most cards are not at work now. When nothing has come for
`--idle-minutes`, a timer in event time writes the card's totals by merchant to a file below `--cold`
(default: OUTPUT.cold; executors must share it) and leaves a *ticket* in the state: the name of the file and
the place in it. The next payment of the card follows the ticket, reads that line, and the card is hot again.
So the store holds the totals of the cards at work and about fifty bytes for each other card; both are kept
for ever.

Is that exactly-once? The files are outside of the checkpoint, so they must be right for every batch at which
the query may go on. Each task writes a file with a new name, before its batch commits, and no file is ever
changed. A batch that runs again writes another file; the ticket that commits names the file of the attempt
that committed, and the other has no ticket. A restore to an old savepoint brings back the old tickets, which
name old files. A table with one row a card, replaced each time, would be wrong in both cases.

Limits: never delete a file that a ticket of a checkpoint or savepoint still names; a backup without `--cold`
is not complete. Files without a ticket stay until a sweep that reads the tickets removes them. An object
store has no files that grow: gather the lines of a task and put one object in `close`, which still runs
before the commit. Reading one line costs one open, so many cards that come back at once (Monday, 9:00) are
slow. In Flink: the same, by hand; state there is all hot, in memory or in RocksDB, or remote as a whole
(ForSt in Flink 2).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import application
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"
TOTALS = "card STRING, payments BIGINT, cents BIGINT, favourite STRING, returns INT"


class ColdFiles:
    """Files of JSON lines that never change once their batch has committed.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: str) -> None:
        """Keep the folder; no file yet."""
        self.folder = Path(folder)
        self.file: BinaryIO | None = None

    def write(self, line: str) -> tuple[str, int]:
        """Add a line to the file of this task; returns its ticket, a name and a position."""
        if self.file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.name = f"{uuid.uuid4()}.json"
            self.file = (self.folder / self.name).open("xb")
        position = self.file.tell()
        self.file.write(line.encode() + b"\n")
        return self.name, position

    def read(self, name: str, position: int) -> str:
        """The line of a ticket."""
        with (self.folder / name).open("rb") as file:
            file.seek(position)
            return file.readline().decode()

    def close(self) -> None:
        """Let the file of this task be on disk."""
        if self.file is not None:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self.file = None


class HotAndCold(StatefulProcessor):
    """Keeps the totals of a card in the state or in a file.

    Args:
        idle: How long nothing comes before a card is cold.
        folder: Where cold totals go.
    """

    def __init__(self, idle: timedelta, folder: str) -> None:
        """Keep the settings; this runs in the driver."""
        self.idle = idle
        self.folder = folder

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; a card has either totals or a ticket. Text stays in the files."""
        self.handle = handle
        self.cold = ColdFiles(self.folder)
        self.hot = handle.getValueState("hot", "newest_ms BIGINT, returns INT")
        self.totals = handle.getMapState("totals", "merchant STRING", "payments BIGINT, cents BIGINT")
        self.ticket = handle.getValueState("ticket", "file STRING, position BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Bring the totals back if they are cold, and add the payments of a batch."""
        newest_ms, returns = self.hot.get() or (0, 0)
        ticket = self.ticket.get()
        if ticket is not None:
            returns, cold = json.loads(self.cold.read(*ticket))
            returns += 1
            for merchant, total in cold.items():
                self.totals.updateValue((merchant,), tuple(total))
            self.ticket.clear()
        for row in rows:
            payments, cents = self.totals.getValue((row.merchant,)) or (0, 0)
            self.totals.updateValue((row.merchant,), (payments + 1, cents + row.cents))
            newest_ms = max(newest_ms, round(row.event_time.timestamp() * 1000))
        self.hot.update((newest_ms, returns))
        self.handle.registerTimer(self._idle_ms(newest_ms))
        totals = self._totals()
        payments, cents = (sum(column) for column in zip(*totals.values(), strict=True))
        favourite = max(totals, key=lambda merchant: (totals[merchant][1], merchant))
        yield Row(card=key[0], payments=payments, cents=cents, favourite=favourite, returns=returns)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Put the totals into a file if nothing came since the timer was set."""
        hot = self.hot.get()
        if hot is not None and self._idle_ms(hot[0]) <= expiredTimerInfo.getExpiryTimeInMs():
            self.ticket.update(self.cold.write(json.dumps([hot[1], self._totals()])))
            self.hot.clear()
            self.totals.clear()
        return iter(())

    def _totals(self) -> dict[str, tuple[int, int]]:
        """Payments and cents by merchant."""
        return {merchant: (payments, cents) for (merchant,), (payments, cents) in self.totals.iterator()}

    def close(self) -> None:
        """Close the file of this task, before its batch commits."""
        self.cold.close()

    def _idle_ms(self, newest_ms: int) -> int:
        return newest_ms + round(self.idle.total_seconds() * 1000) + 1


def totals(payments: DataFrame, idle: timedelta, folder: str, watermark: str) -> DataFrame:
    """The totals of each card that a batch touches."""
    return (
        payments.withWatermark("event_time", watermark)
        .groupBy("card")
        .transformWithState(HotAndCold(idle, folder), TOTALS, outputMode="Update", timeMode="EventTime")
    )


def main() -> None:
    """Read payments, write the totals of each batch's cards."""
    parser = application.arguments(__doc__)
    parser.add_argument("--idle-minutes", type=float, default=60.0, metavar="M")
    parser.add_argument("--cold", metavar="DIR", help="where cold totals go; default: OUTPUT.cold")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    payments = application.events(application.session("hot_cold"), args, PAYMENTS)
    idle, folder = (
        timedelta(minutes=args.idle_minutes),
        str(Path(args.cold or f"{args.output}.cold").resolve()),
    )
    application.replace_batches(totals(payments, idle, folder, args.watermark), args, "hot_cold")


if __name__ == "__main__":
    main()
