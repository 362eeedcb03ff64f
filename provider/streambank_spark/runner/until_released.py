"""The wait of a driver whose launch is held (held.py), which loads nothing of Spark."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from streambank.control.claims import Claims
from streambank.control.control import JobControl
from streambank.core.errors import StorageError
from streambank.driver.spec import HOLDER, WAITING, LaunchSpec, released_launch
from streambank.storage import local_path

_log = logging.getLogger(__name__)

_LOOK_S = 0.05
_REMOTE_LOOK_S = 0.5
_NEEDED_S = 2.0
"""How often it is asked whether this driver still is needed."""
_BLIND_S = 60.0
"""For how long the records may not be readable."""


class NotNeededError(Exception):
    """The driver that waits is not needed; its text says why, as half a sentence."""


def until_released(
    spec: LaunchSpec, control: JobControl, why_not: Callable[[], str | None] = lambda: None
) -> LaunchSpec:
    """Wait until a held launch is released, or until `why_not` says what else ends the wait.

    Raises:
        NotNeededError: The upgrade has ended, the job was stopped, or its records cannot be read; or
            `why_not` said something.
        StreambankError: The release is damaged, or says something else of what runs.
    """
    look_s = _LOOK_S if local_path(control.store.uri) is not None else _REMOTE_LOOK_S
    holder = Claims(control.store, HOLDER)
    control.record_event(WAITING, launch_id=spec.launch_id, pid=os.getpid())
    _log.info("Waiting at the first query until the launch is released.")
    asked, seen = float("-inf"), time.monotonic()
    while True:
        why = None
        try:
            if time.monotonic() - asked > _NEEDED_S:
                asked = time.monotonic()
                why = _why_not_needed(spec, control, holder)
            # Asked last: an upgrade may have released it, and ended, since.
            if (released := released_launch(control, spec)) is not None:
                return released
            seen = time.monotonic()
        except StorageError as error:
            if time.monotonic() - seen > _BLIND_S:
                why = f"the job's records cannot be read: {error.message.rstrip('.')}"
        if why := why or why_not():
            raise NotNeededError(why)
        time.sleep(look_s)


def _why_not_needed(spec: LaunchSpec, control: JobControl, holder: Claims) -> str | None:
    if control.is_stopped():
        return "the job was stopped"
    view = holder.view()
    if view is None or view.free or view.epoch != spec.held_by:
        return "the upgrade has ended"
    return None
