"""Make input for the patterns: events of a made-up shop, the same for the same seed.

    python events.py payments DIR [--seed 1] [--files 10] [--rows 200] [--late 30]

Each file is one batch of JSON lines. Events come up to `--late` seconds after they happened, so neither the
lines of a file nor the files are in order of event time. The last file holds one event, of the key `closing`,
a week later: it moves the watermark over everything before it, so that every window closes and every timer
expires.

| kind | columns | what is in it |
|---|---|---|
| payments | event_time, payment, card, merchant, cents | card-0 has 40 in 100; 5 in 100 come twice |
| readings | event_time, device, milli_degrees | ten devices, one of which is silent half of the time |
| trades | event_time, symbol, cents, shares | prices that walk |
| actions | event_time, user, action, feature, ms | visits of users: some end by `pay`, some just end |
| orders | event_time, order_id, user, cents | each order once |
| deliveries | event_time, order_id, carrier | within two hours of their orders; one in ten orders has none |
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

FIRST = datetime(2026, 1, 1, 8, tzinfo=timezone.utc)
CLOSING_AFTER = timedelta(days=7)
_MTIME_STEP_S = 1
"""Between the modification times of two files: Spark reads a directory in their order."""

Event = dict[str, Any]


def _payments(rng: random.Random, rows: int) -> Iterator[Event]:
    at = FIRST
    for number in range(rows):
        hot = rng.random() < 0.4
        at += timedelta(seconds=rng.choice((1, 5, 20)))
        card = "card-0" if hot else f"card-{rng.randint(1, 30)}"
        payment = {"payment": f"p-{number}", "card": card, "merchant": f"shop-{rng.randint(1, 5)}"}
        event = {"event_time": at, **payment, "cents": rng.randint(100, 90_000)}
        yield event
        if rng.random() < 0.05:
            yield dict(event)


def _readings(rng: random.Random, rows: int) -> Iterator[Event]:
    at = FIRST
    degrees = [rng.randint(15_000, 25_000) for _ in range(10)]
    for number in range(rows):
        at += timedelta(seconds=6)
        device = rng.randrange(10)
        if device == 0 and number % 200 < 100:
            device = 1
        degrees[device] += rng.randint(-300, 300)
        yield {"event_time": at, "device": f"device-{device}", "milli_degrees": degrees[device]}


def _trades(rng: random.Random, rows: int) -> Iterator[Event]:
    at = FIRST
    cents = {"AAA": 10_000, "BBB": 2_500, "CCC": 40_000}
    for _ in range(rows):
        at += timedelta(seconds=rng.choice((0, 1, 3)))
        symbol = rng.choice(("AAA", "AAA", "BBB", "CCC"))
        cents[symbol] += rng.randint(-15, 15)
        yield {"event_time": at, "symbol": symbol, "cents": cents[symbol], "shares": rng.randint(1, 500)}


def _actions(rng: random.Random, rows: int) -> Iterator[Event]:
    at = FIRST
    features = ("search", "map", "list", "cart", "reviews", "help", "photos")
    for _ in range(rows):
        at += timedelta(seconds=rng.choice((2, 10, 90)))
        action = rng.choice(("view", "view", "view", "search", "add", "add", "pay"))
        yield {
            "event_time": at,
            "user": f"user-{min(rng.randrange(12), rng.randrange(12))}",
            "action": action,
            "feature": rng.choice(features),
            "ms": rng.randint(20, 4_000),
        }


def _orders(rng: random.Random, rows: int) -> Iterator[Event]:
    at = FIRST
    for number in range(rows):
        at += timedelta(seconds=rng.choice((10, 60, 200)))
        yield {
            "event_time": at,
            "order_id": f"o-{number}",
            "user": f"user-{rng.randrange(12)}",
            "cents": rng.randint(500, 50_000),
        }


def _deliveries(rng: random.Random, rows: int) -> Iterator[Event]:
    # The orders are those of `_orders` with the same seed: each kind has a generator seeded alike.
    for order in list(_orders(rng, rows)):
        if rng.random() < 0.9:
            at = order["event_time"] + timedelta(minutes=rng.randint(1, 150))
            yield {"event_time": at, "order_id": order["order_id"], "carrier": f"van-{rng.randint(1, 4)}"}


KINDS: dict[str, tuple[Callable[[random.Random, int], Iterator[Event]], Event]] = {
    "payments": (_payments, {"payment": "closing", "card": "closing", "merchant": "closing", "cents": 0}),
    "readings": (_readings, {"device": "closing", "milli_degrees": 0}),
    "trades": (_trades, {"symbol": "closing", "cents": 0, "shares": 0}),
    "actions": (_actions, {"user": "closing", "action": "view", "feature": "closing", "ms": 0}),
    "orders": (_orders, {"order_id": "closing", "user": "closing", "cents": 0}),
    "deliveries": (_deliveries, {"order_id": "closing", "carrier": "closing"}),
}
"""Each kind: what makes its events in order of event time, and the columns of its closing event."""


def batches(
    kind: str, *, seed: int = 1, files: int = 10, rows: int = 200, late_s: float = 30.0
) -> list[list[Event]]:
    """The events of each file, the closing one last.

    Args:
        kind: One of `KINDS`.
        seed: Of the random numbers.
        files: How many, without the closing one.
        rows: Events in each.
        late_s: The longest time between an event and its coming, in seconds.
    """
    make, closing = KINDS[kind]
    rng = random.Random(seed)
    made = list(make(rng, files * rows))
    made.sort(key=lambda event: event["event_time"] + timedelta(seconds=rng.uniform(0, late_s)))
    size = -(-len(made) // files)
    cut = [made[at : at + size] for at in range(0, len(made), size)]
    return [*cut, [{"event_time": FIRST + CLOSING_AFTER, **closing}]]


def write(made: list[list[Event]], folder: Path, first: int = 0) -> None:
    """Write files `first`, `first + 1`, ... that Spark reads in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    start = time.time() - 24 * 3600
    for number, events in enumerate(made, first):
        temporary, target = folder / f".{number:06}.json", folder / f"{number:06}.json"
        temporary.write_text(
            "".join(json.dumps(event, default=datetime.isoformat) + "\n" for event in events)
        )
        os.utime(temporary, (start + number * _MTIME_STEP_S,) * 2)
        temporary.rename(target)


def main() -> None:
    """Write the files of one kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rows", type=int, default=200, help="events in a file")
    parser.add_argument("--late", type=float, default=30.0, help="seconds by which an event may come late")
    args = parser.parse_args()
    made = batches(args.kind, seed=args.seed, files=args.files, rows=args.rows, late_s=args.late)
    write(made, args.folder)
    print(f"{sum(map(len, made))} {args.kind} in {len(made)} files below {args.folder}")


if __name__ == "__main__":
    main()
