"""Patterns of keys that are hot or cold."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.spark_jobs.patterns.cases.case import Case, Event, by_key, final_watermark

WINDOW = timedelta(minutes=5)


@dataclass(frozen=True)
class CaseBut(Case):
    """A case with one column that tells how the answer was found, and is not part of it.

    Attributes:
        but: That column.
    """

    but: str = ""

    def written(self, output: Path) -> list[str]:
        """The rows that the output has, without the column."""
        rows = map(json.loads, super().written(output))
        without = ({name: value for name, value in row.items() if name != self.but} for row in rows)
        return sorted(json.dumps(row, sort_keys=True) for row in without)

    def values(self, output: Path) -> list[Any]:
        """What the column has."""
        return [json.loads(row)[self.but] for row in super().written(output)]


def windows(payments: list[Event], key: str) -> Iterator[tuple[dict[str, Any], list[Event]]]:
    """The windows of each key that have closed, and their payments."""
    watermark = final_watermark(payments)
    cut: dict[tuple[str, datetime], list[Event]] = defaultdict(list)
    for payment in payments:
        at: datetime = payment["event_time"]
        cut[payment[key], at - (at - at.min.replace(tzinfo=at.tzinfo)) % WINDOW].append(payment)
    for (name, start), within in cut.items():
        if start + WINDOW <= watermark:
            cents = sum(payment["cents"] for payment in within)
            yield {"start": start, key: name, "payments": len(within), "cents": cents}, within


def by_merchant(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """The totals of each window and merchant."""
    for row, within in windows(payments, "merchant"):
        yield {**row, "cards": len({payment["card"] for payment in within})}


def by_card(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """The totals of each window and card."""
    return (row for row, _ in windows(payments, "card"))


def each_once(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """The totals of each card, each payment once."""
    for card, paid in by_key(payments, "card").items():
        once = {payment["payment"]: payment["cents"] for payment in paid}
        yield {"card": card, "payments": len(once), "cents": sum(once.values())}


def favourites(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """The totals of each card, and the merchant to which it paid most."""
    for card, paid in by_key(payments, "card").items():
        cents: dict[str, int] = defaultdict(int)
        for payment in paid:
            cents[payment["merchant"]] += payment["cents"]
        favourite = sorted(cents, key=lambda merchant: (cents[merchant], merchant))[-1]
        total = sum(cents.values())
        yield {"card": card, "payments": len(paid), "cents": total, "favourite": favourite}


SALTED = Case("salted", ("payments",), by_merchant)
FOUND = CaseBut(
    "hot_keys_found",
    ("payments",),
    by_card,
    ("--hot-above", "12", "--parts", "4"),
    key=("start", "card"),
    but="parts",
)
COLD = CaseBut("hot_cold", ("payments",), favourites, ("--idle-minutes", "2"), key=("card",), but="returns")
CASES = [SALTED, Case("split_key", ("payments",), each_once, key=("card",)), FOUND, COLD]
