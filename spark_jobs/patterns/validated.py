"""Validated state: what is read is checked, repaired if that is possible, and reported if not.

    spark-submit validated.py --input DIR --output DIR [--damage total | --damage part]

State goes wrong without any crash: an old version of the code counted twice, a migration lost a field, state
was rewritten by hand. Here each card has a total, and the parts that it is the sum of, one for each merchant.
Each read checks what must hold: no count below zero, and total = sum of parts.

* The total alone is wrong: the parts are a second source, so the total is computed from them and a row with
  `finding` = `repaired` says from what to what.
* A part is wrong: nothing says what it was. The row `quarantined` holds the whole state as JSON, so that a
  person can find out; the card begins at zero, and from then on its rows say `incomplete`.

A finding is a row of the output, written in the same batch as the repair, so it is exactly-once like the
answer and never only a line in a log. The state is a value and a map of one entry for each merchant, kept for
ever; the check reads all of it, once a batch (`batched.py`).

Trap: a check that raises an exception stops the query, and the query reads the same state when it restarts,
for ever. `--damage` breaks the state of card-0 once, after the batch that first has it, to show all this. In
Flink: the same code in a `KeyedProcessFunction`, findings to a side output; or the State Processor API,
offline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import application
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"
CHECKED = "card STRING, payments BIGINT, cents BIGINT, incomplete BOOLEAN, finding STRING, detail STRING"
COLUMNS = ("payments", "cents", "incomplete", "finding", "detail")
SUMS = "payments BIGINT, cents BIGINT"
DAMAGED = "card-0"

Sums = tuple[int, int]
"""Payments and cents."""
Parts = dict[str, Sums]


def sum_of(parts: Parts) -> Sums:
    """What the total must be."""
    return sum(payments for payments, _ in parts.values()), sum(cents for _, cents in parts.values())


def broken_part(parts: Parts) -> str | None:
    """Why the parts cannot be true, or nothing."""
    for merchant, (payments, cents) in sorted(parts.items()):
        if payments < 1 or cents < 0:
            return f"{merchant} has {payments} payments of {cents} cents"
    return None


class Validated(StatefulProcessor):
    """Keeps totals and their parts, and checks them before it uses them.

    Args:
        damage: Break this in the state of one card once: `total`, `part` or nothing.
    """

    def __init__(self, damage: str | None) -> None:
        """Keep the setting; this runs in the driver."""
        self.damage = damage

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the total and its parts."""
        self.total = handle.getValueState("total", f"{SUMS}, incomplete BOOLEAN")
        self.parts = handle.getMapState("parts", "merchant STRING", SUMS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Check, add the payments of a batch, write what was found and what the total is."""
        parts: Parts = {merchant: sums for (merchant,), sums in self.parts.iterator()}
        *before, incomplete = self.total.get() or (0, 0, False)
        new = not parts and tuple(before) == (0, 0)
        if why := broken_part(parts):
            state = json.dumps({"total": before, "parts": parts}, sort_keys=True)
            yield self._row(key, finding="quarantined", detail=f"{why}: {state}")
            parts, incomplete = {}, True
            self.parts.clear()
        elif (right := sum_of(parts)) != tuple(before):
            detail = f"total {tuple(before)} to {right}, from parts"
            yield self._row(key, finding="repaired", detail=detail)
        touched: set[str] = set()
        for row in rows:
            payments, cents = parts.get(row.merchant, (0, 0))
            parts[row.merchant] = (payments + 1, cents + row.cents)
            touched.add(row.merchant)
        total = sum_of(parts)
        yield self._row(key, payments=total[0], cents=total[1], incomplete=incomplete or None)
        if new and key[0] == DAMAGED:
            total, parts = self._damaged(total, parts)
        for merchant in touched:
            self.parts.updateValue((merchant,), parts[merchant])
        self.total.update((*total, incomplete))

    def close(self) -> None:
        """Nothing is held."""

    @staticmethod
    def _row(key: Any, **columns: Any) -> Row:
        return Row(card=key[0], **{**dict.fromkeys(COLUMNS), **columns})

    def _damaged(self, total: Sums, parts: Parts) -> tuple[Sums, Parts]:
        if self.damage == "total":
            return (total[0] + 1, total[1]), parts
        if self.damage == "part":
            return total, {**parts, min(parts): (-1, 0)}
        return total, parts


def checked(payments: DataFrame, damage: str | None) -> DataFrame:
    """The totals of each card that a batch touches, and what was found wrong."""
    return payments.groupBy("card").transformWithState(Validated(damage), CHECKED, "Update", "None")


def main() -> None:
    """Read payments, write totals and findings."""
    parser = application.arguments(__doc__)
    parser.add_argument("--damage", choices=("total", "part"), help="break the state of card-0 once")
    args = parser.parse_args()
    payments = application.events(application.session("validated"), args, PAYMENTS)
    application.replace_batches(checked(payments, args.damage), args, "validated")


if __name__ == "__main__":
    main()
