"""Drivers as records and launcher know them: where one is, and which have yet to take the lease."""

from __future__ import annotations

from streambank.errors import NotFoundError, StorageError
from streambank.job.claims import ClaimView
from streambank.job.control import JobControl
from streambank.job.launch import read_launch
from streambank.job.launcher import Handle, Launcher
from streambank.job.processes import ProcessId
from streambank.job.records import decode_json, encode_json

LOCATED = "located"
"""The folder of the job's records that says where drivers in a cluster are."""
_LOOK_S = 0.2
_MARGIN_S = 15.0
CLUSTER_MARGIN_S = 60.0
"""A cluster sends TERM first, and takes its time before SIGKILL."""


def launched_handle(
    control: JobControl, launch_id: str, processes: tuple[ProcessId, ...] = (), log: str | None = None
) -> Handle:
    """A driver as the job's records know it, whoever launched it, and on whichever machine.

    Args:
        control: The job's records.
        launch_id: Its launch.
        processes: The processes that are known of it.
        log: Its log, as its launch spec names it.
    """
    try:
        found = decode_json(control.store.read(_located_key(launch_id)), "a driver's whereabouts")
    except NotFoundError:
        return Handle(launch_id, processes, log)
    return Handle(
        launch_id, processes, found.get("log") or log, found.get("submission"), found.get("tracking")
    )


def keep_whereabouts(control: JobControl, handle: Handle) -> None:
    """Leave behind where a driver in a cluster is, for `launched_handle`; of others nothing is kept."""
    if handle.submission is not None:
        control.store.write(_located_key(handle.launch_id), encode_json(in_cluster(handle)))


def _located_key(launch_id: str) -> str:
    return f"{LOCATED}/{launch_id}.json"


def in_cluster(handle: Handle) -> dict[str, str]:
    """What is told of a driver in a cluster; nothing of others."""
    told = {"submission": handle.submission, "tracking": handle.tracking, "log": handle.log}
    return {name: one for name, one in told.items() if one is not None} if handle.submission else {}


def is_of(view: ClaimView | None, launch_id: str | None) -> bool:
    """Whether the newest epoch of the lease is of this launch."""
    return view is not None and view.holder is not None and view.holder.details.get("launch_id") == launch_id


def upcoming_drivers(
    launcher: Launcher, control: JobControl, view: ClaimView | None, *, coming_back: bool
) -> list[Handle]:
    """The drivers of a job that are there and have yet to take the lease.

    Args:
        launcher: Where they run.
        control: The job's records.
        view: The lease, which nobody holds.
        coming_back: Also one that had the lease last, did not end well, and is brought back by its cluster.

    Raises:
        StorageError: The cluster cannot be asked.
    """
    been = control.lease.recent_launches()
    return [
        handle
        for handle in launcher.find(control)
        if handle.launch_id not in been or (coming_back and _comes_back(control, handle, view))
    ]


def _comes_back(control: JobControl, handle: Handle, view: ClaimView | None) -> bool:
    if view is None or not is_of(view, handle.launch_id):
        return False
    over = view.end.get("exit_code") == 0 or view.end.get("how") == "refused"
    return not over and read_launch(control, handle.launch_id).supervised


def end_upcoming(
    launcher: Launcher, control: JobControl, view: ClaimView | None, *, coming_back: bool
) -> bool:
    """End the drivers of a job that have yet to take the lease: they have not begun anything.

    Args:
        launcher: See `upcoming_drivers`; so are the others.
        control: See there.
        view: See there.
        coming_back: See there.

    Returns:
        Whether there were any.

    Raises:
        StorageError: One does not end (code `stop-timeout`), or the cluster cannot be asked.
    """
    found = upcoming_drivers(launcher, control, view, coming_back=coming_back)
    for handle in found:
        launcher.kill(handle)
    slow = any(handle.submission is not None for handle in found)
    deadline = control.clock.monotonic() + (CLUSTER_MARGIN_S if slow else _MARGIN_S)
    while any(launcher.status(handle).state == "running" for handle in found):
        if control.clock.monotonic() >= deadline:
            raise StorageError(
                f"A driver of job {control.name} that was coming up could not be ended.",
                code="stop-timeout",
                hint="Look for processes that do not react to SIGKILL.",
            )
        control.clock.sleep(_LOOK_S)
    return bool(found)
