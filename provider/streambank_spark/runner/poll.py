"""Once a second: write down Spark's progress, look for requests, keep log and records within bounds.

Progress is read from the JVM's own array of recent records, only the new ones as JSON: no listener runs
beside the query, and nothing is missed as long as no more than `spark.sql.streaming.numRecentProgressUpdates`
(100) batches finish between two polls. Polled once more after a query has ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from streambank.control.control import JobControl
from streambank.control.progress import ProgressWriter
from streambank.control.pruning import prune_and_tell
from streambank.control.requests import STOP, Request
from streambank.core.errors import StorageError
from streambank.driver.failure import redacted
from streambank.driver.log import RotatedLog
from streambank.driver.spec import LaunchSpec
from streambank.storage.local.reserve import keep_reserve, with_room
from streambank_spark.private import jvm
from streambank_spark.runner.liveness import Settling, Signs
from streambank_spark.runner.queries import Managed, Queries
from streambank_spark.runner.stop import Journal, StopRequest, has_triggered

_log = logging.getLogger(__name__)

KILLED = "killed"
"""The kind of event that says why a driver kills its JVM and itself."""
POLL_S = 1.0
PRUNE_EVERY_S = 600.0
"""How often the holder of the lease deletes old records; 100 of a stream each time."""


class Poll:
    """The polling thread of a driver; signs of progress and first triggers go nowhere when left out."""

    def __init__(
        self,
        control: JobControl,
        spec: LaunchSpec,
        epoch: int,
        queries: Queries,
        journal: Journal,
        on_stop: Callable[[StopRequest], None],
        signs: Signs | None = None,
        settling: Settling | None = None,
    ) -> None:
        self.failures = 0
        self._signs = signs or Signs()
        self._settling = settling or Settling(spec.queries)
        self._control = control
        self._spec = spec
        self._epoch = epoch
        self._queries = queries
        self._journal = journal
        self._on_stop = on_stop
        self._writers: dict[str, ProgressWriter] = {}
        self._asked_up_to = 0
        self._prune_at = control.clock.monotonic() + PRUNE_EVERY_S
        self._log = None
        if spec.log is not None:
            self._log = RotatedLog(Path(spec.log), max_bytes=spec.log_max_bytes, files=spec.log_files)
        self._said: dict[Callable[[], None], str] = {}
        self._once = threading.Lock()
        self._stop = threading.Event()
        # Requests get their own thread: a JVM that hangs, and the look at it, must not keep a stop from
        # being heard.
        self._threads = [
            threading.Thread(target=self._run, args=(look,), name=f"streambank-{name}", daemon=True)
            for name, look in (("poll", self.once), ("requests", self.hear))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, after a last look at everything."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.hear()
        self.once()

    def hear(self) -> None:
        """Look once for requests; failures as for `once`."""
        self._try(self._look_at_requests)

    def once(self) -> None:
        """Look once at all but requests.

        A failure is shown in the driver's log and counted, and the next look tries again.
        """
        with self._once:
            for look in (self._look_at_queries, self._look_at_log, self._look_at_records):
                self._try(look)

    def _try(self, look: Callable[[], None]) -> None:
        try:
            look()
            self._said.pop(look, None)
        except StorageError as error:
            # It may last for hours, and the log may lie on the disk that is full: it is said once.
            self.failures += 1
            if self._said.get(look) != error.message:
                self._said[look] = error.message
                _log.warning("A poll failed and will be tried again: %s", error.message)
        except Exception:
            self.failures += 1
            _log.exception("A poll failed and will be tried again:")

    def _run(self, look: Callable[[], None]) -> None:
        while not self._stop.wait(POLL_S):
            look()

    def _look_at_requests(self) -> None:
        for request in self._control.requests.open(self._epoch, after=self._asked_up_to):
            self._asked_up_to = request.number
            if request.kind == STOP:
                self._on_stop(self._stop_request(request))
            else:
                self._control.requests.answer(
                    request.number,
                    "refused",
                    why=f"this driver does not support requests of the kind {request.kind!r}",
                )

    def _stop_request(self, request: Request) -> StopRequest:
        options = request.options
        return StopRequest(
            reason="request",
            by=request.by,
            why=request.why,
            drain=bool(options.get("drain", False)),
            force_after_s=float(options.get("force_after_s") or self._spec.force_after_s),
            drain_timeout_s=float(options.get("drain_timeout_s") or self._spec.drain_timeout_s),
            request=request.number,
        )

    def _look_at_queries(self) -> None:
        for managed in self._queries.all():
            if not managed.over:
                self._look_at(managed)

    def _look_at(self, managed: Managed) -> None:
        # Asked first: what has ended before its progress is read has no more of it.
        over = managed.ended.is_set()
        writer = self._writer(managed)
        idle = None
        for progress in jvm.new_progress(managed.query, managed.last_batch):
            sampling = managed.sampling
            record, hot_keys = (progress, None) if sampling is None else sampling.take(progress)
            if writer.add(record, hot_keys) and writer.last_batch is not None:
                managed.last_batch = writer.last_batch
                self._signs.made(managed.name)
                idle = None
            else:
                idle = progress
        self._signs.told_idle(managed.name, idle)
        if not over:
            self._signs.look(managed)
        writer.flush()
        if not managed.triggered and (managed.last_batch >= 0 or has_triggered(managed.query.status)):
            managed.triggered = True
            self._settling.triggered(managed.name)
            self._journal.record("first-trigger", query=managed.name, batch=managed.last_batch)
        if over:
            managed.over = True
            failure = jvm.failure(managed.query)
            managed.failure = None if failure is None else redacted(failure)
            self._signs.ended(managed.name, failed=managed.failure is not None)
            self._settling.triggered(managed.name)
            self._journal.record(
                "query-ended",
                query=managed.name,
                run_id=managed.run_id,
                batch=managed.last_batch,
                failure=managed.failure,
            )

    def _writer(self, managed: Managed) -> ProgressWriter:
        if managed.name not in self._writers:
            self._writers[managed.name] = ProgressWriter(
                self._control.store,
                managed.name,
                epoch=self._epoch,
                max_bytes=self._spec.progress_max_bytes,
                max_files=self._spec.progress_files,
                max_age_s=self._spec.progress_age_s,
            )
        return self._writers[managed.name]

    def _look_at_log(self) -> None:
        if self._log is not None:
            self._log.rotate_if_needed()

    def _look_at_records(self) -> None:
        """A driver that runs for a year sees 35,000 savepoints come and go, with an event for each."""
        now = self._control.clock.monotonic()
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_EVERY_S
            prune_and_tell(self._control)
            for writer in self._writers.values():
                writer.prune()
            keep_reserve(self._control.store)


class ControlJournal:
    """The runner's own events, in the job's records: apart from the driver's log, which is rotated away.

    Args:
        log: The driver's log, for the last words of one whose JVM is killed; None where it is not a file.
    """

    def __init__(self, control: JobControl, launch_id: str, epoch: int, log: str | None = None) -> None:
        self._control = control
        self._launch_id = launch_id
        self._epoch = epoch
        self._last_words = None if log is None else RotatedLog(Path(log), max_bytes=0, files=0)

    def record(self, kind: str, **details: object) -> None:
        """Leave an event behind. Where that fails the driver's log says so: a stop must go on regardless."""
        said = f"{kind} {json.dumps(details)}"
        _log.info("%s", said)
        try:
            self._control.record_event(kind, launch_id=self._launch_id, epoch=self._epoch, **details)
        except StorageError as error:
            _log.warning("A record could not be written: %s", error.message)
            said += f" (not recorded: {error.message})"
        log = self._last_words
        if log is not None and kind == KILLED:
            # What is logged comes through the JVM, which is gone by now or at once.
            with contextlib.suppress(StorageError):
                with_room(self._control.store, lambda: log.say(f"streambank: {said}"))
