"""What back-to-back takes cost a running query: its median batch time with and without them, in one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.tree import environment

WARM_UP_BATCHES = 20
FEWEST_BATCHES = 5
WARM_UP_S = 60.0
START_WITHIN_S = 240.0
QUIET, PLAIN, GENTLE = "without takes", "back-to-back takes", "back-to-back takes, `--gentle`"
MANNERS = {PLAIN: "plain", GENTLE: "gentle"}


@dataclass(slots=True)
class Arm:
    """One way of treating the query, over all its stretches.

    Attributes:
        name: Which.
        batches_ms: Batch times of each stretch, in milliseconds.
        take_seconds: How long each savepoint took that was new.
        asked: How often one was asked for.
        replans: How often Spark's cleaning made one of them plan again.
    """

    name: str
    batches_ms: list[list[int]] = field(default_factory=list)
    take_seconds: list[float] = field(default_factory=list)
    asked: int = 0
    replans: int = 0

    @property
    def median_ms(self) -> float:
        """The median of all batch times."""
        return statistics.median(one for stretch in self.batches_ms for one in stretch)

    @property
    def batches(self) -> int:
        """How many batches that rests on."""
        return sum(map(len, self.batches_ms))

    def ratios(self, quiet: Arm) -> list[float]:
        """Median batch time of each stretch against that of the quiet stretch beside it."""
        return [
            statistics.median(ours) / statistics.median(theirs)
            for ours, theirs in zip(self.batches_ms, quiet.batches_ms, strict=True)
            if ours and theirs
        ]


def measure(folder: Path, stretches: int, stretch_s: float, say: Callable[[str], None]) -> list[Arm]:
    """Alternate stretches without and with takes, so that a slow minute of the machine meets all of them.

    Args:
        folder: Where checkpoint and repository go.
        stretches: How many of each kind.
        stretch_s: How long each lasts.
        say: Called at each stretch.
    """
    checkpoint, durations = folder / "running", folder / "durations"
    log = folder / "query.log"
    query = [sys.executable, "-m", "bench.query", str(checkpoint), str(durations)]
    with _process(query, folder, log) as running:
        _warm_up(durations, running, log)
        repository = str(folder / "running-repository")
        taker = [sys.executable, "-m", "bench.taker", str(checkpoint), repository]
        with (
            _process([*taker, "plain"], folder, folder / "plain.log") as plain,
            _process([*taker, "gentle"], folder, folder / "gentle.log") as gentle,
        ):
            takers = {PLAIN: plain, GENTLE: gentle}
            for taking in takers.values():  # what is loaded the first time is not measured
                _take_for(taking, 1.0)
            return _alternate(takers, durations, stretches, stretch_s, say)


def _alternate(
    takers: dict[str, subprocess.Popen[bytes]],
    durations: Path,
    stretches: int,
    stretch_s: float,
    say: Callable[[str], None],
) -> list[Arm]:
    arms = [Arm(QUIET), Arm(PLAIN), Arm(GENTLE)]
    for number in range(stretches):
        say(f"running query: {number + 1} of {stretches} times {stretch_s:.0f} s without and with takes")
        first = number % len(arms)
        for arm in (*arms[first:], *arms[:first]):
            before = len(_read(durations))
            if arm.name == QUIET:
                time.sleep(stretch_s)
            else:
                answer = _take_for(takers[arm.name], stretch_s)
                arm.take_seconds += answer["seconds"]
                arm.asked += answer["asked"]
                arm.replans += answer["replans"]
            # The first batch began before the stretch.
            arm.batches_ms.append(_read(durations)[before + 1 :])
    return arms


def _take_for(taker: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
    assert taker.stdin is not None and taker.stdout is not None
    taker.stdin.write(f"{seconds}\n".encode())
    taker.stdin.flush()
    line = taker.stdout.readline()
    if not line:
        raise RuntimeError("the process that takes savepoints has ended")
    answer: dict[str, Any] = json.loads(line)
    return answer


@contextmanager
def _process(command: Sequence[str], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when its standard input does."""
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment(SPARK_LOCAL_IP="127.0.0.1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if "bench.taker" in command else out,
            stderr=out,
        ) as process,
    ):
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _read(durations: Path) -> list[int]:
    lines = durations.read_text(encoding="utf-8").splitlines() if durations.exists() else []
    return [int(line.split()[1]) for line in lines]


def _warm_up(durations: Path, query: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the query has got going: on a busy machine that is said of fewer batches."""
    began = time.monotonic()
    while (count := len(_read(durations))) < WARM_UP_BATCHES:
        waited_s = time.monotonic() - began
        if count >= FEWEST_BATCHES and waited_s > WARM_UP_S:
            return
        if query.poll() is not None or waited_s > START_WITHIN_S:
            raise RuntimeError(f"the query does not run: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)
