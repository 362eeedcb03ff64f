"""Input for the programs in spark_jobs/patterns/wrong: enough of it that their flaws show."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

WRONG = ROOT / "spark_jobs/patterns/wrong"
FILES = 4
"""One a batch."""
_BEGIN = datetime(2026, 5, 4, tzinfo=UTC)

Rows = Iterator[Mapping[str, Any]]


def _orders(file: int) -> Rows:
    for number in range(40):
        yield {"order_id": f"o-{file * 30 + number}", "amount": 9.5}


def _events(file: int) -> Rows:
    """Of each device a heartbeat every five minutes, for ten hours, and now and then a page."""
    for minute in range(0, 600, 5):
        for device in range(3):
            page = {"page": f"/{minute}"} if minute % 60 == 0 else {}
            at = _BEGIN + timedelta(hours=10 * file, minutes=minute)
            yield {"device": f"d{device}", "kind": "page" if page else "heartbeat", "at": _time(at), **page}


def _readings(file: int) -> Rows:
    for number in range(700):
        yield {"sensor": f"s{number % 2}", "value": number / 10}


def _payments_by_merchant(file: int) -> Rows:
    """Nine of ten payments are of one merchant of forty, each of another customer."""
    for number in range(300):
        merchant = "market" if number % 10 else f"m{number // 10}"
        yield {"merchant": merchant, "customer": f"c{file}-{number}", "amount": 9.5}


def _sales(file: int) -> Rows:
    for number in range(20):
        yield {"shop": f"s{number % 4}", "amount": 9.5}


def _payments(file: int) -> Rows:
    for number in range(60):
        yield {"account": f"a{number % 30}", "amount": f"{(number * 7 + file) % 40}.50"}


INPUTS: Mapping[str, Callable[[int], Rows]] = {
    "unbounded_state": _orders,
    "session_never_closes": _events,
    "append_only_list": _readings,
    "hot_keys": _payments_by_merchant,
    "no_checkpoint": _sales,
    "numbers_as_strings": _payments,
}


CHECKPOINTS = sorted(INPUTS.keys() - {"no_checkpoint"})
"""Those that name a checkpoint location; tests/data/wrong has what they leave."""


def write_input(program: str, folder: Path, files: int = FILES) -> None:
    """Files of JSON lines, an hour of event time each unless the rows say otherwise.

    Args:
        program: The name of the program without `.py`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        at = _time(_BEGIN + timedelta(hours=file))
        text = "".join(json.dumps({"at": at, **row}) + "\n" for row in INPUTS[program](file))
        path = folder / f"{file:03d}.json"
        path.write_text(text, encoding="utf-8")
        os.utime(path, (_BEGIN.timestamp() + file, _BEGIN.timestamp() + file))  # Spark reads in this order


def _time(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
