"""Whether a driver in a cluster still is wanted: nobody could see it coming up, and it may come up again.

A stop ends drivers that are coming up where it finds them. In a cluster it may not: a driver waits for room,
the answer to its submission was lost, or a supervisor starts again what was ended. So such a driver asks,
with the lease in hand: then either the stop sees the lease, or the driver sees the stop.
"""

from __future__ import annotations

from streambank.errors import ConflictError, RefusedError, StorageError, StreambankError
from streambank.job.claims import Claim
from streambank.job.control import JobControl
from streambank.job.launch import LaunchSpec
from streambank.job.requests import STOP

HELD = "lease-held"


def check_wanted(spec: LaunchSpec, control: JobControl, claim: Claim) -> None:
    """Make sure that nobody has stopped the job, or this launch of it, before it got the lease.

    Args:
        spec: The launch.
        control: The job's records.
        claim: The lease, held.

    Raises:
        RefusedError: Somebody has (code `not-wanted`).
    """
    if spec.deploy_mode != "cluster":
        return
    desired = control.desired()
    if desired is not None and desired.state == "stopped":
        raise _not_wanted(spec, "the job is meant to be stopped")
    history = control.lease.claims.records.history()
    mine = {one.number for one in history if one.data.get("launch_id") == spec.launch_id} - {claim.epoch}
    for request in control.requests.records.newest_first() if mine else ():
        if request.data.get("kind") == STOP and request.data.get("epoch") in mine:
            raise _not_wanted(spec, "it was asked to stop before it ended")


def _not_wanted(spec: LaunchSpec, why: str) -> RefusedError:
    return RefusedError(
        f"This driver of job {spec.job} is not wanted any more: {why}.",
        code="not-wanted",
        hint=f"Start the job if it is to run: `streambank job start {spec.job}`.",
    )


def exit_code(spec: LaunchSpec, error: StreambankError) -> int:
    """What a driver that was refused ends with, having left that behind for whoever started it.

    Where a supervisor starts again whatever ends with another code than 0, that is the code of a driver that
    no other try would help: it has failed all the same, and the job's records say so.
    """
    if spec.deploy_mode != "cluster":
        return error.exit_code
    control = spec.control_of_job()
    control.record_event(
        "driver-refused",
        launch_id=spec.launch_id,
        code=error.code,
        exit_code=error.exit_code,
        why=error.message,
    )
    return 0 if spec.supervised and not _another_try_helps(spec, control, error) else error.exit_code


def _another_try_helps(spec: LaunchSpec, control: JobControl, error: StreambankError) -> bool:
    if isinstance(error, StorageError):
        return True
    if error.code != HELD:
        return isinstance(error, ConflictError) and error.code != "stale-launch"
    # What is left of this very driver is soon gone, and an operation ends; another driver stays.
    view = control.lease.view()
    details = view.holder.details if view is not None and view.holder is not None else {}
    return details.get("purpose") != "run" or details.get("launch_id") == spec.launch_id
