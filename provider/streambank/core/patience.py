"""A call that may hang: it runs in a thread of its own, and is waited for no longer than it may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

T = TypeVar("T")


class Waited(Generic[T]):
    """A call that has begun. One that never ends does not keep the process from ending.

    Attributes:
        failure: What it has raised; None while it has not.
    """

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self.failure: BaseException | None = None
        self._answers: list[T] = []
        self._call = call
        # The context says who this is to S3.
        run = copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name=name, daemon=True)
        self.began_s = time.monotonic()
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answers.append(self._call())
        except BaseException as error:
            self.failure = error

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends within so many seconds of its begin."""
        self._thread.join(max(0.0, self.began_s + seconds - time.monotonic()))
        return not self._thread.is_alive()

    def result(self) -> T:
        """What it has come to, once it has ended; raises what it has raised."""
        if self.failure is not None:
            raise self.failure
        return self._answers[0]
