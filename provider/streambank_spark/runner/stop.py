"""Stopping: requests to stop, and the one thread that fulfils them.

The steps, each after the one before has taken `force_after_s` too long:

1. Every query ends at its next batch boundary; one that waits between two triggers ends at once.
2. `query.stop()`, which abandons the running batch; it runs again after the next start.
3. SIGKILL of the JVM and of this process.

When all queries have ended by 1 or 2, the application goes on where it waited for them, and usually ends. One
that does not is interrupted like by Ctrl-C after a while, and killed after `force_after_s` more.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from pyspark.errors import StreamingQueryException

from streambank.control.processes import ProcessId
from streambank.core.python310 import UTC, parse_time
from streambank_spark.private.boundary import finish_batch_then_end
from streambank_spark.runner.queries import Managed, Queries
from streambank_spark.runner.signals import kill_driver

_log = logging.getLogger(__name__)

_STEP_S = 0.02
_DRAIN_STEP_S = 0.1
APPLICATION_GRACE_S = 10.0
"""How long an application may go on after its queries have ended, before it is interrupted."""
_ANSWER_S = 10.0
"""How much longer than its two steps a stop may take, for a JVM that answers late."""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Somebody wants a stop: `term`, `request`, or why. `drain`: once a trigger has found nothing new."""

    reason: str
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    drain: bool = False
    force_after_s: float = 60.0
    drain_timeout_s: float = 600.0
    request: int | None = None


class Journal(Protocol):
    """Where the runner's own events go."""

    def record(self, kind: str, **details: Any) -> None:
        """Leave an event behind; never raises."""


class Stopping:
    """All that has to do with the end of a driver."""

    def __init__(self, queries: Queries, journal: Journal, jvm_process: ProcessId) -> None:
        self.queries = queries
        self.journal = journal
        self.jvm_process = jvm_process
        self.forced = False
        self.interrupted = False
        self.drained: bool | None = None
        self._requests: list[StopRequest] = []
        self._changed = threading.Condition()
        self._done = threading.Event()
        self._boundary = threading.Lock()
        self._interrupting = threading.Lock()
        self._application_over = threading.Event()
        self._untold: set[str] = set()

    @property
    def asked(self) -> bool:
        return bool(self._requests)

    @property
    def requests(self) -> list[StopRequest]:
        with self._changed:
            return list(self._requests)

    def ask(self, request: StopRequest) -> None:
        """Want the driver to stop; returns at once. One without `drain` ends the wait of one with it."""
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()

    def start(self) -> None:
        """Begin to wait for requests, in a separate thread."""
        threading.Thread(target=self._fulfil, name="streambank-stop", daemon=True).start()

    def wait_done(self) -> None:
        """Return when a stop that was asked for has ended every query; at once where none was."""
        if self.asked:
            self._done.wait()

    def _fulfil(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._requests))
            first = self._requests[0]
        self.journal.record(
            "stop-asked",
            reason=first.reason,
            by=dict(first.by),
            why=first.why,
            drain=first.drain,
            force_after_s=first.force_after_s,
            request=first.request,
        )
        if first.drain:
            first = self._wait_drained(first)
        self.end_queries(first.force_after_s)
        self._done.set()
        self._end_application(first.force_after_s)

    def _wait_drained(self, first: StopRequest) -> StopRequest:
        """Wait until every query has found nothing new, or somebody wants it to stop without that."""
        deadline = time.monotonic() + first.drain_timeout_s
        asked_at = datetime.now(UTC)
        drains: dict[str, threading.Event] = {}
        while time.monotonic() < deadline:
            with self._changed:
                at_once = next((later for later in self._requests if not later.drain), None)
            if at_once is not None:
                self.drained = False
                return at_once
            running = self.queries.running()
            for managed in running:
                if managed.run_id not in drains:
                    drains[managed.run_id] = _drain(managed)
            if not self.queries.is_starting() and all(
                drains[managed.run_id].is_set() or _found_nothing_since(managed, asked_at)
                for managed in running
            ):
                self.drained = True
                return first
            time.sleep(_DRAIN_STEP_S)
        self.drained = False
        self.journal.record("drain-timed-out", after_s=first.drain_timeout_s)
        return first

    def end_queries(self, force_after_s: float) -> None:
        """End every query that runs now or is just starting, at a batch boundary if that comes in time."""
        with self._boundary:
            # A JVM that is frozen answers nothing, so the steps below would never come to their end.
            last = threading.Timer(2 * force_after_s + _ANSWER_S, self._kill, ["the JVM did not answer"])
            last.daemon = True
            last.start()
            try:
                self._end_queries(force_after_s)
            finally:
                last.cancel()

    def _end_queries(self, force_after_s: float) -> None:
        if self._wait_ended(time.monotonic() + force_after_s, at_boundary=True):
            return
        self.forced = True
        self.journal.record("stop-forced", queries=[run.name for run in self.queries.running()])
        for managed in self.queries.running():
            # It may wait for Python code of the application to return, so it gets a thread.
            threading.Thread(target=managed.query._jsq.stop, name="streambank-force", daemon=True).start()
        if self._wait_ended(time.monotonic() + force_after_s, at_boundary=False):
            return
        self.journal.record("killed", why="the queries did not stop")
        kill_driver(self.jvm_process)

    def _kill(self, why: str) -> None:
        kill_driver(self.jvm_process, lambda: self.journal.record("killed", why=why))

    def _wait_ended(self, deadline: float, *, at_boundary: bool) -> bool:
        told: set[str] = set()
        while True:
            running = self.queries.running()
            if not running and not self.queries.is_starting():
                return True
            if time.monotonic() >= deadline:
                return False
            for managed in running if at_boundary else ():
                if managed.run_id not in told and self._tell(managed):
                    told.add(managed.run_id)
            time.sleep(_STEP_S)

    def _tell(self, managed: Managed) -> bool:
        """Tell a query to end at its next boundary; False where that has to be tried again."""
        try:
            return finish_batch_then_end(managed.query) != "not-now"
        except Exception:
            # Whatever it is, the stop must go on: by force if this fails until then.
            if managed.run_id not in self._untold:
                self._untold.add(managed.run_id)
                _log.exception("Query %s could not be asked to end:", managed.name)
            return False

    def application_is_over(self) -> None:
        """The application has ended, so there is nobody to interrupt any more."""
        with self._interrupting:
            self._application_over.set()

    def _end_application(self, force_after_s: float) -> None:
        """The queries have ended; this thread lives on only as long as the process does."""
        self._application_over.wait(min(APPLICATION_GRACE_S, force_after_s))
        with self._interrupting:
            if not self._application_over.is_set():
                self.interrupted = True
                self.journal.record("application-interrupted")
                signal.pthread_kill(_main_ident(), signal.SIGINT)
        time.sleep(force_after_s)
        self.journal.record("killed", why="the application did not end")
        kill_driver(self.jvm_process)


def _main_ident() -> int:
    ident = threading.main_thread().ident
    assert ident is not None, "the main thread is running"
    return ident


def _drain(managed: Managed) -> threading.Event:
    """An event that is set when a trigger that began from now on has found nothing new."""
    drained = threading.Event()

    def wait() -> None:
        # It waits for a trigger after this call, however long the interval between two of them is.
        try:
            managed.query.processAllAvailable()
        except StreamingQueryException:
            return  # it has failed, so it runs no more, and `failure` tells why
        drained.set()

    threading.Thread(target=wait, name=f"streambank-drain-{managed.name}", daemon=True).start()
    return drained


def _found_nothing_since(managed: Managed, moment: datetime) -> bool:
    """Whether a batch that began after a moment had no rows.

    Queries that work by processing time run a batch at every trigger, data or not: `processAllAvailable`
    never returns for them.
    """
    progress = managed.query.lastProgress
    if progress is None or progress["numInputRows"] > 0:
        return False
    return parse_time(progress["timestamp"]) > moment


def has_triggered(status: Mapping[str, Any]) -> bool:
    """Whether a status of Spark says that a trigger has finished and the query waits for the next one."""
    return not status["isTriggerActive"] and str(status["message"]).startswith("Waiting for")
