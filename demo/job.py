"""The demo's view of its streaming job, from the records and files that anybody can read."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from demo import processes
from streambank.checkpoint import logs
from streambank.control.control import JobControl
from streambank.control.processes import ProcessId
from streambank.core.errors import NotFoundError, StorageError
from streambank.kafka.offsets import Spot, parse_offsets, spots
from streambank.storage import Store, local_path, open_store

DELETED_WITHIN_S = 60.0


class WaitedTooLongError(Exception):
    """Something that had to happen did not happen in time."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch that Spark committed, and when its commit file appeared."""

    number: int
    at: datetime


@dataclass(slots=True)
class FlightsJob:
    """The flights job.

    Attributes:
        name: As declared.
        control: Its records' location.
        query: The query's name, None for a job that has one.
    """

    name: str
    control: str
    query: str | None = None

    def records(self) -> JobControl:
        """Its records, opened again: an observer keeps no state."""
        return JobControl.open(self.control, self.name)

    def checkpoint(self) -> Store:
        """The directory that is its checkpoint now, on this machine or elsewhere."""
        generation = self.records().generation(self.query)
        if generation is None:
            raise WaitedTooLongError(f"job {self.name} has no checkpoint: it was never started")
        return open_store(generation.location)

    def last_commit(self) -> CommittedBatch | None:
        """The newest committed batch of the current checkpoint."""
        store = self.checkpoint()
        numbers = sorted(int(name) for name in store.names("commits") if re.fullmatch(r"\d+", name))
        while numbers:  # Spark may remove one meanwhile, or somebody the whole checkpoint
            try:
                return self._commit(store, numbers.pop())
            except NotFoundError:
                continue
        return None

    def commit(self, number: int) -> CommittedBatch:
        """One committed batch of the current checkpoint.

        Raises:
            NotFoundError: It is not committed, or not there any more.
        """
        return self._commit(self.checkpoint(), number)

    def _commit(self, store: Store, number: int) -> CommittedBatch:
        at = datetime.fromtimestamp(store.stat(f"commits/{number}").mtime_ns / 1e9, UTC)
        return CommittedBatch(number, at)

    def read_until(self) -> Mapping[Spot, int]:
        """The next offset of each partition of its topics, after the newest committed batch.

        Empty before the first batch, and for a job that reads no Kafka.
        """
        last = self.last_commit()
        if last is None:
            return {}
        read = logs.parse_offsets(self.checkpoint().read(f"offsets/{last.number}")).sources.values()
        found = [offsets for text in read if (offsets := parse_offsets(text)) is not None]
        return {spot: offset for one in found for spot, offset in spots(one).items()}

    def wait_for_batch(
        self, number: int, *, timeout_s: float, meanwhile: Callable[[], None]
    ) -> CommittedBatch:
        """Wait until a batch is committed; if the storage does not answer for a while, go on waiting.

        Raises:
            WaitedTooLongError: It was not, in time.
        """
        deadline = time.monotonic() + timeout_s
        seen: CommittedBatch | StorageError | None = None
        while True:
            meanwhile()
            try:
                seen = last = self.last_commit()
            except StorageError as error:
                seen, last = error, None
            if last is not None and last.number >= number:
                return last
            if time.monotonic() > deadline:
                raise WaitedTooLongError(
                    f"batch {number} is not committed after {timeout_s:.0f} s; the last one is {seen}"
                )
            time.sleep(0.1)

    def driver(self) -> tuple[ProcessId, ...]:
        """The processes of its driver that run now: Python and the JVM."""
        view = self.records().lease.view()
        if view is None or view.holder is None:
            return ()
        return tuple(one for one in view.holder.processes if one.is_living())

    def kill_driver(self) -> list[str]:
        """End the driver's processes by SIGKILL, like a crash; returns what was killed, as `python 123`."""
        found = self.driver()
        living = [process for one in found if (process := processes.look_at(one.pid)) is not None]
        processes.signal_all(living, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(processes.is_alive(process) for process in living):
            if time.monotonic() > deadline:
                raise WaitedTooLongError("the driver is still there 10 s after SIGKILL")
            time.sleep(0.02)
        return [f"{one.role} {one.pid}" for one in found]

    def destroy_checkpoint(self) -> tuple[str, int]:
        """Delete the current checkpoint while its driver runs; returns its name and its number of files."""
        store = self.checkpoint()
        files = sum(1 for _ in store.list())
        self.delete_rest(store)
        return store.uri.rstrip("/").rpartition("/")[2], files

    def delete_rest(self, store: Store) -> None:
        """Delete until nothing is left: a live driver may write new files meanwhile.

        Raises:
            WaitedTooLongError: New files appeared again and again.
        """
        deadline = time.monotonic() + DELETED_WITHIN_S
        path = local_path(store.uri)
        while path.exists() if path is not None else any(store.list()):
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)
            else:
                for entry in store.list():
                    store.delete(entry.path)
            if time.monotonic() > deadline:
                raise WaitedTooLongError(f"{store.uri} cannot be deleted")
