"""Whether a driver is still wanted: one rule, for the driver itself and for whoever starts.

A stop ends drivers that are coming up where it finds them. It may not find one: in a cluster it waits for
room, the answer to its submission was lost, or a supervisor starts again what was ended; in client mode it
comes up on another machine. So every stop leaves a mark *before* it looks who has the lease, and a driver
looks for marks *after* it has taken it: then either the stop sees the lease, or the driver sees the stop.
Which record decides:

* a stop that is to last: the record `stopped` in `desired/`, with a number above the launch's `desired`;
* any other (a restart, the end of a crash loop): a stop request in `requests/` with a number above the
  launch's `asked`, to whichever epoch. Where no driver has the lease it is addressed to epoch 0, which nobody
  has: it is the mark alone.

The launch has its two numbers from the start that made it, which read them before it launched: `desired` is
the very record by which that start saw the job meant to run, so a stop that came later is later, even where
yet another start has said `running` since. A launch of an older version has no numbers; then only what is
meant to be now counts, and requests to epochs that its own drivers have had.
"""

from __future__ import annotations

from collections.abc import Mapping

from streambank.control.control import JobControl
from streambank.control.requests import NO_EPOCH, STOP
from streambank.driver.spec import LaunchSpec


def mark_stop(control: JobControl, *, by: Mapping[str, str], why: str) -> None:
    """Leave behind that every driver launched until now is to be stopped, whoever it is."""
    control.requests.post(STOP, epoch=NO_EPOCH, by=by, why=why)


def mark_late_drivers(control: JobControl, *, by: Mapping[str, str], why: str) -> None:
    """Let no driver that was launched until now and comes up late run any more; with the lock in hand."""
    view = control.lease.view()
    if view is None or view.free:
        mark_stop(control, by=by, why=why)


def why_superseded(spec: LaunchSpec, control: JobControl, *, epoch: int | None = None) -> str | None:
    """Why no driver of a launch is to run, as half a sentence; a request to `epoch`, its own, is no reason.

    Raises:
        FormatError: A record that decides is damaged (code `damaged-record`).
    """
    if control.is_stopped():
        return "the desired state of the job is stopped"
    if spec.desired is not None and _was_stopped_after(spec.desired, control):
        return "the job was stopped after this driver had been launched"
    if spec.asked is None:
        mine = _epochs_of(spec, control) - {epoch}
        asked = any(request in mine for request in _stops(control, 0)) if mine else False
    else:
        asked = any(request != epoch for request in _stops(control, spec.asked))
    return "it was asked to stop before it ended" if asked else None


def _was_stopped_after(number: int, control: JobControl) -> bool:
    for record in control.desired_records.newest_first():
        if record.number <= number:
            return False
        if record.data.get("state") == "stopped":
            return True
    return False


def _stops(control: JobControl, after: int) -> list[object]:
    """The epochs that were asked to stop by requests above a number."""
    found = []
    for record in control.requests.records.newest_first():
        if record.number <= after:
            break
        if record.data.get("kind") == STOP:
            found.append(record.data.get("epoch"))
    return found


def _epochs_of(spec: LaunchSpec, control: JobControl) -> set[int | None]:
    """The epochs of the lease that drivers of a launch have had, one after the other until now."""
    found: set[int | None] = set()
    for record in control.lease.claims.records.newest_first():
        launch_id = record.data.get("launch_id")
        if launch_id == spec.launch_id:
            found.add(record.number)
        elif launch_id is not None:
            break
    return found
