"""State with a version: the code changes, the state of the checkpoint goes on.

    spark-submit versioned.py --input DIR --output DIR --code 1
    spark-submit versioned.py --input DIR --output DIR --code 2

Both codes keep the totals of each card. Code 2 calls `cents` by a better name, `spent_cents`. A rename is an
addition and, much later, a removal:

1. Each value has a `version`. Code 2 adds the field and reads either: a value of version 1 is brought up to
   version 2 when it is read (`UPGRADES` holds one step for each version), so nothing is converted at once and
   a key that comes back after a year is still read.
2. Code 2 writes both fields. So code 1 can go on with what code 2 wrote: a rollback loses nothing.
3. When all values are of version 2 (`streambank state` reads them) and a rollback to code 1 is out of the
   question, a code 3 drops `cents`.

Spark lets a state variable gain a field only if the state is encoded as Avro, in which a field has a name; a
value that was written without it has null there. The encoding is chosen at the first start, for good: set it
before there is a version 2. Traps: a field that was added is null in old values, not zero, also where nothing
was renamed; and old code drops the fields that it does not know, so after a rollback `version` says 1 again,
as it must.

The state is one row a card, kept for ever. In Flink: a `TypeSerializer` snapshot, or POJO and Avro evolution,
which know added and removed fields; a rename takes the same steps there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import application
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"
TOTALS = "card STRING, payments BIGINT, cents BIGINT, read_version INT"
SCHEMAS = {
    1: "version INT, payments BIGINT, cents BIGINT",
    2: "version INT, payments BIGINT, cents BIGINT, spent_cents BIGINT",
}

Fields = dict[str, Any]


def _rename_cents(value: Fields) -> Fields:
    return {**value, "version": 2, "spent_cents": value["cents"]}


UPGRADES: dict[int, Callable[[Fields], Fields]] = {1: _rename_cents}
"""What makes version N + 1 of a value of version N."""


class Totals(StatefulProcessor):
    """Keeps totals as one version of the code does.

    Args:
        code: The version of the code.
    """

    def __init__(self, code: int) -> None:
        """Keep the settings; this runs in the driver."""
        self.code = code
        self.names = [column.split()[0] for column in SCHEMAS[code].split(", ")]
        self.upgrades = UPGRADES

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the totals, with the fields that this code knows."""
        self.totals = handle.getValueState("totals", SCHEMAS[self.code])

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Add a batch to the totals, and say of which version they were."""
        stored = self.totals.get()
        value = dict(zip(self.names, stored, strict=True)) if stored else self._new()
        read_version = value["version"] if stored else None
        while value["version"] < self.code:
            value = self.upgrades[value["version"]](value)
        spent = "cents" if self.code == 1 else "spent_cents"
        for row in rows:
            value["payments"] += 1
            value[spent] += row.cents
        value["cents"] = value[spent]  # Code 2 writes both, for code 1.
        value["version"] = self.code
        self.totals.update(tuple(value[name] for name in self.names))
        yield Row(card=key[0], payments=value["payments"], cents=value[spent], read_version=read_version)

    def close(self) -> None:
        """Nothing is held."""

    def _new(self) -> Fields:
        return {**dict.fromkeys(self.names, 0), "version": self.code}


def totals(payments: DataFrame, code: int) -> DataFrame:
    """The totals of each card that a batch touches."""
    return payments.groupBy("card").transformWithState(Totals(code), TOTALS, "Update", "None")


def main() -> None:
    """Read payments, write the totals of each batch's cards."""
    parser = application.arguments(__doc__)
    parser.add_argument("--code", type=int, choices=tuple(SCHEMAS), default=2)
    args = parser.parse_args()
    spark = application.session("versioned")
    spark.conf.set("spark.sql.streaming.stateStore.encodingFormat", "avro")
    payments = application.events(spark, args, PAYMENTS)
    application.replace_batches(totals(payments, args.code), args, "versioned")


if __name__ == "__main__":
    main()
