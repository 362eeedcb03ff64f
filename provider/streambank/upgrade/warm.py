"""The new driver is launched before the old one stops, and waits at its first query (`LaunchSpec.held_by`).

What a start takes apart from its first batch (a JVM, an interpreter, a session, the application up to its
first query) is then done while the old code still runs. The driver that waits has no lease, so it is no
second writer. It ends by itself when the upgrade ends, or the job is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from streambank.code.code import Code
from streambank.control.control import JobControl
from streambank.core.errors import StreambankError
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Handle, Launcher
from streambank.driver.location import end_drivers, in_cluster, record_location
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import (
    NOT_NEEDED,
    WAITING,
    LaunchSpec,
    is_held,
    new_launch_id,
    write_launch,
)

_LOOK_S = 0.25
_ENDED = "it ended before its first query; its log says why"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A driver that waits.

    Attributes:
        spec: Its launch, held.
        handle: Where it is.
    """

    spec: LaunchSpec
    handle: Handle


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
        runs: The job with the new code, placed.
        control: The job's records.
        launcher: Where drivers run.
        code: The new code.
        claim: The number of the claim of the upgrade, for whose time the driver waits.
        by: Who asks.
        why: Why.

    Raises:
        NotWarmError: None waits: it could not be launched, ended, or took longer than a start may take.
    """
    launch_id, handle = new_launch_id(), None
    deadline = control.clock.monotonic() + runs.start.timeout_s
    try:
        spec = replace(
            prepare_launch(
                runs, control, by=by, launch_id=launch_id, log=launcher.log_path(control, launch_id), why=why
            ),
            spark_version=launcher.check(runs),
            code=code.to_dict(),
            held_by=claim,
        )
        write_launch(control, spec)
        handle = launcher.submit(runs, control, spec)
        control.record_event("launched-held", launch_id=launch_id, by=dict(by), why=why, **in_cluster(handle))
        record_location(control, handle)
        while control.last_event(WAITING, launch_id=launch_id) is None:
            gone = control.last_event(NOT_NEEDED, launch_id=launch_id)
            if gone is not None:
                raise NotWarmError(str(gone.get("why")))
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
    return Waiting(spec, handle)


def end_held(launcher: Launcher, control: JobControl, waiting: Waiting) -> None:
    """End a driver that waits and was not released; one that was is the job's.

    Args:
        launcher: Where drivers run.
        control: The job's records.
        waiting: It.
    """
    if is_held(waiting.spec, control):
        _end(launcher, control, waiting.handle)


def _end(launcher: Launcher, control: JobControl, handle: Handle | None) -> None:
    """End a driver. One that cannot be reached ends by itself, since nobody holds it any more."""
    try:
        end_drivers(launcher, control, [] if handle is None else [handle])
    except StreambankError as error:
        control.record_event("driver-not-ended", launch_id=handle and handle.launch_id, why=error.message)
