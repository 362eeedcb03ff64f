"""Drivers as the job's records know them: where one is, and what it was launched with."""

from __future__ import annotations

from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.control.processes import ProcessId
from streambank.control.records import decode_json, encode_json
from streambank.core.errors import NotFoundError
from streambank.driver.launchers.launcher import Handle
from streambank.driver.spec import LaunchSpec, read_launch

LOCATED = "located"
"""The folder of the job's records that says where drivers in a cluster are."""


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


def spec_of(control: JobControl, launch_id: str) -> LaunchSpec | None:
    """A launch spec of the job; None where it is gone."""
    try:
        return read_launch(control, launch_id)
    except NotFoundError:
        return None
