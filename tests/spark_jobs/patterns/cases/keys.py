"""Patterns that keep something for each key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.spark_jobs.patterns.cases.case import Case, Event, by_key


def totals(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """All that each card has paid."""
    for card, paid in by_key(payments, "card").items():
        cents = [payment["cents"] for payment in paid]
        newest = paid[-1]["event_time"]
        sums = {"cents": sum(cents), "largest": max(cents), "newest": newest}
        yield {"card": card, "payments": len(paid), **sums}


CASES = [Case("keyed_totals", ("payments",), totals, key=("card",))]
