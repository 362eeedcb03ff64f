"""Drivers that are there without the lease, and where drivers are: all that asks a cluster where they are.

What a cluster answers never says who may run: the job's records do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.control.processes import ProcessId, command_line
from streambank.control.records import Record, decode_json, encode_json
from streambank.core.errors import FormatError, NotFoundError, RefusedError, StorageError
from streambank.declaration.declaration import Job
from streambank.driver.launcher import NOT_ITS_DRIVER, DriverState, Handle, Launcher
from streambank.driver.spec import LaunchSpec, is_waiting, spec_of
from streambank.driver.stops import why_superseded
from streambank.storage.store import read_record

REFUSED = "refused"
"""How the lease of a driver ends that was not let run."""
CLUSTER_MARGIN_S = 60.0
"""A cluster sends TERM first, and takes its time before SIGKILL."""
_RECENT = 20
"""How many of the newest epochs are looked at."""
_LOOK_S = 0.2
_MARGIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A driver that waits until its launch is released."""

    spec: LaunchSpec
    handle: Handle
    secret: str


@dataclass(frozen=True, slots=True)
class Left:
    """The drivers of a job that are there although none has the lease.

    Attributes:
        coming: Those that have yet to take it: they were launched, or their cluster brings them back.
        doomed: Those that must not run: a stop is recorded against their launch; or one had the lease until
            its heartbeat stood still, and its cluster still has it.
        held: Those that wait until an upgrade releases their launch.
    """

    coming: list[Handle]
    doomed: list[Handle]
    held: list[Handle]

    @property
    def unheld(self) -> list[Handle]:
        """Those that come to run, or must not, by themselves."""
        return [*self.coming, *self.doomed]


def drivers_left(launcher: Launcher, control: JobControl, view: ClaimView | None) -> Left:
    """What has to be waited for, or ended, before another driver is launched or a job called stopped.

    The records decide in this order: the lease says who has been (a launch that it does not name is coming,
    and so is one that has taken it since it was looked at), and of the newest launch whether its driver gave
    it back, and how; the launch spec says whether its cluster brings it back; and desired state and requests
    say whether it is wanted then (`why_superseded`). The cluster is asked for one thing only: whether
    a driver is there.

    Args:
        view: The lease, which nobody had when it was looked at.
    """
    found = launcher.find(control)
    recent = list(control.lease.claims.records.history(newest=_RECENT))
    been = {str(record.data["launch_id"]) for record in recent if record.data.get("launch_id")}
    left = Left([], [], [])
    for handle in found:
        if handle.launch_id not in been:
            if is_waiting(control, handle.launch_id):
                left.held.append(handle)
                continue
            spec = spec_of(control, handle.launch_id)
            comes = spec is None or why_superseded(spec, control) is None
            (left.coming if comes else left.doomed).append(handle)
    newest = next((record for record in reversed(recent) if record.data.get("launch_id")), None)
    has_it = newest is not None and newest.number > (view.epoch if view is not None else 0)
    last = _still_there(launcher, control, newest, found, has_it) if newest is not None else None
    if last is not None and newest is not None:
        spec = spec_of(control, last.launch_id)
        # Where an operation, such as a restore, has had the lease since, it was made for others.
        comes_back = spec is not None and spec.supervised and newest is recent[-1]
        comes = has_it or (spec is not None and comes_back and why_superseded(spec, control) is None)
        (left.coming if comes else left.doomed).append(last)
    return left


def _still_there(
    launcher: Launcher, control: JobControl, epoch: Record, found: Sequence[Handle], has_it: bool
) -> Handle | None:
    """The driver that had an epoch and did not end for good, if it is still there.

    A driver on this machine counts only while it has the epoch: its processes may outlive its work for a
    moment. A cluster can bring its driver back.
    """
    launch_id = str(epoch.data["launch_id"])
    if _is_over(control, epoch, launch_id):
        return None
    for handle in found:
        if handle.launch_id == launch_id:
            return handle if has_it or handle.submission is not None else None
    known = launched_handle(control, launch_id)
    state = known_state(launcher, known)
    return known if state is not None and state.state == "running" else None


def _is_over(control: JobControl, epoch: Record, launch_id: str) -> bool:
    """Whether a driver gave its epoch back itself, and nobody brings it back for how it ended."""
    records = control.lease.claims.records
    try:
        end = decode_json(read_record(records.store, records.key(epoch.number, ".end")), "end of an epoch")
    except (NotFoundError, FormatError):
        return False
    if end.get("how") == REFUSED or end.get("exit_code") == 0:
        return True
    spec = spec_of(control, launch_id)
    return "exit_code" in end and (spec is None or not spec.supervised)


def check_launched_here(job: Job, control: JobControl, view: ClaimView | None) -> None:
    """Make sure that the place where the job is declared now is the one to ask for its last driver.

    Another place never heard of that driver: there it would look gone, and might run on.

    Raises:
        RefusedError: Its heartbeat has stopped, and another place has it (code `launched-elsewhere`).
    """
    if view is None or control.lease.doubt(view) is None:
        return
    spec = spec_of(control, str(view.launch_id))
    if spec is None or (spec.on == job.launch.on and job.launch.in_cluster):
        return
    raise RefusedError(
        f"The last driver of job {job.name} was launched on {spec.on!r}, and its heartbeat has stopped, but "
        f"it may still run there. The job is now declared on {job.launch.on!r}, which cannot tell.",
        code="launched-elsewhere",
        hint="Stop the job with the declaration that it was launched with: "
        f"`streambank job stop {job.name}`. "
        f"If that place is gone: `streambank job break {job.name} --why TEXT`.",
    )


def end_drivers(launcher: Launcher, control: JobControl, doomed: Sequence[Handle]) -> bool:
    """End drivers that do not have the lease, and see them gone.

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
    """A driver as `look_for_driver` finds it; where it is now is kept, for others."""
    found, state = look_for_driver(launcher, control, known, spec)
    if found != known:
        record_location(control, found)
    return found, state


def look_for_driver(
    launcher: Launcher, control: JobControl, known: Handle, spec: LaunchSpec | None
) -> tuple[Handle, DriverState]:
    """A driver as its launcher has it now, and how it is. Writes nothing.

    A cluster is asked for the launch itself where the records do not know the driver's name there: the answer
    to its submission was lost, or its start killed, and it took the lease without anybody waiting for it. And
    where they do not know it any more: the cluster has brought it back elsewhere, under another name. What
    the cluster does not take for the driver of the launch counts as not known.

    Args:
        known: What they know of it: `launched_handle`.
        spec: Its launch; None where that is gone.
    """
    if spec is None or spec.deploy_mode != "cluster":
        return known, launcher.status(known)
    state = known_state(launcher, known)
    if state is None:
        known, state = replace(known, submission=None), DriverState("ended", why="its location is not known")
    elif state.submission is not None:
        return _moved(known, state.submission, state.log, state.tracking), state
    elif state.state == "running" or not spec.supervised:
        return known, state
    for handle in launcher.find(control):
        if handle.launch_id == known.launch_id and handle.submission is not None:
            now = _moved(known, handle.submission, handle.log, handle.tracking)
            return now, launcher.status(now)
    return known, state


def known_state(launcher: Launcher, known: Handle) -> DriverState | None:
    """How a driver in a cluster is; None where no record names it, or what is named is not that driver."""
    if known.submission is None:
        return None
    try:
        return launcher.status(known)
    except StorageError as error:
        if error.code != NOT_ITS_DRIVER:
            raise
        return None


def _moved(known: Handle, submission: str, log: str | None, tracking: str | None) -> Handle:
    return replace(known, log=log or known.log, submission=submission, tracking=tracking or known.tracking)


LOCATED = "located"
"""The folder of the job's records that says where drivers in a cluster are."""


def launched_handle(
    control: JobControl, launch_id: str, processes: tuple[ProcessId, ...] = (), log: str | None = None
) -> Handle:
    """A driver that the job's records know, on any machine, launched by anybody."""
    try:
        found = decode_json(read_record(control.store, _located_key(launch_id)), "a driver's location")
    except NotFoundError:
        return Handle(launch_id, processes, log, job=control.name)
    submission = found.get("submission")
    return Handle(
        launch_id,
        processes,
        _page(found.get("log")) or log,
        submission if isinstance(submission, str) else None,
        _page(found.get("tracking")),
        control.name,
    )


def _page(found: object) -> str | None:
    """A page of a cluster, as a record names it: a writer of records could name anything."""
    return found if isinstance(found, str) and found.startswith(("http://", "https://")) else None


def is_driver_of(control: JobControl, launch_id: str, process: ProcessId) -> bool:
    """Whether a process of this host was started as a driver of the job, by its own arguments."""
    said = command_line(process.pid) if process.is_living() else []
    by_launch = any(one.endswith(f"/{control.name}/launches/{launch_id}.json") for one in said)
    return by_launch or ("--job", control.name) in pairwise(said) or f"--job={control.name}" in said


def record_location(control: JobControl, handle: Handle) -> None:
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
    return view is not None and launch_id is not None and view.launch_id == launch_id
