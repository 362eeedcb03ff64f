"""`python -m bench`: measure, print, and write bench/RESULTS.md with the command and the machine."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from bench import copies, executors, running
from bench.copies import Measured
from bench.executors import Rate
from bench.running import Cost
from bench.workloads import LARGE, SMALL

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
MIB = 1 << 20


def main(argv: Sequence[str] | None = None) -> int:
    """Measure everything."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often; medians are reported")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the files, against the usual one")
    parser.add_argument("--stretches", type=int, default=4, help="stretches with and without takes")
    parser.add_argument("--stretch-seconds", type=float, default=15.0)
    parser.add_argument(
        "--folder", type=Path, help="where to write while measuring (default: the system's temporary folder)"
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    began = time.monotonic()
    busy = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="streambank-bench-", dir=options.folder))
    try:
        tables = {
            workload.name: copies.measure(workload.scaled(options.scale), folder, options.rounds, _say)
            for workload in (LARGE, SMALL)
        }
        cost = running.measure(folder, options.stretches, options.stretch_seconds, _say)
        rates = executors.measure(folder, options.scale, _say)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    arguments = shlex.join(sys.argv[1:] if argv is None else argv)
    command = f'make bench ARGS="{arguments}"' if arguments else "make bench"
    text = report(tables, cost, rates, options.rounds, command, time.monotonic() - began, busy)
    options.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def report(
    tables: dict[str, list[Measured]],
    cost: Cost,
    rates: list[Rate],
    rounds: int,
    command: str,
    seconds: float,
    busy: float,
) -> str:
    """The page that is kept: compare ratios, not seconds."""
    lines = [
        "# Figures",
        "",
        f"Made by `{command}` on {datetime.now(UTC):%Y-%m-%d} in {seconds:.0f} s, on {machine()}.",
        "",
        f"Medians of {rounds} rounds. In every round all work on the same data, on one file system, with the",
        "source in the page cache and everything dirty written back before. `cp -r` copies the whole",
        "checkpoint, promises nothing about what reaches the disk, and is no savepoint; a take flushes what",
        "it writes. Compare the ratios: seconds are those of one machine, whose load average was",
        f"{busy:.1f} before the first round (0 is a quiet one; on a busy one the figures scatter).",
        "",
    ]
    for name, measured in tables.items():
        lines += [f"## {name.capitalize()}: {measured[0].read_bytes / MIB:,.0f} MiB", ""]
        lines += ["| | seconds | times `cp -r` | moved |", "|---|---:|---:|---:|"]
        for one in measured:
            moved = "" if one.moved_bytes is None else f"{one.moved_bytes / MIB:,.1f} MiB"
            lines.append(f"| {one.what} | {one.seconds:.3f} | {one.ratio:.2f} | {moved} |")
        lines.append("")
    change = 100 * (cost.taking_ms / cost.quiet_ms - 1)
    lines += [
        "## A running query, with and without back-to-back takes",
        "",
        "Counts per key in RocksDB with changelog, batches as fast as they go, on the cores the takes use.",
        "",
        "| | without | with |",
        "|---|---:|---:|",
        f"| median batch | {cost.quiet_ms:.0f} ms | {cost.taking_ms:.0f} ms ({change:+.1f} %) |",
        f"| batches | {cost.quiet_batches} | {cost.taking_batches} |",
        "",
        f"{cost.takes} savepoints were taken without a pause, {cost.take_seconds:.2f} s each (median), with",
        f"{cost.replans} re-plans. Stretches without takes differed by up to {cost.noise_ms:.0f} ms.",
        "",
        *executors.table(rates),
    ]
    return "\n".join(lines)


def machine() -> str:
    """What it ran on, in one line."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    kernel = platform.release().split("-")[0]
    return (
        f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {kernel} {platform.machine()}, "
        f"Python {platform.python_version()}, PySpark {metadata.version('pyspark')}, "
        f"BLAKE3 {metadata.version('blake3')}"
    )


if __name__ == "__main__":
    sys.exit(main())
