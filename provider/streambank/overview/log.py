"""The part `log`: the newest driver's log from its last exception on.

Where it has none, that of the driver that failed before it: after a restart this says why there was one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streambank.control.control import JobControl
from streambank.declaration.declaration import Job
from streambank.driver.failure import SEARCHED_LINES, driver_failure, since_failure
from streambank.driver.launcher import Handle
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.location import launched_handle
from streambank.driver.spec import spec_of
from streambank.job.status import JobStatus
from streambank.overview.plain import Plain

LINES = 200
BYTES = 20_000
"""Of the log; what is left out in its middle is counted."""
EVENTS = 200
"""Among so many events a driver that failed is sought."""
_NOT_HERE = "The log is empty, or was written on another machine."


def log_part(job: Job, control: JobControl, status: JobStatus, plain: Plain) -> dict[str, Any]:
    """The content of the part."""
    driver = status.driver
    found: dict[str, Any] = {
        "driver": status.launch_id,
        "host": status.host,
        "log": status.log,
        "cause": None,
        "why": "",
        "lines": [],
    }
    if driver is None:
        return {**found, "why": "The job has had no driver yet."}
    launcher = launcher_for(job)
    lines = launcher.log_lines(driver, SEARCHED_LINES)
    since = since_failure(lines)
    if not since:
        why = "The end of the log has no exception." if lines else _NOT_HERE
        before = _failed_before(control, driver.launch_id)
        earlier = launcher.log_lines(before, SEARCHED_LINES) if before is not None else []
        if before is None or not since_failure(earlier):
            return {**found, "why": why}
        driver, lines, since = before, earlier, since_failure(earlier)
        why = "This is the log of an earlier driver. That of the newest one has no exception."
        found |= {"driver": before.launch_id, "host": None, "log": before.log, "why": why}
    failure = driver_failure(control, driver.launch_id, lines)
    found["cause"] = None if failure is None else failure.sentence
    return {**found, "lines": bounded([plain.text(line) for line in since])}


def _failed_before(control: JobControl, launch_id: str) -> Handle | None:
    for record in reversed(list(control.events(newest=EVENTS))):
        event, driver = record.data, record.data.get("launch_id")
        failed = event.get("failure") or event.get("failed") or event.get("kind") == "driver-died"
        if not failed or not isinstance(driver, str) or driver == launch_id:
            continue
        spec = spec_of(control, driver)
        return None if spec is None else launched_handle(control, driver, log=spec.log)
    return None


def bounded(lines: Sequence[str], most: int = LINES, most_bytes: int = BYTES) -> list[str]:
    """Lines without those in the middle that are too many; in their place stands how many they were."""
    while True:
        short = list(lines)
        if len(lines) > most:
            half = (most - 1) // 2
            short = [*lines[:half], f"... {len(lines) - 2 * half} lines more", *lines[-half:]]
        if min(most, len(lines)) <= 3 or sum(len(line.encode()) + 1 for line in short) <= most_bytes:
            return short
        most = min(most, len(short)) * 3 // 4
