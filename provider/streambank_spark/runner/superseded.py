"""Whether a driver still is wanted: who stopped it may not have seen it coming up, and it may come up again.

So it asks, with the lease in hand: then either the stop sees the lease, or the driver sees the stop. By which
records, says streambank/driver/stops.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from streambank.control.claims import Claim
from streambank.control.control import JobControl
from streambank.control.lease import IN_CLUSTER
from streambank.control.processes import ProcessId
from streambank.core.errors import ConflictError, RefusedError, StorageError, StreambankError
from streambank.driver.spec import LaunchSpec, spec_of
from streambank.driver.stops import why_superseded

HELD = "lease-held"
_PATIENCE_S = 30.0
_LOOK_S = 0.5


def take_lease(spec: LaunchSpec, control: JobControl, processes: Sequence[ProcessId]) -> Claim:
    """Take the lease for a driver.

    One that came up late may have it for the moment that it takes to find that it is not wanted any more:
    that one is waited for, or the driver that was launched in its place would lose against it.

    Raises:
        RefusedError: Somebody holds it (code `lease-held`).
    """
    deadline = control.clock.monotonic() + _PATIENCE_S
    while True:
        try:
            return control.lease.acquire(
                processes,
                beat_s=spec.beat_s,
                ttl_s=spec.ttl_s,
                details={
                    "launch_id": spec.launch_id,
                    "by": dict(spec.by),
                    IN_CLUSTER: spec.deploy_mode == "cluster",
                },
            )
        except RefusedError as refusal:
            passes = refusal.code == HELD and _is_bound_to_end(control)
            if not passes or control.clock.monotonic() >= deadline:
                raise
        control.clock.sleep(_LOOK_S)


def _is_bound_to_end(control: JobControl) -> bool:
    view = control.lease.view()
    if view is None or view.launch_id is None:
        return False
    other = spec_of(control, view.launch_id)
    return other is not None and why_superseded(other, control, epoch=view.epoch) is not None


def check_not_superseded(spec: LaunchSpec, control: JobControl, claim: Claim) -> None:
    """Make sure that nobody has stopped the job, or this launch of it, before it got the lease.

    Raises:
        RefusedError: Somebody has (code `not-wanted`).
    """
    why = why_superseded(spec, control, epoch=claim.epoch)
    if why is not None:
        raise RefusedError(
            f"This driver of job {spec.job} is superseded: {why}.",
            code="not-wanted",
            hint=f"To run the job, start it: `streambank job start {spec.job}`.",
        )


def exit_code(spec: LaunchSpec, error: StreambankError) -> int:
    """What a driver that was refused ends with, having left that behind for whoever started it.

    Where a supervisor starts again whatever ends with another code than 0, that is the code of a driver that
    no other try would help: it has failed all the same, and the job's records say so.
    """
    control = spec.control_of_job()
    try:
        control.record_event(
            "driver-refused",
            launch_id=spec.launch_id,
            code=error.code,
            exit_code=error.exit_code,
            why=error.message,
            hint=error.hint,
        )
    except StreambankError:
        if spec.deploy_mode == "cluster":
            raise
    if spec.deploy_mode != "cluster":
        return error.exit_code
    return 0 if spec.supervised and not _another_try_helps(spec, control, error) else error.exit_code


def _another_try_helps(spec: LaunchSpec, control: JobControl, error: StreambankError) -> bool:
    if isinstance(error, StorageError):
        return True
    if error.code != HELD:
        return isinstance(error, ConflictError) and error.code != "stale-launch"
    # What is left of this very driver is soon gone, and an operation ends; another driver stays.
    view = control.lease.view()
    return view is None or not view.is_driver or view.launch_id == spec.launch_id
