"""The demo's look at its streaming job: by the records and files it leaves, as any outsider could."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from demo import processes
from streambank.job.control import JobControl
from streambank.job.processes import ProcessId
from streambank.storage import local_path


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
        """Its records, opened anew: an observer keeps no state."""
        return JobControl.open(self.control, self.name)

    def checkpoint(self) -> Path:
        """The directory that is its checkpoint now."""
        generation = self.records().generation(self.query)
        if generation is None:
            raise WaitedTooLongError(f"job {self.name} has no checkpoint: it was never started")
        path = local_path(generation.location)
        if path is None:
            raise WaitedTooLongError(f"{generation.location} is not on this machine")
        return path

    def last_commit(self) -> CommittedBatch | None:
        """The newest committed batch of the current checkpoint."""
        newest: CommittedBatch | None = None
        folder = self.checkpoint() / "commits"
        for entry in folder.iterdir() if folder.is_dir() else ():
            if re.fullmatch(r"\d+", entry.name) and (newest is None or int(entry.name) > newest.number):
                at = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
                newest = CommittedBatch(int(entry.name), at)
        return newest

    def wait_for_batch(
        self, number: int, *, timeout_s: float, meanwhile: Callable[[], None]
    ) -> CommittedBatch:
        """Wait until a batch is committed.

        Raises:
            WaitedTooLongError: It was not, in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            meanwhile()
            last = self.last_commit()
            if last is not None and last.number >= number:
                return last
            if time.monotonic() > deadline:
                raise WaitedTooLongError(
                    f"batch {number} is not committed after {timeout_s:.0f} s; the last one is {last}"
                )
            time.sleep(0.1)

    def driver(self) -> tuple[ProcessId, ...]:
        """The processes of its driver that run now: Python and the JVM."""
        view = self.records().lease.view()
        if view is None or view.holder is None:
            return ()
        return tuple(one for one in view.holder.processes if one.is_living())

    def kill_driver(self) -> list[str]:
        """End the driver's processes as a crash does, by SIGKILL; what was killed, as `python 123`."""
        found = self.driver()
        looked_at = [process for one in found if (process := processes.look_at(one.pid)) is not None]
        processes.signal_all(looked_at, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(processes.is_alive(process) for process in looked_at):
            if time.monotonic() > deadline:
                raise WaitedTooLongError("the driver is still there 10 s after SIGKILL")
            time.sleep(0.02)
        return [f"{one.role} {one.pid}" for one in found]

    def destroy_checkpoint(self) -> tuple[Path, int]:
        """Delete the current checkpoint under its driver's feet; where it was, and how many files it had."""
        path = self.checkpoint()
        files = sum(1 for entry in path.rglob("*") if entry.is_file())
        deadline = time.monotonic() + 10
        while path.exists():
            # A live driver may write into a folder that is just being emptied.
            shutil.rmtree(path, ignore_errors=True)
            if time.monotonic() > deadline:
                raise WaitedTooLongError(f"{path} cannot be deleted")
        return path, files
