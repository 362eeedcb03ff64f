"""`python -m bench.state`: operations on state beside Spark's own full read; writes bench/STATE.md.

`make bench` ends with it, after ten minutes or so. Each room is a separate process. For a look:
`python -m bench.state --keys 50000 --rounds 1`.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.million_keys import PROVIDERS
from bench.report import asked, machine, paragraph
from bench.sla import Rooms
from bench.state_room import AGAIN, COMPACT, DIGEST, UNIT

RESULTS = Path(__file__).resolve().parent / "STATE.md"
NAMES = {"rocksdb": "RocksDB with changelog", "hdfs": "HDFS-backed"}
PLACES = {"local[2]": "one machine, `local[2]`", "cluster": "a standalone cluster, two workers of one core"}
WANTED = {DIGEST: 1.3, COMPACT: 3.0}
"""What each is wanted to be at most, times the full read."""
_HOW = (
    "Compare the ratios: seconds are those of one machine. The unit is a full read by Spark alone: its state "
    "reader, and a hash over all columns of all rows, so that every one is really read. In every round all "
    "work on the same savepoint in one Spark that has done all of it once before; each ratio is against the "
    "mean of the two full reads of its round, one at the beginning and one at the end; the median of the "
    "rounds is given, and the lowest and the highest. Reading, digest and diff begin with a savepoint that "
    "is laid out, as the full read does. What makes a savepoint has all of it in its time: laying out with "
    "every byte hashed, deciding, writing, reading what was written and comparing it, and saving that. What "
    "goes through Spark's own rewriter of RocksDB state cannot take less than that does by itself, which is "
    "the last row. Seconds of a processor are those of the JVMs, of Python and of its workers."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.state", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="that are measured, after one that is not")
    parser.add_argument("--providers", nargs="+", choices=PROVIDERS, default=[*PROVIDERS])
    parser.add_argument("--masters", nargs="+", choices=PLACES, default=[*PLACES])
    parser.add_argument("--parts", type=Path, help="keep what each room says here, and use what is there")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    began, load = time.monotonic(), os.getloadavg()[0]
    rooms = Rooms(options.parts)
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for provider in options.providers:
        with tempfile.TemporaryDirectory(prefix="streambank-bench-") as folder:
            rounds, keys = str(options.rounds), str(options.keys)
            for master in options.masters:
                name = f"state-{provider}-{'cluster' if master == 'cluster' else 'local'}"
                found[provider, master] = rooms.room(
                    "state_room", folder, provider, keys, master, rounds, name=name
                )
    arguments = asked(parser, vars(options), without=("parts", "output"))
    seconds = rooms.seconds + time.monotonic() - began
    made = (
        f"Made by `python -m bench.state{arguments}` on {datetime.now(UTC):%Y-%m-%d} in {seconds:.0f} s, on "
    )
    quiet = f"The load average was {load:.1f} before it."
    kept = "Rooms were run apart, beside other work: trust the processor's seconds, not the clock's."
    text = page(f"{made}{machine()}. {kept if rooms.seconds else quiet}", options.keys, found)
    options.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


def page(made: str, keys: int, found: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """The page, as Markdown."""
    what = (
        f"A query counts, sums and keeps the newest time for each of {keys:,} keys. It is the savepoint "
        "after its second batch, which brought 2 % of them and touched one of twelve: snapshots, and changes "
        "where Spark had not written the next one yet. It is compared with that after the first batch. One "
        "of ten keys is compacted away."
    )
    lines = ["# Figures of state operations", *paragraph(made), *paragraph(_HOW), *paragraph(what)]
    for (provider, master), said in found.items():
        many = len(said["rounds"])
        lines += ["", f"## {NAMES[provider]}, on {PLACES[master]}"]
        lines += [f"{many} round{'' if many == 1 else 's'}.", "", *_table(said["rounds"])]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def _table(rounds: Sequence[Mapping[str, Sequence[float]]]) -> Iterator[str]:
    yield "| | times a full read | lowest, highest | of a processor | seconds | wanted |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in rounds[0]:
        if name == AGAIN:
            continue
        clock, used = (sorted(_ratio(one, name, which) for one in rounds) for which in (0, 1))
        seconds = statistics.median(one[name][0] for one in rounds)
        spread = f"{clock[0]:.2f}, {clock[-1]:.2f}" if name != UNIT else ""
        figures = f"{statistics.median(clock):.2f} | {spread} | {statistics.median(used):.2f}"
        yield f"| {name} | {figures} | {seconds:.1f} | {_wanted(name)} |"


def _ratio(one: Mapping[str, Sequence[float]], name: str, which: int) -> float:
    unit = (one[UNIT][which] + one[AGAIN][which]) / 2
    return 1.0 if name == UNIT else one[name][which] / unit


def _wanted(name: str) -> str:
    return f"{WANTED[name]:.1f}" if name in WANTED else ""


if __name__ == "__main__":
    sys.exit(main())
