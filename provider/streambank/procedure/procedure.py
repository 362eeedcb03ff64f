"""One run of a long operation: what is asked for, the seconds of its steps, and what it leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from streambank.control.control import JobControl
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.work.executor import DEFAULT_PACE, Pace

Say = Callable[[str], None]
"""Called when a step begins, in words."""


def quiet(words: str) -> None:
    """Say nothing."""


class ProcedureRequest(Protocol):
    """What every request has: the job as it is declared now, who asks, and why."""

    @property
    def job(self) -> Job: ...

    @property
    def by(self) -> Mapping[str, str]: ...

    @property
    def why(self) -> str: ...


R = TypeVar("R", bound=ProcedureRequest)


class Procedure(Generic[R]):
    """One run of a long operation."""

    def __init__(self, request: R, say: Say = quiet, pace: Pace = DEFAULT_PACE) -> None:
        self.request, self.say, self.pace = request, say, pace
        self.job = request.job
        self.started_at = utc_now()
        self.steps: dict[str, float] = {}
        self.last_step = ""
        self.warnings: list[str] = []
        self._began_s, self._before_s = time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        """How long it has taken until now, with what an earlier run of it has."""
        return self._before_s + time.monotonic() - self._began_s

    def go_on(self, steps: Mapping[str, float], seconds: float) -> None:
        """Count on from an earlier run of the same operation."""
        self.steps = dict(steps)
        self._began_s, self._before_s = time.monotonic(), seconds

    @contextmanager
    def step(self, name: str, words: str) -> Iterator[None]:
        """A step, whose seconds are reported."""
        began_s, self.last_step = time.monotonic(), name
        self.say(words)
        try:
            yield
        finally:
            self.steps[name] = self.steps.get(name, 0.0) + time.monotonic() - began_s

    def leave(self, control: JobControl, kind: str, **facts: Any) -> None:
        """Leave an event behind, with who asked and why."""
        control.record_event(kind, **facts, by=dict(self.request.by), why=self.request.why)
