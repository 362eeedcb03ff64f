"""The new driver is launched before the old one stops, and waits at its first query (`LaunchSpec.held_by`).

What a start takes apart from its first batch (a JVM, an interpreter, a session, the application up to its
first query) is then done while the old code still runs. The driver that waits has no lease, so it is no
second writer. It ends by itself when the upgrade ends, or the job is stopped.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import replace

from streambank.code.code import Code
from streambank.control.control import JobControl
from streambank.control.processes import end_gently
from streambank.core.errors import StreambankError
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Handle, Launcher
from streambank.driver.location import Waiting, is_of
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import (
    GENTLY_S,
    NOT_NEEDED,
    WAITING,
    is_held,
    new_launch_id,
    seal_of,
    write_launch,
)

_LOOK_S = 0.25
_ENDED = "it ended before its first query; its log says why"


class NotWarmError(Exception):
    """No driver waits; its text says why, for people."""


def launch_held(
    runs: Job,
    control: JobControl,
    launcher: Launcher,
    code: Code,
    claim: int,
    *,
    by: Mapping[str, str],
    why: str,
) -> Waiting:
    """Launch the new code, and wait until its driver is at its first query.

    Args:
        claim: The number of the claim of the upgrade, for whose time the driver waits.

    Raises:
        NotWarmError: None waits: it could not be launched, ended, or took longer than a start may take; or
            its cluster would start it again where it failed, or its launcher is a registered one, of which
            that is not known.
    """
    if runs.launch.is_registered:
        raise NotWarmError("it is not known whether a driver of a registered launcher can wait")
    if runs.launch.comes_back(runs.spark):
        raise NotWarmError("a driver that its cluster starts again by itself cannot wait")
    launch_id, handle, secret = new_launch_id(), None, secrets.token_hex(16)
    deadline = control.clock.monotonic() + runs.start.timeout_s
    try:
        spec = replace(
            prepare_launch(
                runs, control, by=by, launch_id=launch_id, log=launcher.log_path(control, launch_id), why=why
            ),
            spark_version=launcher.check(runs),
            code=code.to_dict(),
            held_by=claim,
            seal=seal_of(secret),
        )
        write_launch(control, spec)
        handle = launcher.submit(runs, control, spec)
        number = control.record_event("launched-held", launch_id=launch_id, by=dict(by), why=why)
        while not _waits(control, launch_id, number):
            if launcher.status(handle).state == "ended":
                raise NotWarmError(_ENDED)
            if control.clock.monotonic() > deadline:
                raise NotWarmError(f"it did not come to its first query within {runs.start.timeout_s:.0f} s")
            control.clock.sleep(_LOOK_S)
    except StreambankError as error:
        _end(launcher, control, handle)
        raise NotWarmError(error.message) from error
    except NotWarmError:
        _end(launcher, control, handle)
        raise
    return Waiting(spec, handle, secret)


def _waits(control: JobControl, launch_id: str, after: int) -> bool:
    """Whether a driver has come to its first query, by the events above a number.

    Raises:
        NotWarmError: It was not needed any more.
    """
    for record in control.event_records.newest_first():
        if record.number <= after:
            break
        if record.data.get("launch_id") == launch_id:
            if record.data.get("kind") == NOT_NEEDED:
                raise NotWarmError(str(record.data.get("why")))
            if record.data.get("kind") == WAITING:
                return True
    return False


def end_held(launcher: Launcher, control: JobControl, waiting: Waiting) -> None:
    """End a driver that waits and was not released; one that was is the job's. Raises nothing.

    Where it cannot be ended it ends by itself: the upgrade that holds it is over soon.
    """
    with contextlib.suppress(StreambankError):
        if is_held(waiting.spec, control):
            _end(launcher, control, waiting.handle)


def _end(launcher: Launcher, control: JobControl, handle: Handle | None) -> None:
    with contextlib.suppress(StreambankError):
        if handle is not None and not is_of(control.lease.view(), handle.launch_id):
            end_gently(handle.processes, GENTLY_S)
            launcher.kill(handle)
