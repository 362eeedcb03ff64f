"""The driver of a drill's copy, as its records show it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from streambank.control.control import JobControl
from streambank.core.errors import StorageError, StreambankError
from streambank.driver.failure import SEARCHED_LINES, driver_failure, shown
from streambank.driver.launcher import Handle, Launcher
from streambank.driver.location import launched_handle

STATE_READ, BATCH, STATE_COMPARED = "copy-state-read", "copy-batch", "copy-state-compared"
DONE, REFUSED = "copy-done", "copy-refused"
"""Events of the copy's driver (streambank_spark/runner/replay.py)."""
_LOOK_S = 0.5


class Watched:
    """The driver of the copy.

    Args:
        launch_id: Its launch; None where that is not known.
    """

    def __init__(self, control: JobControl, launch_id: str | None, launcher: Launcher) -> None:
        self.control = control
        self.launch_id = launch_id
        self.launcher = launcher

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        """What the driver has written down of a kind, oldest first."""
        return [one.data for one in self.control.events() if one.data.get("kind") == kind]

    def queries(self, *kinds: str) -> set[str]:
        """The queries of which there is an event of one of these kinds."""
        return {str(one.get("query")) for kind in kinds for one in self.events(kind)}

    def failed_queries(self) -> set[str]:
        """The queries that have failed by themselves; none where the whole application did."""
        batches = {str(one.get("query")) for one in self.events(BATCH) if one.get("failure")}
        return batches or {name for one in self.events("driver-ended") for name in one.get("failed") or {}}

    def ended_well(self) -> bool:
        """Whether the application has run to its end, and no query has failed."""
        ends = self.events("driver-ended")
        return bool(ends) and ends[-1].get("exit_code") == 0 and not ends[-1].get("failed")

    def wait(self, done: Callable[[], bool], deadline: float, what: str) -> None:
        """Wait for something that the driver does, or until its application has run to its end.

        Args:
            deadline: When the time is over, by the monotonic clock.
            what: What each query has to have done, for the message.

        Raises:
            StorageError: A batch failed, or the driver has ended before (code `drill-died`), or the time is
                over (`drill-timeout`).
        """
        while not done():
            failed = next((one for one in self.events(BATCH) if one.get("failure")), None)
            if failed is not None:
                raise _died(f"batch {failed.get('batch')} failed: {shown(str(failed['failure']))}")
            view = self.control.lease.view()
            if view is not None and view.free and not done():
                if self.ended_well():
                    return
                raise self._died()
            if time.monotonic() > deadline:
                raise StorageError(
                    f"The time of the drill is over, and not every query of the copy {what}.",
                    code="drill-timeout",
                    hint="Give a longer `--timeout`, or fewer `--batches`.",
                )
            time.sleep(_LOOK_S)

    def _died(self) -> StreambankError:
        lines: list[str] = []
        with contextlib.suppress(StreambankError):
            for handle in self.launcher.find(self.control) or self.handles():
                lines = self.launcher.log_lines(handle, SEARCHED_LINES)
        failure = driver_failure(self.control, self.launch_id, lines)
        return _died(None if failure is None else failure.cause)

    def handles(self) -> Iterator[Handle]:
        """The driver by the records, which know it where its cluster does not name it as one that starts."""
        view = self.control.lease.view()
        details = view.holder.details if view is not None and view.holder is not None else {}
        launch_id = self.launch_id or details.get("launch_id")
        if launch_id is None:
            return
        processes = view.holder.processes if view is not None and view.holder is not None else ()
        with contextlib.suppress(StreambankError):
            log = self.launcher.log_path(self.control, str(launch_id))
            yield launched_handle(self.control, str(launch_id), processes, log)


def _died(cause: str | None) -> StorageError:
    said = f": {cause}" if cause else ""
    return StorageError(
        f"The application on the copy ended before it was done{said}",
        code="drill-died",
        hint="What it said stands above; `streambank drill --keep` leaves the copy and its log.",
    )
