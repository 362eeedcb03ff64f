"""`python -m bench.upgrade`: an upgrade beside Flink's stop with a savepoint; writes bench/UPGRADE.md.

Flink's modules are fetched once (`demo.jars.flink`), and its query is compiled by `javac`. For a look:
`python -m bench.upgrade --keys 10000 --rounds 1`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.report import asked, machine
from bench.upgrade import flink_side
from bench.upgrade.feed import Feed
from bench.upgrade.flink_side import WAYS, FlinkSide
from bench.upgrade.page import page
from bench.upgrade.spark_side import SparkSide
from bench.upgrade.swaps import Swap
from demo.jars.flink import VERSION

RESULTS = Path(__file__).resolve().parent.parent / "UPGRADE.md"
ROWS_PER_S = 1_000
SPARK_EVERY_S = 0.5
FLINK_EVERY_S = 0.1


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.upgrade", description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5, help="how often at most, for each number of keys")
    parser.add_argument("--minutes", type=float, default=60.0, help="no round begins that would end later")
    parser.add_argument("--settle", type=float, default=10.0, help="seconds with rows before each change")
    parser.add_argument("--folder", type=Path, help="where to write while measuring")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    options.given = asked(parser, vars(options), without=("folder", "output"))
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the page."""
    options = arguments(argv)
    if absent := flink_side.missing():
        print(absent, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what it started ends with it
    began, load = time.monotonic(), os.getloadavg()[0]
    found: dict[int, list[list[Swap]]] = {}
    folder = Path(tempfile.mkdtemp(prefix="streambank-bench-", dir=options.folder))
    try:
        for number, keys in enumerate(options.keys):
            left_s = 60 * options.minutes - (time.monotonic() - began)
            until = time.monotonic() + left_s / (len(options.keys) - number)
            found[keys] = measure(folder / str(keys), keys, options.rounds, until, options.settle, _say)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    made = (
        f"Made by `python -m bench.upgrade{options.given}` on {datetime.now(UTC):%Y-%m-%d} in "
        f"{time.monotonic() - began:.0f} s, on {machine()}. The load average was {load:.1f} before it: "
        "compare the ratios, since seconds are those of one machine."
    )
    text = page(made, VERSION, ROWS_PER_S, {keys: rounds for keys, rounds in found.items() if rounds})
    options.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


def measure(
    folder: Path, keys: int, rounds: int, until: float, settle_s: float, say: Callable[[str], None]
) -> list[list[Swap]]:
    """Change the code of both in turns.

    Args:
        folder: Where to write.
        keys: How many keys the state has.
        rounds: How many rounds at most; the first one is always begun.
        until: When the last round ends at the latest, by the monotonic clock.
        settle_s: Seconds with rows before each change.
        say: Called with what was measured.

    Raises:
        RuntimeError: A side failed, or did not go on with its state.
    """
    folder.mkdir()
    for_spark, for_flink = (Feed(folder / f"in-{name}", keys) for name in ("spark", "flink"))
    spark = SparkSide(folder / "spark", for_spark.folder)
    flink = FlinkSide(folder / "flink", for_flink.folder)

    def upgraded(cold: bool) -> Swap:
        with for_spark.flowing(ROWS_PER_S, SPARK_EVERY_S):
            time.sleep(settle_s)
            return spark.swap(cold)

    def changed(at: int) -> Swap:
        with for_flink.flowing(ROWS_PER_S, FLINK_EVERY_S):
            time.sleep(settle_s)
            return flink.swap(WAYS[at])

    found: list[list[Swap]] = []
    longest_s = 0.0
    say(f"{keys:,} keys: starting")
    try:
        flink.start()
        spark.start()
        while len(found) < rounds and (not found or time.monotonic() + longest_s < until):
            began, swaps = time.monotonic(), []
            turns: list[Callable[[], Swap]] = [lambda at=at: changed(at) for at in range(len(WAYS))]  # type: ignore[misc]  # mypy reads no default of a lambda
            turns[len(turns) // 2 : len(turns) // 2] = [lambda: upgraded(True)]
            for turn in [lambda: upgraded(False), *turns]:
                swaps.append(turn())
                say(f"{swaps[-1].what}: {swaps[-1].without_s:.1f} s {dict(swaps[-1].steps)}")
            found.append(swaps)
            longest_s = max(longest_s, time.monotonic() - began)
        if (rows := spark.rows()) != keys:
            raise RuntimeError(f"the state of Spark has {rows} rows, and not {keys}")
    finally:
        flink.end()
        spark.end()
    return found


def _say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
