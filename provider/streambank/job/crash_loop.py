"""A job that starts again and again and gets nowhere: nobody starts it any more, and a person is told why.

What is meant to be stays as it is, and so does a driver that lives: deciding is the person's. What they need
for it is the last error, and the savepoint that they would go back to. Nor does a cluster start it any more
that brings its drivers back: a stop is recorded against the launch, which the next one to come back obeys
(driver/stops.py), whether one lives just now or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streambank.control.control import JobControl
from streambank.core.errors import StreambankError
from streambank.core.names import MAIN
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from streambank.driver.failure import SEARCHED_LINES, driver_failure
from streambank.driver.launcher import Handle, Launcher
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.spec import spec_of
from streambank.driver.stops import mark_stop
from streambank.job.status import job_status
from streambank.repository.catalog import SavepointSummary, newest_first
from streambank.repository.repository import Repository
from streambank.sites.forks import others_among

CRASH_LOOP = "crash-loop"
"""The kind of event that says that a job is not started any more, and why."""


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """What a person needs to know.

    Attributes:
        why: What happened again and again, as half a sentence.
        error: The last error of the last driver, without secrets; None where nothing tells.
        savepoints: In half a sentence for each query, its last good savepoint.
    """

    job: str
    why: str
    error: str | None
    log: str | None
    savepoints: Mapping[str, str]
    lives: bool

    @property
    def message(self) -> str:
        """All of it for a person, with what they can do."""
        saved = "; ".join(
            text if query == MAIN else f"query {query}: {text}" for query, text in self.savepoints.items()
        )
        left = "Its driver is left running" if self.lives else "No driver of it runs"
        parts = [
            f"Job {self.job} is not started any more: {self.why}.",
            f"Last error: {self.error.rstrip('.')}." if self.error else "Its drivers' logs show no error.",
            f"Last good savepoint: {saved}.",
            f"{left}, and its desired state is still running. Hint: repair the cause and trigger "
            f"{self.job}.run again, restore the savepoint with {self.job}.restore, or stop it: `streambank "
            f"job stop {self.job}`.",
        ]
        return " ".join(parts) + (f" The driver's log is {self.log}." if self.log else "")


def record_crash_loop(
    job: Job,
    *,
    why: str,
    by: Mapping[str, str],
    launcher: Launcher | None = None,
    **facts: Any,
) -> CrashLoop:
    """Leave behind that a job is not started any more, and gather what a person has to know.

    Args:
        facts: More for the event: how many failures, how many restarts.

    Raises:
        StorageError: The records cannot be read or written. A repository that cannot be read is no error: it
            is said in place of the savepoint.
    """
    records = job.records()
    place = launcher or launcher_for(job)
    status = job_status(job, control=records, launcher=place)
    lives = status.state in ("starting", "running", "stopping", "unknown")
    spec = spec_of(records, status.launch_id) if status.launch_id is not None else None
    if spec is not None and spec.supervised and status.state != "starting":
        mark_stop(records, by=by, why=f"{CRASH_LOOP}: {why}")
    found = CrashLoop(
        job.name,
        why,
        _last_error(records, place, status.driver),
        status.log,
        _saved(job),
        lives,
    )
    records.record_event(
        CRASH_LOOP,
        launch_id=status.launch_id,
        epoch=status.epoch,
        why=why,
        error=found.error,
        savepoints=dict(found.savepoints),
        by=dict(by),
        **facts,
    )
    return found


def _last_error(records: JobControl, launcher: Launcher, driver: Handle | None) -> str | None:
    """What the runner recorded of a query that failed; else what the log says."""
    if driver is None:
        return None
    unknown = None
    try:
        lines = launcher.log_lines(driver, SEARCHED_LINES)
    except StreambankError as error:
        lines, unknown = [], f"unknown, since {error.message}"
    failure = driver_failure(records, driver.launch_id, lines)
    return unknown if failure is None else failure.cause


def _saved(job: Job) -> dict[str, str]:
    try:
        repository = job.open_repository()
        return {name: _newest_good(job, name, repository) for name in job.queries}
    except StreambankError as error:
        return {name: f"unknown, since {error.message.rstrip('.')}" for name in job.queries}


def _newest_good(job: Job, query: str, repository: Repository) -> str:
    """The newest savepoint of the query's line that no verification found damaged, in words."""
    name = job.savepoint_name(query)
    candidates = repository.candidates(name)
    others = others_among(job.records(), name, candidates)
    there = [one for one in candidates if one.savepoint not in others]
    good = [one for one in there if one.verified_ok is not False]
    if not good:
        return "there is none" if not there else "there is none that verified"
    return _described(newest_first(good)[0])


def _described(one: SavepointSummary) -> str:
    taken = f", taken {to_json_time(one.taken_at)}" if one.taken_at else ""
    verified = f"verified ({one.verified_level})" if one.verified_ok else "not verified yet"
    return f"{one.savepoint} of batch {one.batch}{taken}, {verified}"
