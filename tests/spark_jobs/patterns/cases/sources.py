"""Patterns of positions and of rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.spark_jobs.patterns.cases.case import Case, Event, events

LIMITS = [
    ("shop-1", 60_000, timedelta(minutes=-10)),
    ("shop-1", 20_000, timedelta(minutes=4)),
    ("shop-2", 40_000, timedelta(minutes=-10)),
    ("shop-3", 50_000, timedelta(minutes=6)),
    ("shop-3", 90_000, timedelta(minutes=9)),
]
"""Merchant, limit, and from when after the first event it is valid."""


def rule(merchant: str, limit: int, begins: timedelta) -> dict[str, Any]:
    first: datetime = events.FIRST
    return {"of": merchant, "limit": limit, "valid_from": (first + begins).isoformat()}


def write_rules(folder: Path) -> Sequence[str]:
    """The rules, in two files; the argument that names them."""
    place = folder / "rules"
    place.mkdir(exist_ok=True)
    for name, limits in (("a", LIMITS[:3]), ("b", LIMITS[3:])):
        (place / f"{name}.json").write_text("".join(f"{json.dumps(rule(*limit))}\n" for limit in limits))
    return ["--rules", str(place)]


def over_limit(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """Payments above the newest limit before them."""
    for payment in payments:
        before = [
            (begins, limit)
            for merchant, limit, begins in LIMITS
            if merchant == payment["merchant"] and events.FIRST + begins <= payment["event_time"]
        ]
        limit = max(before)[1] if before else payment["cents"]
        if payment["cents"] > limit:
            kept = {name: payment[name] for name in ("payment", "merchant", "cents", "event_time")}
            yield {**kept, "limit": limit}


def over_limit_once(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """The same, of the newest copy of each payment."""
    return over_limit(list({payment["payment"]: payment for payment in payments}.values()))


def large_by_file(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """Large payments, each with its file: the payments come in order of their files."""
    made = CASES[0].batches()["payments"]
    assert sum(map(len, made)) == len(payments)
    for number, batch in enumerate(made):
        for payment in batch:
            if payment["cents"] >= 50_000:
                kept = {name: payment[name] for name in ("payment", "card", "cents")}
                yield {**kept, "file": f"{number:06}.json"}


CASES = [
    Case("source_positions", ("payments",), large_by_file),
    Case("broadcast_rules", ("payments",), over_limit, prepare=write_rules),
    Case("broadcast_rules_batch", ("payments",), over_limit_once, prepare=write_rules, key=("payment",)),
]
