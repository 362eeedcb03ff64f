"""`python -m bench`: measure, print, and write bench/RESULTS.md with the command and the machine.

It ends within a quarter of an hour: rounds that no longer fit in `--minutes` are left out, and the page says
how many there were. For a look: `python -m bench --scale 0.05 --minutes 2`. `make bench` runs
`bench.state` behind it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import buckets, copies, executors, limits, memory, running
from bench.peers import PEERS, missing
from bench.report import Report, asked
from bench.workloads import LargeFiles, SmallFiles, Workload

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure everything."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often at most; medians are reported")
    parser.add_argument("--peer-rounds", type=int, default=2, help="how often the other tools take part")
    parser.add_argument("--minutes", type=float, default=12.0, help="no round begins that would end later")
    parser.add_argument("--large-mb", type=int, default=2000, help="size of the large files together")
    parser.add_argument("--small-files", type=int, default=100_000, help="how many small files")
    parser.add_argument("--memory-files", type=int, default=1_000_000, help="files of the plan; 0: none")
    parser.add_argument("--scale", type=float, default=1.0, help="all of these, against what they are")
    parser.add_argument("--stretches", type=int, default=5, help="stretches of each kind; 0: no query")
    parser.add_argument("--stretch-seconds", type=float, default=12.0)
    parser.add_argument(
        "--executors",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Spark executors, which take minutes to start and stop",
    )
    parser.add_argument(
        "--s3", action=argparse.BooleanOptionalAction, default=True, help="the same to an S3 server here"
    )
    parser.add_argument(
        "--folder", type=Path, help="where to write while measuring (default: the system's temporary folder)"
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    began = time.monotonic()
    load = os.getloadavg()[0]
    if absent := missing(PEERS):
        _say(absent)
    folder = Path(tempfile.mkdtemp(prefix="streambank-bench-", dir=options.folder))
    try:
        can = limits.measure(folder, max(16, int(512 * options.scale)))
        arms = []
        if options.stretches:
            arms = running.measure(folder, options.stretches, options.stretch_seconds, _say)
        planned = None
        if options.memory_files:
            _say("memory: planning")
            planned = memory.measure(max(1000, int(options.memory_files * options.scale)))
        rates = executors.measure(folder, options.scale, _say) if options.executors else []
        end = began + 60 * options.minutes
        tables, in_s3 = [], []
        workloads: list[Workload] = [
            _large(options.large_mb * options.scale),
            _small(options.small_files * options.scale),
        ]
        left = len(workloads) * (1 + options.s3)
        for workload in workloads:
            now = time.monotonic()
            until = now + (end - now) / left
            tables.append(copies.measure(workload, folder, options.rounds, options.peer_rounds, until, _say))
            left -= 1
        for workload in workloads if options.s3 else ():
            now = time.monotonic()
            until = now + (end - now) / left
            in_s3.append(buckets.measure(workload, folder, options.rounds, options.peer_rounds, until, _say))
            left -= 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    arguments = asked(parser, vars(options), without=("folder", "output")).strip()
    command = f'make bench ARGS="{arguments}"' if arguments else "make bench"
    seconds = time.monotonic() - began
    page = Report(command, seconds, load, can, tables, arms, planned, rates, in_s3).page()
    options.output.write_text(page, encoding="utf-8")
    print(page)
    return 0


def _large(megabytes: float) -> LargeFiles:
    return LargeFiles(partitions=max(1, round(megabytes / 100)))


def _small(files: float) -> SmallFiles:
    return SmallFiles(max(1, round(files / 100)))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
