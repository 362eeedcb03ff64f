"""A thread of a driver whose job has two sites: whether this one still is the active one.

It asks both sites, and brings each up to what the other knows, so that the driver of the active site fences
the other one as soon as that answers. It has a separate thread, since a request to a site that is cut off
may hang for minutes; where it hangs, nothing else does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from streambank.control.control import JobControl
from streambank.core.errors import StreambankError
from streambank.driver.spec import LaunchSpec
from streambank.sites.standing import Deposed, deposed

_log = logging.getLogger(__name__)

_EVERY_BEATS = 2.0
"""How often it looks, in heartbeats of the lease."""


class SiteWatch:
    """Looks until it is stopped, or the other site is the active one.

    Args:
        spec: What was launched; for a job with one site nothing is watched.
        on_deposed: Called once, in the thread, with the reason why the driver must end.
    """

    def __init__(self, spec: LaunchSpec, control: JobControl, on_deposed: Callable[[Deposed], None]) -> None:
        self._spec = spec
        self._control = control
        self._on_deposed = on_deposed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streambank-site", daemon=True)

    def start(self) -> None:
        if self._spec.site is not None:
            self._thread.start()

    def stop(self) -> None:
        """End; a look that hangs is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_BEATS * self._spec.beat_s):
            try:
                found = deposed(self._spec, self._control)
            except Exception:
                _log.exception("The look at the job's sites failed and will be tried again:")
                continue
            if found is not None and not self._stop.is_set():
                self._on_deposed(found)
                return


def leave_deposed(control: JobControl, found: Deposed, record: Callable[..., object]) -> None:
    """Leave behind why the driver of a site that is not the active one any more ended.

    A watcher of the job must not bring it back.
    """
    try:
        control.set_desired("stopped", by=found.by, why=found.why)
    except StreambankError as error:
        _log.warning("The desired state could not be recorded: %s", error.message)
    record("killed", why=f"its site is not the active one: {found.why}")
