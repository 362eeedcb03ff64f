"""Take, verify and restore, each against a plain copy of the same files in the same run."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.workloads import Workload, add_batch, build
from streambank.recovery.restore import restore
from streambank.savepoint.repository import Repository
from streambank.savepoint.take import take
from streambank.savepoint.verify import verify
from streambank.storage import open_store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the table.

    Attributes:
        what: What was done.
        seconds: The median of the rounds.
        copy_seconds: The median of `cp -r` of the same checkpoint, in the same rounds.
        moved_bytes: Bytes that were written into the repository (takes only).
        read_bytes: Bytes of the savepoint.
    """

    what: str
    seconds: float
    copy_seconds: float
    moved_bytes: int | None
    read_bytes: int

    @property
    def ratio(self) -> float:
        """Time against `cp -r`."""
        return self.seconds / self.copy_seconds


def measure(workload: Workload, folder: Path, rounds: int, say: Callable[[str], None]) -> list[Measured]:
    """Measure one workload.

    Args:
        workload: What to measure with.
        folder: Where to write; on the file system that is to be measured.
        rounds: How often; medians are reported.
        say: Told about each round.
    """
    times: dict[str, list[float]] = {}
    moved: dict[str, int] = {}
    size_bytes = 0
    for number in range(rounds):
        say(f"{workload.name}: round {number + 1} of {rounds}")
        one = _round(workload, folder / "round")
        size_bytes = one.size_bytes
        moved = one.moved_bytes
        for what, seconds in one.seconds.items():
            times.setdefault(what, []).append(seconds)
    copy_seconds = statistics.median(times["cp -r"])
    return [
        Measured(what, statistics.median(seconds), copy_seconds, moved.get(what), size_bytes)
        for what, seconds in times.items()
    ]


@dataclass(slots=True)
class Round:
    """What one round gave: seconds and moved bytes by what was done."""

    seconds: dict[str, float] = field(default_factory=dict)
    moved_bytes: dict[str, int] = field(default_factory=dict)
    size_bytes: int = 0

    def timed(self, what: str, work: Callable[[], T]) -> T:
        """Do it once what came before is written back, and note how long it took."""
        os.sync()
        started = time.perf_counter()
        result = work()
        self.seconds[what] = time.perf_counter() - started
        return result


def _round(workload: Workload, folder: Path) -> Round:
    one = Round()
    source, copy, target = folder / "checkpoint", folder / "copy", folder / "restored"
    build(source, workload)
    one.timed("cp -r", lambda: subprocess.run(["cp", "-r", str(source), str(copy)], check=True))
    repository = Repository.open(open_store(folder / "repository"), create=True)
    full = one.timed("take, full", lambda: take(open_store(source), repository, "bench"))
    add_batch(source, workload, workload.first_batch + 1)
    changed = one.timed("take, 2 % changed", lambda: take(open_store(source), repository, "bench"))
    unchanged = one.timed("take, unchanged", lambda: take(open_store(source), repository, "bench"))
    report = one.timed(
        "verify, full", lambda: verify(repository, "bench", changed.savepoint, "full", record=False)
    )
    if not report.ok or not unchanged.already_there:
        raise RuntimeError("the savepoint does not hold: the figures would mean nothing")
    one.timed("restore", lambda: restore(repository, changed.savepoint, job="bench", into=open_store(target)))
    one.moved_bytes = {
        "take, full": full.new_bytes,
        "take, 2 % changed": changed.new_bytes,
        "take, unchanged": unchanged.new_bytes,
    }
    one.size_bytes = full.bytes
    shutil.rmtree(folder)
    return one
