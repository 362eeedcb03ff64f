"""Drivers that are there without the lease, and where drivers are: all that asks a cluster for whereabouts.

What a cluster answers never says who may run: the job's records do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.control.records import Record, decode_json
from streambank.core.errors import FormatError, NotFoundError, StorageError
from streambank.driver.launchers.launcher import DriverState, Handle, Launcher
from streambank.driver.spec import LaunchSpec
from streambank.driver.upcoming import keep_whereabouts, launched_handle, spec_of
from streambank.driver.wanted import why_unwanted

REFUSED = "refused"
"""How the lease of a driver ends that was not let run."""
CLUSTER_MARGIN_S = 60.0
"""A cluster sends TERM first, and takes its time before SIGKILL."""
_RECENT = 20
"""How many of the newest epochs are looked at."""
_LOOK_S = 0.2
_MARGIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Left:
    """The drivers of a job that are there although none has the lease.

    Attributes:
        coming: Those that have yet to take it: they were launched, or their cluster brings them back.
        doomed: Those that must not run: a stop is recorded against their launch; or one had the lease until
            its heartbeat stood still, and its cluster still has it.
    """

    coming: list[Handle]
    doomed: list[Handle]

    @property
    def all(self) -> list[Handle]:
        """Both."""
        return [*self.coming, *self.doomed]


def drivers_left(launcher: Launcher, control: JobControl, view: ClaimView | None) -> Left:
    """What has to be waited for, or ended, before another driver is launched or a job called stopped.

    The records decide in this order: the lease says who has been (a launch that it does not name is coming,
    and so is one that has taken it since it was looked at), and of the newest launch whether its driver gave
    it back, and how; the launch spec says whether its cluster brings it back; and desired state and requests
    say whether it is wanted then (wanted.py). The cluster is asked for one thing only: whether a driver is
    there.

    Args:
        launcher: Where they run.
        control: The job's records.
        view: The lease, which nobody had when it was looked at.

    Raises:
        StorageError: The cluster cannot be asked.
    """
    found = launcher.find(control)
    recent = list(control.lease.claims.records.history(newest=_RECENT))
    been = {str(one.data["launch_id"]) for one in recent if one.data.get("launch_id")}
    left = Left([], [])
    for handle in found:
        if handle.launch_id not in been:
            spec = spec_of(control, handle.launch_id)
            wanted = spec is None or why_unwanted(spec, control) is None
            (left.coming if wanted else left.doomed).append(handle)
    newest = next((one for one in reversed(recent) if one.data.get("launch_id")), None)
    last = _still_there(launcher, control, newest, found) if newest is not None else None
    if last is not None and newest is not None:
        spec = spec_of(control, last.launch_id)
        # Where an operation, such as a restore, has had the lease since, it was made for others.
        comes_back = spec is not None and spec.supervised and newest is recent[-1]
        has_it = newest.number > (view.epoch if view is not None else 0)
        wanted = has_it or (spec is not None and comes_back and why_unwanted(spec, control) is None)
        (left.coming if wanted else left.doomed).append(last)
    return left


def _still_there(
    launcher: Launcher, control: JobControl, epoch: Record, found: Sequence[Handle]
) -> Handle | None:
    """The driver in a cluster that had an epoch and did not end for good, where it is there all the same."""
    launch_id = str(epoch.data["launch_id"])
    if _is_over(control, epoch, launch_id):
        return None
    for handle in found:
        if handle.launch_id == launch_id:
            return handle if handle.submission is not None else None
    known = launched_handle(control, launch_id)
    there = known.submission is not None and launcher.status(known).state == "running"
    return known if there else None


def _is_over(control: JobControl, epoch: Record, launch_id: str) -> bool:
    """Whether a driver gave its epoch back itself, and nobody brings it back for how it ended."""
    records = control.lease.claims.records
    try:
        end = decode_json(records.store.read(records.key(epoch.number, ".end")), "end of an epoch")
    except (NotFoundError, FormatError):
        return False
    if end.get("how") == REFUSED or end.get("exit_code") == 0:
        return True
    spec = spec_of(control, launch_id)
    return "exit_code" in end and (spec is None or not spec.supervised)


def end_drivers(launcher: Launcher, control: JobControl, doomed: Sequence[Handle]) -> bool:
    """End drivers that do not have the lease, and see them gone.

    Args:
        launcher: Where they run.
        control: The job's records.
        doomed: Which.

    Returns:
        Whether there were any.

    Raises:
        StorageError: One does not end (code `stop-timeout`), or the cluster cannot be asked.
    """
    for handle in doomed:
        launcher.kill(handle)
    slow = any(handle.submission is not None for handle in doomed)
    deadline = control.clock.monotonic() + (CLUSTER_MARGIN_S if slow else _MARGIN_S)
    while any(launcher.status(handle).state == "running" for handle in doomed):
        if control.clock.monotonic() >= deadline:
            raise StorageError(
                f"A driver of job {control.name} that does not have the lease could not be ended.",
                code="stop-timeout",
                hint="Look for processes that do not react to SIGKILL, and at its cluster.",
            )
        control.clock.sleep(_LOOK_S)
    return bool(doomed)


def find_driver(
    launcher: Launcher, control: JobControl, known: Handle, spec: LaunchSpec | None
) -> tuple[Handle, DriverState]:
    """A driver as `look_for_driver` finds it; where it is now is kept, for others.

    Raises:
        StorageError: The cluster cannot be asked.
    """
    found, state = look_for_driver(launcher, control, known, spec)
    if found != known:
        keep_whereabouts(control, found)
    return found, state


def look_for_driver(
    launcher: Launcher, control: JobControl, known: Handle, spec: LaunchSpec | None
) -> tuple[Handle, DriverState]:
    """A driver as its launcher has it now, and how it is. Writes nothing.

    A cluster is asked for the launch itself where the records do not know the driver's name there: the answer
    to its submission was lost, or its start killed, and it took the lease without anybody waiting for it. And
    where they do not know it any more: the cluster has brought it back elsewhere, under another name.

    Args:
        launcher: Where it runs.
        control: The job's records.
        known: What they know of it: `launched_handle`.
        spec: Its launch; None where that is gone.

    Raises:
        StorageError: The cluster cannot be asked.
    """
    if spec is None or spec.deploy_mode != "cluster":
        return known, launcher.status(known)
    state = DriverState("ended", why="nobody knows where it is")
    if known.submission is not None:
        state = launcher.status(known)
        if state.submission is not None:
            return _moved(known, state.submission, state.log, state.tracking), state
        if state.state == "running" or not spec.supervised:
            return known, state
    for one in launcher.find(control):
        if one.launch_id == known.launch_id and one.submission is not None:
            now = _moved(known, one.submission, one.log, one.tracking)
            return now, launcher.status(now)
    return known, state


def _moved(known: Handle, submission: str, log: str | None, tracking: str | None) -> Handle:
    return replace(known, log=log or known.log, submission=submission, tracking=tracking or known.tracking)
