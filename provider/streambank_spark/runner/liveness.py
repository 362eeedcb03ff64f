"""Signs of progress: how long ago each query last committed a batch, or found that there was nothing to do.

The heartbeat carries that (docs/formats/job.md), so that whoever looks on can tell an idle query from one
that hangs. The clock counts only while this process runs: one that was frozen for an hour has not watched its
queries stand still for an hour.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from streambank.job.health import AwakeClock
from streambank_spark.runner.queries import Managed
from streambank_spark.runner.stop import has_triggered

SETTLE_S = 10.0
"""An application that does not wait for its queries has started what it starts so long after the last of them
has had its first trigger."""
QUIET_S = 5.0
"""Spark is asked for a query's status only when it has shown no progress for so long."""


class Signs:
    """When each query last gave a sign of progress; safe to use from several threads."""

    def __init__(self, clock: AwakeClock | None = None) -> None:
        self._clock = clock or AwakeClock()
        self._lock = threading.Lock()
        self._any_at = self._clock.now()
        self._at: dict[str, float] = {}
        self._idle: dict[str, bool] = {}
        self._waited: dict[str, bool] = {}
        self._newest: dict[str, str] = {}
        self._failing: set[str] = set()

    def made(self, name: str, *, idle: bool = False) -> None:
        """A query has committed a batch, or found (`idle`) that there is nothing to do."""
        now = self._clock.now()
        with self._lock:
            self._failing.discard(name)
            self._at[name] = self._any_at = now
            self._idle[name] = idle

    def begun(self, name: str) -> None:
        """A query was started: a new beginning, but not for one that its application starts as it fails."""
        if name not in self._failing:
            self.made(name)

    def ended(self, name: str, *, failed: bool) -> None:
        """A query has ended; well, it had nothing more to do."""
        if failed:
            self._failing.add(name)
        else:
            self.made(name, idle=True)

    def told_idle(self, name: str, progress: str | None) -> None:
        """Spark has told of a trigger that found nothing to do; it tells of the same one again and again.

        Args:
            progress: Spark's newest progress of such a trigger; None where there is none.
        """
        if progress is not None and self._newest.get(name) != progress:
            self._newest[name] = progress
            self.made(name, idle=True)

    def look(self, managed: Managed) -> None:
        """Ask Spark where a quiet query is: one that goes from a trigger to the next wait makes progress.

        A query without an interval begins its next trigger at once, so one that is seen waiting has just
        found nothing to do. One with an interval may wait for long, and rightly so; but where it waits for
        much longer than that, as after a clock went back, nothing happens any more, and waiting is no sign.
        """
        if self.still_s(managed.name) < QUIET_S:
            self._waited.pop(managed.name, None)
            return
        waits = has_triggered(managed.query.status)
        waited = self._waited.get(managed.name)
        self._waited[managed.name] = waits
        if waits and (waited is False or managed.trigger_s == 0.0):
            self.made(managed.name, idle=True)

    def still_s(self, name: str | None = None) -> float:
        """For how long a query (any one of them, for None) has given no sign, in seconds."""
        now = self._clock.now()
        with self._lock:
            return now - (self._any_at if name is None else self._at.get(name, self._any_at))

    def describe(self, managed: Managed) -> Mapping[str, Any]:
        """What the heartbeat says of one query."""
        return {
            "still_s": round(self.still_s(managed.name), 1),
            "idle": self._idle.get(managed.name, False),
            "trigger_s": managed.trigger_s,
            "failed": managed.failure is not None,
        }


class Settling:
    """Whether the application has started what it starts; safe to use from several threads.

    Most wait for their queries in the end, for as long as those run. Of others it can only be said that all
    declared ones have begun, and that for a while nothing was refused.

    Args:
        clock: A clock that stands still while this process does.
    """

    def __init__(self, queries: Collection[str], clock: AwakeClock | None = None) -> None:
        self._clock = clock or AwakeClock()
        self._lock = threading.Lock()
        self._missing = set(queries)
        self._begun_at = self._clock.now()
        self._waits = False
        self._over = False

    def triggered(self, query: str) -> None:
        """A query has had its first trigger, or has ended; that it begins again tells nothing new."""
        now = self._clock.now()
        with self._lock:
            if query in self._missing:
                self._missing.remove(query)
                self._begun_at = now

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The application waits for its queries; only where its main thread does, that is a sign."""
        main = threading.current_thread() is threading.main_thread()
        self._waits = self._waits or main
        try:
            yield
        finally:
            self._waits = self._waits and not main

    def over(self) -> None:
        """The application has ended."""
        self._over = True

    def state(self) -> Literal["starting", "settled", "over"]:
        """What the heartbeat says of the application."""
        if self._over:
            return "over"
        now = self._clock.now()
        with self._lock:
            quiet = not self._missing and now - self._begun_at >= SETTLE_S
            return "settled" if self._waits or quiet else "starting"
