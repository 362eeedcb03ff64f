"""Patterns of state variables: their kinds, their cost, their checks and their versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tests.spark_jobs.patterns.cases.case import Case, Event, by_key


def kept(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """All of each card: no time to live is over."""
    for card, paid in by_key(payments, "card").items():
        cents = sum(payment["cents"] for payment in paid)
        merchants = len({payment["merchant"] for payment in paid})
        sums = {"payments": len(paid), "cents": cents, "newest": len(paid)}
        yield {"card": card, **sums, "merchants": merchants, "merchant_cents": cents}


def folded(readings: list[Event]) -> Iterator[dict[str, Any]]:
    """The warmest reading, the mean and the span of each device."""
    for device, read in by_key(readings, "device").items():
        degrees = sorted(reading["milli_degrees"] for reading in read)
        span = sum(after - before for before, after in pairwise(degrees))
        mean = sum(degrees) / len(degrees)
        yield {
            "device": device,
            "warmest": degrees[-1],
            "readings": len(degrees),
            "mean": mean,
            "span": span,
        }


def in_two_calls(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """The totals of each card, which took two calls in its last batch."""
    for card, paid in by_key(payments, "card").items():
        cents = sum(payment["cents"] for payment in paid)
        merchants = len({payment["merchant"] for payment in paid})
        yield {"card": card, "payments": len(paid), "cents": cents, "merchants": merchants, "calls": 2}


def after_first_file(payments: list[Event]) -> int:
    """Where the second of three files begins; the last file has the closing event."""
    return -(-(len(payments) - 1) // 3)


def checked(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """The totals of each card."""
    for card, paid in by_key(payments, "card").items():
        yield {"card": card, "payments": len(paid), "cents": sum(payment["cents"] for payment in paid)}


def repaired(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """The same, and a row that says how the total of card-0 was repaired."""
    yield from checked(payments)
    first = [each["cents"] for each in payments[: after_first_file(payments)] if each["card"] == "card-0"]
    right, wrong = (len(first), sum(first)), (len(first) + 1, sum(first))
    detail = f"total {wrong} to {right}, from parts"
    yield {"card": "card-0", "finding": "repaired", "detail": detail}


def quarantined(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """Of card-0 only what came after its first file, and a row that has its broken state."""
    at = after_first_file(payments)
    first = [payment for payment in payments[:at] if payment["card"] == "card-0"]
    parts = {
        merchant: [len(paid), sum(payment["cents"] for payment in paid)]
        for merchant, paid in by_key(first, "merchant").items()
    }
    total = [len(first), sum(payment["cents"] for payment in first)]
    broken = min(parts)
    parts[broken] = [-1, 0]
    state = json.dumps({"total": total, "parts": parts}, sort_keys=True)
    detail = f"{broken} has -1 payments of 0 cents: {state}"
    yield {"card": "card-0", "finding": "quarantined", "detail": detail}
    for row in checked([*payments[at:], *(each for each in payments[:at] if each["card"] != "card-0")]):
        yield {**row, "incomplete": True} if row["card"] == "card-0" else row


def read_as_version_2(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """The totals of each card; those that came in more than one file had been written before."""
    size = after_first_file(payments)
    for row in checked(payments):
        files = {at // size for at, payment in enumerate(payments) if payment["card"] == row["card"]}
        yield {**row, "read_version": 2} if len(files) > 1 else row


FOUND_KEY = ("card", "finding")
VERSIONED = Case("versioned", ("payments",), read_as_version_2, key=("card",), together=1)


def damaged(name: str, part: str, expected: Callable[[list[Event]], Iterator[dict[str, Any]]]) -> Case:
    """The case of state that is broken after the first file."""
    return Case(
        "validated", ("payments",), expected, ("--damage", part), key=FOUND_KEY, name=name, together=1
    )


CASES = [
    Case("state_variables", ("payments",), kept, key=("card",)),
    Case("reducing", ("readings",), folded, key=("device",)),
    Case("reducing", ("readings",), folded, ("--builtin",), key=("device",), name="reducing --builtin"),
    Case("batched", ("payments",), in_two_calls, key=("card",)),
    Case("validated", ("payments",), checked, key=FOUND_KEY),
    damaged("repaired", "total", repaired),
    damaged("quarantined", "part", quarantined),
    VERSIONED,
]
