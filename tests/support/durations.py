"""What took how long in a run of the suite: by test, by file, and by the worker that had it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

SHOWN = 80


def table(reports: Iterable[pytest.TestReport]) -> str:
    """The slowest setups, calls and teardowns, the slowest files, and what each worker was busy with.

    Seconds of the clock: where the machine had other work, too, they say little.
    """
    steps: list[tuple[float, str]] = []
    files: Counter[str] = Counter()
    workers: Counter[str] = Counter()
    for report in reports:
        steps.append((report.duration, f"{report.when:<8} {report.nodeid}"))
        files[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]  # seconds
        workers[_worker(report)] += report.duration  # type: ignore[assignment]
    parts = {
        "Workers": _slowest((seconds, worker) for worker, seconds in workers.items()),
        "Files": _slowest((seconds, file) for file, seconds in files.items()),
        "Tests": _slowest(steps),
    }
    return "\n".join(f"{name}\n{chr(10).join(lines)}\n" for name, lines in parts.items())


def _slowest(steps: Iterable[tuple[float, str]]) -> Sequence[str]:
    return [f"{seconds:9.2f} s  {what}" for seconds, what in sorted(steps, reverse=True)[:SHOWN]]


def _worker(report: pytest.TestReport) -> str:
    node = getattr(report, "node", None)
    return str(node.gateway.id) if node is not None else "one process"
