"""`python -m bench.stores`: state stores beside each other; writes bench/STORES.md and what advice reads.

It needs a JDK (`jcmd`). Parts can be measured alone (`python -m bench.stores memory`), and so can numbers of
keys (`--keys 10000000 --heap-mb 8000`); the figures are kept in `--raw`, and the page is made of what is
there. For a look: `python -m bench.stores --keys 1000 --rounds 1 --memory-keys 5000 --raw /tmp/raw.json
--output /tmp/page.md --measurements /tmp/measurements.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.report import asked, machine
from bench.stores import memory
from bench.stores.kinds import KINDS
from bench.stores.page import measurements, page, with_earlier, with_summary
from bench.stores.rooms import Plan, measure
from bench.tree import environment
from streambank.advice.measured import FILE

RESULTS = Path(__file__).resolve().parent.parent / "STORES.md"
GUIDE = RESULTS.parent.parent / "docs/guide/state-stores.md"
PARTS = ("stores", "memory", "rows")
_OF = {
    "stores": ("keys", "update_share", "stores", "rounds", "batches", "partitions", "heap_mb", "minutes"),
    "memory": ("memory_keys", "heap_mb"),
    "rows": (),
}
"""Options of each part."""


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.stores", description=__doc__)
    parser.add_argument("parts", nargs="*", default=[*PARTS], help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--update-share", type=float, nargs="+", default=[0.01, 0.1])
    parser.add_argument("--stores", nargs="+", choices=KINDS, default=[*KINDS])
    parser.add_argument("--rounds", type=int, default=3, help="how often at most")
    parser.add_argument("--batches", type=int, default=5, help="of each share in a round")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--heap-mb", type=int, default=2048, help="of each JVM, resident from its start")
    parser.add_argument("--memory-keys", type=int, default=400_000)
    parser.add_argument("--minutes", type=float, default=20.0, help="no round begins that would end later")
    parser.add_argument("--folder", type=Path, help="where to write while measuring")
    parser.add_argument("--raw", type=Path, help="keep the figures here, and use those of other parts")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--measurements", type=Path, default=FILE, help="what `streambank advise` reads")
    parser.add_argument("--page", action="store_true", help="measure nothing: the page of what --raw has")
    options = parser.parse_args(argv)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part: {', '.join(sorted(unknown))}")
    options.given = {
        part: asked(parser, {name: getattr(options, name) for name in names}) for part, names in _OF.items()
    }
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the page."""
    options = arguments(argv)
    if shutil.which("jcmd") is None:
        print(
            "jcmd is missing: install a JDK (Debian: apt-get install openjdk-17-jdk-headless)",
            file=sys.stderr,
        )
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what it started ends with it
    kept = options.raw
    raw: dict[str, Any] = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    folder = Path(tempfile.mkdtemp(prefix="streambank-bench-", dir=options.folder))
    try:
        for part in () if options.page else options.parts:
            began, load = time.monotonic(), os.getloadavg()[0]
            measured = {
                "found": _part(part, options, folder / part),
                "given": options.given[part],
                "day": f"{datetime.now(UTC):%Y-%m-%d}",
                "seconds": round(time.monotonic() - began),
                "load": round(load, 1),
                "machine": machine(),
            }
            raw[part] = measured if part != "stores" else with_earlier(measured, raw.get(part))
            if kept is not None:
                kept.write_text(json.dumps(raw), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if missing := set(PARTS) - set(raw):
        print(f"No page: {', '.join(sorted(missing))} was not measured.", file=sys.stderr)
        return 0
    found = measurements(raw)
    options.measurements.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.output == RESULTS:
        GUIDE.write_text(with_summary(GUIDE.read_text(encoding="utf-8"), found), encoding="utf-8")
    text = page(raw, found)
    options.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


def _part(part: str, options: argparse.Namespace, folder: Path) -> Any:
    folder.mkdir()
    if part == "memory":
        return {
            "keys": options.memory_keys,
            "variants": memory.measure(folder, options.memory_keys, options.heap_mb, _say),
        }
    if part == "rows":
        command = [sys.executable, "-m", "bench.stores.live_rows", str(folder)]
        done = subprocess.run(command, env=environment(), check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout.splitlines()[-1])
    plan = Plan(
        options.stores,
        sorted(options.keys),
        sorted(options.update_share),
        options.rounds,
        options.batches,
        options.partitions,
        options.heap_mb,
    )
    cells, rounds = measure(plan, folder, time.monotonic() + 60 * options.minutes, _say)
    return {
        "partitions": plan.partitions,
        "batches": plan.batches,
        "cells": {
            kind: {str(keys): cell.figures(plan.partitions) for keys, cell in each.items()}
            for kind, each in cells.items()
        },
        "row_bytes": [
            cell.row_bytes() for each in cells.values() for cell in each.values() if cell.row_bytes()
        ],
        "rounds": rounds,
    }


def _say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
