"""Executors without Spark: tasks go out as lines and come back as lines, as often as a test wants."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streambank.core.errors import ConflictError
from streambank.work.executor import O, T, Threads, Work
from streambank.work.plan_lines import read_error, run_portion, write_plan

Attempt = Callable[[str, str], list[str]]
"""Does one portion: what `run_portion` does, or what a test makes of it."""


@dataclass(slots=True)
class PortionExecutor:
    """Does every portion through its lines, as machines elsewhere do.

    Attributes:
        times: How often every portion is done; all attempts of all portions are mixed up.
        plans: The plans, header first.
    """

    folder: Path
    times: int = 1
    at_once: int = 1
    attempt: Attempt = run_portion
    plans: list[list[str]] = field(default_factory=list)

    def run(self, work: Work[T, O], tasks: Sequence[T], done: Callable[[T, O], None]) -> None:
        Threads(2).run(work, [task for task in tasks if not work.is_portable(task)], done)
        far = [task for task in tasks if work.is_portable(task)]
        if not far:
            return
        path = self.folder / f"plan-{len(self.plans)}.jsonl"
        write_plan(path, work, far, 2)
        header, *portions = path.read_text().splitlines()
        self.plans.append([header, *portions])
        attempts = [*portions] * self.times
        random.Random(len(portions)).shuffle(attempts)
        with ThreadPoolExecutor(self.at_once) as pool:
            reports = list(pool.map(lambda portion: (portion, self.attempt(header, portion)), attempts))
        moved = None
        counted: set[str] = set()
        waiting = set(range(len(far)))
        for portion, lines in reports:
            if portion in counted:
                continue  # Spark takes the first attempt that ends
            counted.add(portion)
            for line in map(json.loads, lines):
                moved = self._take(line, work, far, waiting, done) or moved
        work.done_elsewhere()
        if moved is not None:
            raise moved
        assert not waiting

    def _take(
        self,
        line: dict[str, Any],
        work: Work[T, O],
        tasks: Sequence[T],
        waiting: set[int],
        done: Callable[[T, O], None],
    ) -> ConflictError | None:
        if "task" in line:
            waiting.remove(line["task"])
            task = tasks[line["task"]]
            done(task, work.read_outcome(task, line["outcome"]))
        elif "counts" in line:
            work.absorb(line["counts"])
        else:
            error = read_error(line["error"])
            if not isinstance(error, ConflictError):
                raise error
            return error
        return None
