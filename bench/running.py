"""What back-to-back takes cost a running query: its median batch time with and without them, in one run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streambank.errors import NotFoundError
from streambank.savepoint.repository import Repository
from streambank.savepoint.take import take
from streambank.storage import open_store

ROOT = Path(__file__).resolve().parent.parent
WARM_UP_BATCHES = 30
START_WITHIN_S = 180.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Median batch times in milliseconds.

    Attributes:
        quiet_ms: Without takes.
        taking_ms: While takes follow each other without a pause.
        quiet_batches: Batches that the first figure rests on.
        taking_batches: Batches that the second rests on.
        takes: Savepoints that were taken, each of another batch.
        take_seconds: The median of their times.
        replans: How often Spark's cleaning made one of them plan again.
        noise_ms: The largest difference between two quiet stretches of the same run.
    """

    quiet_ms: float
    taking_ms: float
    quiet_batches: int
    taking_batches: int
    takes: int
    take_seconds: float
    replans: int
    noise_ms: float


def measure(folder: Path, stretches: int, stretch_s: float, say: Callable[[str], None]) -> Cost:
    """Alternate stretches without and with takes, so that a slow minute of the machine meets both.

    Args:
        folder: Where checkpoint and repository go.
        stretches: How many of each kind.
        stretch_s: How long each lasts.
        say: Told about each stretch.
    """
    checkpoint, durations = folder / "running", folder / "durations"
    command = [sys.executable, "-m", "bench.query", str(checkpoint), str(durations)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (
        (folder / "query.log").open("wb") as log,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log
        ) as query,
    ):
        try:
            _wait_for_batches(durations, WARM_UP_BATCHES, query, folder / "query.log")
            return _alternate(folder, checkpoint, durations, stretches, stretch_s, say)
        finally:
            assert query.stdin is not None
            query.stdin.close()
            try:
                query.wait(60)
            except subprocess.TimeoutExpired:
                query.kill()


def _alternate(
    folder: Path,
    checkpoint: Path,
    durations: Path,
    stretches: int,
    stretch_s: float,
    say: Callable[[str], None],
) -> Cost:
    repository = Repository.open(open_store(folder / "running-repository"), create=True)
    quiet: list[list[int]] = []
    taking: list[int] = []
    take_seconds: list[float] = []
    replans = 0
    for number in range(stretches):
        say(f"running query: stretch {number + 1} of {stretches}, {stretch_s:.0f} s without and with takes")
        before = len(_read(durations))
        time.sleep(stretch_s)
        middle = len(_read(durations))
        quiet.append(_read(durations)[before:middle])
        until = time.monotonic() + stretch_s
        while time.monotonic() < until:
            try:
                result = take(open_store(checkpoint), repository, "running")
            except NotFoundError:
                continue
            if not result.already_there:
                take_seconds.append(result.seconds)
                replans += result.replans
        taking += _read(durations)[middle:]
    medians = [statistics.median(one) for one in quiet]
    return Cost(
        quiet_ms=statistics.median([duration for one in quiet for duration in one]),
        taking_ms=statistics.median(taking),
        quiet_batches=sum(map(len, quiet)),
        taking_batches=len(taking),
        takes=len(take_seconds),
        take_seconds=statistics.median(take_seconds),
        replans=replans,
        noise_ms=max(medians) - min(medians),
    )


def _read(durations: Path) -> list[int]:
    lines = durations.read_text(encoding="utf-8").splitlines() if durations.exists() else []
    return [int(line.split()[1]) for line in lines]


def _wait_for_batches(durations: Path, count: int, query: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_WITHIN_S
    while len(_read(durations)) < count:
        if query.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the query does not run: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)
