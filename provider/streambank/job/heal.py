"""Restarting a job that makes no progress, and nothing else: whoever saw it may have seen it long ago.

Between the look that found a job unhealthy and the restart lies a queue, perhaps of hours. Meanwhile somebody
may have stopped the job, restored it, or started another driver; and the driver that stood still may go on.
So all of it is looked at again, with the operation lock in hand, before anything is asked of a driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streambank.checkpoint.position import batches_of
from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Launcher
from streambank.job.health import Health, Inputs, Unhealthy, judge_health
from streambank.job.restart import RestartResult, restart_job

UNHEALTHY = "unhealthy"
"""The kind of event that says that a driver was found to make no progress, and is replaced for it."""
CAUSE = "health"
"""What the event of such a restart says it was for."""


def heal_job(
    job: Job,
    found: Unhealthy,
    *,
    by: Mapping[str, str],
    why: str = "",
    launcher: Launcher | None = None,
    args: Sequence[str] | None = None,
) -> RestartResult:
    """Let another driver take over from one that makes no progress, if it still makes none.

    Args:
        args: Arguments of the application for the new driver, as `start_job` takes them.

    Returns:
        The restart, whose new driver holds the lease and may not have got going yet; `not-needed` where the
        driver has made progress since, `not-desired` where somebody has stopped the job. Where another
        driver has come meanwhile, nothing of it is touched.

    Raises:
        ConflictError: Another operation works on the job (code `operation-in-progress`); it is not waited
            for.
        RefusedError: The lease is held by an operation, or cannot be judged (`lease-held`).
        StorageError: As for `restart_job`.
    """
    records = job.records()

    def still_needed() -> bool:
        view = records.lease.settle()
        if view is None or view.free or view.epoch != found.epoch:
            return True  # it is not the driver that was found, so none is stopped; one may have to be started
        health = _look_again(job, records, view, found)
        if health.state == "unhealthy":
            records.record_event(
                UNHEALTHY,
                epoch=view.epoch,
                launch_id=view.launch_id,
                query=health.query,
                still_s=health.still_s,
                window_s=health.window_s,
                by=dict(by),
                why=health.why,
            )
        return health.state == "unhealthy"

    return restart_job(
        job,
        by=by,
        why=f"unhealthy: {found.why}" + (f" ({why})" if why else ""),
        wait=False,
        launcher=launcher,
        control=records,
        only=found.epoch,
        still_needed=still_needed,
        lock_wait_s=0.0,
        cause=CAUSE,
        args=args,
    )


def is_still_unhealthy(job: Job, found: Unhealthy) -> bool:
    """Whether a driver that was found is still there and makes no progress, and nobody sees to it."""
    records = job.records()
    work = records.operation_lock.view()
    if records.is_stopped() or (work is not None and not work.free):
        return False
    view = records.lease.settle()
    if view is None or view.free or view.epoch != found.epoch:
        return False
    return _look_again(job, records, view, found).state == "unhealthy"


def _look_again(job: Job, records: JobControl, view: ClaimView, found: Unhealthy) -> Health:
    """What the driver says now; a heartbeat that has not moved since has been silent as long as then."""
    silent_s = found.silent_s if view.beat.get("beat") == found.beat else 0.0
    now = committed_batches(job, records)
    moved = {name: 0.0 for name, batch in now.items() if batch != found.batches.get(name, batch)}
    policy = job.health.after(found.failures)
    return judge_health(policy, job.queries, view.status, Inputs(silent_s, moved, view.frozen))


def committed_batches(job: Job, records: JobControl) -> dict[str, int | None]:
    """The newest committed batch of each query, in its current generation."""
    return {
        name: batches_of(records.checkpoint(name, declared)).committed
        for name, declared in job.queries.items()
    }
