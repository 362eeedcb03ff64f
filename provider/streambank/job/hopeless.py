"""Deaths of drivers that another start would only repeat."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from itertools import islice

from streambank.checkpoint.position import batches_of
from streambank.control.control import JobControl
from streambank.control.processes import is_same_run
from streambank.core.errors import RefusedError, StreambankError
from streambank.declaration.declaration import Job
from streambank.driver.damage import unloadable
from streambank.driver.failure import SEARCHED_LINES, driver_failure
from streambank.driver.launcher import Launcher
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.location import launched_handle
from streambank.driver.spec import spec_of
from streambank.job.status import job_status

_log = logging.getLogger(__name__)

_LAUNCHES = 100
"""Events among which the launches are looked for."""
_CHANGING = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|0x[0-9a-f]+|[0-9]+", re.IGNORECASE)
"""What differs between two deaths of the same cause: ids, addresses, numbers of tasks, times."""


def hopeless_death(job: Job, *, launcher: Launcher | None = None) -> RefusedError | None:
    """Why no start helps after the death of the newest driver; None where another one may.

    Returns:
        `checkpoint-damaged` or `state-not-loadable`, with the savepoint to restore.
    """
    records, place = job.records(), launcher or launcher_for(job)
    status = job_status(job, control=records, launcher=place)
    if status.launch_id is None or status.driver is None or status.state != "failed":
        return None
    spec = spec_of(records, status.launch_id)
    if spec is None:
        return None
    try:
        lines = place.log_lines(status.driver, SEARCHED_LINES)
    except StreambankError as error:
        _log.debug("The driver's log could not be read: %s", error)
        lines = []  # what the runner recorded may do
    checkpoints = {name: query.checkpoint for name, query in spec.queries.items()}
    ended = f"The driver of job {job.name} died."
    return unloadable(job, records, status.launch_id, checkpoints, lines, ended)


def died_alike(job: Job, by: Mapping[str, str], *, launcher: Launcher | None = None) -> str | None:
    """The error by which both of the two newest drivers died that one run of a DAG has launched.

    Args:
        by: Who asks, with `dag_id` and `run_id`; launches of others do not count.

    Returns:
        None where there were not two, where a batch was committed since the first of them was launched, where
        they died for different reasons, as far as can be told, or where a disk was full.
    """
    records, place = job.records(), launcher or launcher_for(job)
    events = (one.data for one in islice(records.event_records.newest_first(), _LAUNCHES))
    launched = [one for one in events if one.get("kind") == "launched"][:2]
    ours = [
        str(one["launch_id"])
        for one in launched
        if one.get("launch_id") and is_same_run(by, one.get("by") or {})
    ]
    if len(ours) < 2:
        return None
    spec = spec_of(records, ours[1])
    if spec is None or any(
        batches_of(query.checkpoint).committed != query.committed for query in spec.queries.values()
    ):
        return None
    errors = [_error(records, place, launch_id) for launch_id in ours]
    alike = errors[0] and errors[1] and _CHANGING.sub("", errors[0]) == _CHANGING.sub("", errors[1])
    return errors[0] if alike else None


def _error(control: JobControl, launcher: Launcher, launch_id: str) -> str | None:
    spec = spec_of(control, launch_id)
    try:
        handle = launched_handle(control, launch_id, log=spec.log if spec else None)
        lines = launcher.log_lines(handle, SEARCHED_LINES)
    except StreambankError:
        lines = []  # what the runner recorded may do
    failure = driver_failure(control, launch_id, lines)
    return None if failure is None or failure.is_for_room else failure.cause
