"""Waiting for what comes, with a deadline; and a clock that needs no waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

DEADLINE_S = 280.0


class FakeClock:
    """A monotonic clock that moves when somebody sleeps on it, or is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def at_most_of_a_processor(seconds: float) -> Iterator[None]:
    """What this thread computes in a `with` takes no more: other work on the machine does not count."""
    began_s = time.thread_time()
    yield
    took_s = time.thread_time() - began_s
    assert took_s < seconds, f"it took {took_s:.1f} s of a processor, not {seconds:.1f} s at most"


def poll(look: Callable[[], T], *, timeout_s: float = 20.0) -> T:
    """The first true answer; fails after a while."""
    deadline = time.monotonic() + timeout_s
    while True:
        if answer := look():
            return answer
        assert time.monotonic() < deadline, f"still {answer!r} after {timeout_s} s"
        time.sleep(0.01)


def wait_for(what: str, look: Callable[[], Any], within_s: float = DEADLINE_S) -> Any:
    """The first true thing that `look` gives, looking ten times a second until the deadline."""
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {within_s:.0f} s")
        time.sleep(0.1)
