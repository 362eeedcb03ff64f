"""`python -m bench.sla`: what measuring and judging cost; writes bench/SLA.md with command and machine.

Each room is a separate process. For a look: `python -m bench.sla --records 200000 --jobs 50 --stretches 2`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.report import asked, machine, paragraph
from bench.tree import environment

RESULTS = Path(__file__).resolve().parent / "SLA.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.sla", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000, help="of the long history; 0: none")
    parser.add_argument("--jobs", type=int, default=1000, help="that are judged; 0: none")
    parser.add_argument("--stretches", type=int, default=6, help="of a running query, each kind; 0: none")
    parser.add_argument("--stretch-seconds", type=float, default=15.0)
    parser.add_argument("--parts", type=Path, help="keep what each room says here, and use what is there")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    began, load = time.monotonic(), os.getloadavg()[0]
    rooms = Rooms(options.parts)
    found: dict[str, Any] = {}
    if options.stretches:
        with tempfile.TemporaryDirectory(prefix="streambank-bench-") as folder:
            stretch = str(options.stretch_seconds)
            found["query"] = rooms.room("measured_query", folder, str(options.stretches), stretch)
    if options.jobs:
        found["jobs"] = rooms.room("judging", str(options.jobs))
        found["run"] = rooms.room("judging_run", str(options.jobs))
    if options.records:
        found["history"] = rooms.room("histories", str(options.records))
    arguments = asked(parser, vars(options), without=("parts", "output"))
    seconds = rooms.seconds + time.monotonic() - began
    made = f"Made by `python -m bench.sla{arguments}` on {datetime.now(UTC):%Y-%m-%d} in {seconds:.0f} s, on "
    quiet = f"The load average was {load:.1f} before it."
    kept = "Rooms were run one by one, beside other work: trust seconds of a processor, not those of a clock."
    text = page(f"{made}{machine()}. {kept if rooms.seconds else quiet}", found)
    options.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


class Rooms:
    """Runs each room in a process, or takes what it said before.

    Args:
        folder: Where what was said is kept; None for nowhere.

    Attributes:
        seconds: How long it took before.
    """

    def __init__(self, folder: Path | None) -> None:
        self.seconds = 0.0
        self._folder = folder

    def room(self, module: str, *arguments: str, name: str = "") -> dict[str, Any]:
        """What a room says; kept under a name, where it is asked more than one thing."""
        kept = None if self._folder is None else self._folder / f"{name or module}.json"
        if kept is not None and kept.exists():
            said: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
            self.seconds += said.get("took_s", 0.0)
            return said
        print(f"{module} {' '.join(arguments)}", file=sys.stderr, flush=True)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{module}", *arguments],
            env=environment(SPARK_LOCAL_IP="127.0.0.1"),
            check=True,
            stdout=subprocess.PIPE,
        )
        said = json.loads(done.stdout.splitlines()[-1])
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps({**said, "took_s": time.monotonic() - began}), encoding="utf-8")
        return said


def page(made: str, found: Mapping[str, Any]) -> str:
    """The page, as Markdown."""
    lines = ["# Figures of measuring and judging", *paragraph(made)]
    if "query" in found:
        lines += ["", *_query(found["query"])]
    if "jobs" in found:
        lines += ["", *_jobs(found["jobs"])]
    if "run" in found:
        lines += ["", *_run(found["run"])]
    if "history" in found:
        lines += ["", *_history(found["history"])]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def _query(said: Mapping[str, Any]) -> list[str]:
    arms: dict[bool, list[list[int]]] = {True: [], False: []}
    for stretch in said["stretches"]:
        arms[stretch["measured"]].append(stretch["batches_ms"])
    pairs = [pair for pair in zip(arms[True], arms[False], strict=True) if all(pair)]
    ratios = sorted(statistics.median(ours) / statistics.median(theirs) for ours, theirs in pairs)
    quiet = [statistics.median(stretch) for stretch in arms[False] if stretch]
    lines = [
        "## A running query, with and without progress records",
        *paragraph(
            "Counts per key in RocksDB with changelog, batches as fast as they go. In every other stretch "
            "a thread does what the runner's does once a second: it takes Spark's new progress and appends "
            "it to the job's records. A ratio is of two stretches side by side."
        ),
        "| | median batch | batches | times without | lowest, highest |",
        "|---|---:|---:|---:|---:|",
    ]
    for measured, name in ((False, "without"), (True, "with progress records")):
        values = [one for stretch in arms[measured] for one in stretch]
        figures = (
            f"{statistics.median(ratios):.3f} | {ratios[0]:.2f}, {ratios[-1]:.2f}" if measured else "1.000 |"
        )
        lines.append(f"| {name} | {statistics.median(values):.0f} ms | {len(values)} | {figures} |")
    return lines + paragraph(
        f"{said['written']} records took Python {1000 * said['cpu_s'] / max(1, said['written']):.1f} ms of a "
        f"processor each. Stretches without differ among themselves: medians from {min(quiet):.0f} to "
        f"{max(quiet):.0f} ms."
    )


def _jobs(said: Mapping[str, Any]) -> list[str]:
    return [
        "## Many jobs",
        *paragraph(
            f"{said['jobs']:,} jobs, each with {said['batches']} batches in the last hour and a checkpoint "
            "that is looked into for skew: the usual objectives of all of them, one job after the other in "
            f"one process, {said['verdicts']:,} verdicts."
        ),
        "| | seconds | of a processor | a job | highest memory |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {name} | {said[f'{what}_s']:.1f} | {said[f'{what}_cpu_s']:.1f} | "
            f"{1000 * said[f'{what}_cpu_s'] / said['jobs']:.0f} ms | {said[f'{what}_mb']:.0f} MB |"
            for what, name in (("first", "the first time"), ("again", "again"))
        ),
    ]


def _run(said: Mapping[str, Any]) -> list[str]:
    result = said["result"]
    return [
        "## Many jobs in one DAG run",
        *paragraph(
            f"{said['jobs']:,} such jobs, declared in one file and judged by one task (`CheckSlaOperator`, "
            f'`jobs="all"`) of one DAG run of `airflow dags test`, Airflow\'s own start and database '
            f"included: {result['jobs']:,} judged, {result['not_judged']} could not be."
        ),
        "| | seconds | of a processor | highest memory |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {said[f'{what}_s']:.1f} | {said[f'{what}_cpu_s']:.1f} "
            f"| {said[f'{what}_mb']:.0f} MB |"
            for what, name in (("first", "the first run"), ("again", "the next one"))
        ),
    ]


def _history(said: Mapping[str, Any]) -> list[str]:
    each_us = 1e6 * (said["first_cpu_s"] - said["make_s"]) / said["records"]
    return [
        "## A long history",
        *paragraph(
            f"{said['records']:,} progress records of one query, one a second, "
            f"{said['line_bytes']:,} bytes each, judged with a trend over all of them. The first time every "
            "record is read, and its hours are kept; then the hours are. Files are made up as they are read, "
            f"which took {said['make_s']:.0f} s of the processor."
        ),
        "| | seconds | of a processor | highest memory |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {said[f'{what}_s']:,.1f} | {said[f'{what}_cpu_s']:,.1f} | "
            f"{said[f'{what}_mb']:.0f} MB |"
            for what, name in (("first", "judged the first time"), ("again", "judged again"))
        ),
        *paragraph(
            f"That is {each_us:.0f} µs of a processor for a record. Python itself takes "
            f"{said['start_mb']:.0f} MB. The verdicts "
            f"{'are the same' if said['agree'] else 'DIFFER'}; the hours take "
            f"{said['hour_bytes'] / 1e6:,.2f} MB on disk."
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
