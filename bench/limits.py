"""What the machine itself can do, measured beside the rest, and what a row of figures was waiting for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from streambank.repository.digest import DEFAULT_DIGEST, new_hasher

MIB = 1 << 20
CHUNK = os.urandom(MIB)


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates in MB/s.

    Attributes:
        cores: Processors.
        hash_one: Hashing in memory, one thread.
        hash_all: Hashing in memory, a thread for each processor.
        cached: Writing a file into the page cache.
        disk: Writing a file until it is on the disk.
    """

    cores: int
    hash_one: float
    hash_all: float
    cached: float
    disk: float

    def reason(self, cores: float, others: float = 0.0) -> str:
        """What a row waited for.

        Args:
            cores: How many processors it kept busy.
            others: For which share of its time somebody on the machine waited for a processor.
        """
        busy = f"{cores:.1f} of {self.cores} processors"
        if cores >= 0.8 * self.cores:
            return f"processors: {busy}"
        if others > 0.5:
            return f"other work on this machine: got {busy}"
        if cores >= 0.75:
            return f"one processor, a file at a time: {busy}"
        return f"the disk: {busy}"


def waiting_s() -> float:
    """For how long somebody on this machine has waited for a processor so far; 0 where nobody tells."""
    try:
        first, *_ = Path("/proc/pressure/cpu").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return int(first.rpartition("total=")[2]) / 1e6


def measure(folder: Path, mib: int = 512) -> Limits:
    """Measure, in a folder on the file system that the rest is measured on.

    Args:
        folder: Where.
        mib: How much is written.
    """
    cores = len(os.sched_getaffinity(0))
    path = folder / "limits"
    os.sync()

    def write(sync: bool) -> None:
        with path.open("wb") as file:
            for _ in range(mib):
                file.write(CHUNK)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if sync:
            path.unlink()

    def hash_some() -> None:
        hasher = new_hasher(DEFAULT_DIGEST)
        for _ in range(mib):
            hasher.update(CHUNK)

    def hash_in_threads() -> None:
        with ThreadPoolExecutor(cores) as pool:
            for done in [pool.submit(hash_some) for _ in range(cores)]:
                done.result()

    one = _rate(mib, hash_some)
    many = _rate(mib * cores, hash_in_threads)
    cached = _rate(mib, lambda: write(False))
    path.unlink()
    os.sync()
    return Limits(cores, one, many, cached, _rate(mib, lambda: write(True)))


def _rate(mib: int, work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return mib * MIB / 1e6 / (time.perf_counter() - started)
