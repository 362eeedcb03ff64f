"""The same take and verification by threads, and by Spark executors of one and of two workers of one core."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.workloads import MB, LargeFiles
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.work.executor import Executor, Pace, Threads
from streambank.work.pace import Step
from streambank_spark.submit.executor import SparkExecutor
from tests.support.spark.standalone_cluster import running_cluster

FILE_BYTES = 8 * MB


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast one verb was.

    Attributes:
        who: Who did it.
        what: The verb.
        start_s: Until the first outcome was there: an application that starts, a cluster that is asked.
        work_s: From then to the last.
        size_bytes: Bytes that were done in that time.
    """

    who: str
    what: str
    start_s: float
    work_s: float
    size_bytes: int

    @property
    def bytes_per_s(self) -> float:
        """The rate once it runs."""
        return self.size_bytes / self.work_s


class _Watch:
    """Notes when the first outcome came, and when the last."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.first: tuple[float, int] | None = None
        self.last: tuple[float, int] = (0.0, 0)

    def __call__(self, step: Step) -> None:
        if step.phase in ("copy", "check") and step.bytes_done:
            now = (time.perf_counter(), step.bytes_done)
            self.first = self.first or now
            self.last = now

    def rate(self, who: str, what: str) -> Rate:
        if self.first is None or self.first[0] == self.last[0]:
            raise RuntimeError(f"{what} by {who} came in one piece: there is no rate in it")
        work_s = self.last[0] - self.first[0]
        return Rate(who, what, self.first[0] - self.began, work_s, self.last[1] - self.first[1])


def measure(folder: Path, scale: float, say: Callable[[str], None]) -> list[Rate]:
    """Measure take and full verification.

    Args:
        folder: Where to write; the checkpoint, the repositories and the cluster's files.
        scale: Size of the files, against the usual one.
        say: Called at each step.
    """
    place = folder / "executors"
    LargeFiles(partitions=24, files=4, file_bytes=max(1, int(FILE_BYTES * scale))).build(place / "checkpoint")
    rates: list[Rate] = []
    for who, workers in (("threads of one process", 0), ("one worker", 1), ("two workers", 2)):
        say(f"executors: {who}")
        with _executor(place, workers) as executor:
            rates += _measure_one(place, who, executor)
    shutil.rmtree(place)
    return rates


@contextmanager
def _executor(place: Path, workers: int) -> Iterator[Executor]:
    if not workers:
        yield Threads(4)
        return
    logs = place / f"cluster-{workers}"
    logs.mkdir()
    with running_cluster(logs, workers=workers) as cluster:
        yield SparkExecutor(cluster.master, cluster.conf | {"spark.pyspark.python": sys.executable})


def _measure_one(place: Path, who: str, executor: Executor) -> list[Rate]:
    repository = Repository.open(open_store(place / "repository"), create=True)
    taking, verifying = _Watch(), _Watch()
    result = take(
        TakeRequest(open_store(place / "checkpoint"), repository, "bench"),
        pace=Pace(executor=executor, progress=taking),
    )
    verifying.began = time.perf_counter()
    report = verify(
        repository,
        "bench",
        result.savepoint,
        "full",
        record=False,
        pace=Pace(executor=executor, progress=verifying),
    )
    if not report.ok:
        raise RuntimeError("the savepoint does not hold: the figures would mean nothing")
    shutil.rmtree(place / "repository")
    return [taking.rate(who, "take, full"), verifying.rate(who, "verify, full")]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure only this, and print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.executors", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the files, against the usual one")
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="streambank-bench-"))
    try:
        for one in measure(folder, options.scale, print):
            print(f"{one.who}: {one.what}: {one.start_s:.1f} s, then {one.bytes_per_s / MB:,.0f} MB/s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
