"""What took how long in a run of the suite: by test, by file, and by the worker that had it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import pytest

SHOWN = 80
CPU = "cpu_s"


class Processor:
    """What each step of a test uses of the processors: this process, and processes of it that have ended.

    What still runs (a JVM that later tests share, a driver that was left to itself) does not count.
    """

    def __init__(self) -> None:
        self._before_s = _used_s()

    def note(self, report: pytest.TestReport) -> None:
        """Write down what was used since the last step."""
        now_s = _used_s()
        setattr(report, CPU, round(now_s - self._before_s, 2))
        self._before_s = now_s


def _used_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def table(reports: Iterable[pytest.TestReport]) -> str:
    """The slowest setups, calls and teardowns, the slowest files, and what each worker was busy with.

    Seconds of the clock, and then of the processors: only these count where the machine had other work.
    """
    steps: dict[str, list[float]] = {}
    files: dict[str, list[float]] = {}
    workers: dict[str, list[float]] = {}
    for report in reports:
        took = (report.duration, float(getattr(report, CPU, 0.0)))
        places = (f"{report.when:<8} {report.nodeid}", report.nodeid.partition("::")[0], _worker(report))
        for sums, place in zip((steps, files, workers), places, strict=True):
            clock_s, cpu_s = sums.get(place, (0.0, 0.0))
            sums[place] = [clock_s + took[0], cpu_s + took[1]]
    parts = {"Workers": workers, "Files": files, "Tests": steps}
    return "\n".join(f"{name}\n{chr(10).join(_slowest(sums))}\n" for name, sums in parts.items())


def _slowest(sums: Mapping[str, Sequence[float]]) -> Sequence[str]:
    slowest = sorted(sums.items(), key=lambda one: tuple(one[1]), reverse=True)[:SHOWN]
    return [f"{clock_s:9.2f} s  {cpu_s:9.2f} s  {what}" for what, (clock_s, cpu_s) in slowest]


def _worker(report: pytest.TestReport) -> str:
    node = getattr(report, "node", None)
    return str(node.gateway.id) if node is not None else "one process"
