"""The way back of an upgrade: the savepoint at which the old code stopped, and the old code.

All of it is one operation, so no other starts anything in between. What speaks against it is found before
anything is stopped. The restore comes before the choice of the old code, so that no moment has the old code
on a checkpoint that the new one has moved on. A process that dies in between leaves a job that is meant to
run, and the next upgrade finishes the way back. Once the old code is chosen, the way back is complete: it is
never gone a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streambank.code.chosen import choose_code
from streambank.code.code import Code
from streambank.code.kept import runnable
from streambank.control.control import JobControl
from streambank.control.together import Noted, note_together
from streambank.core.choices import SinkChoice
from streambank.core.errors import RefusedError, StreambankError
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Launcher
from streambank.driver.stops import mark_late_drivers
from streambank.job.stop import stop_job
from streambank.kafka.settings import Brokers
from streambank.procedure.procedure import Say
from streambank.recovery.approval import HELD
from streambank.recovery.plan import RestorePlan
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import hold_job, plan_restore, restore

OPERATION = "upgrade"


def why_undone(upgrade: str, error: str) -> str:
    """Why the old code is chosen again, by which a choice is known as that of a way back."""
    return f"{upgrade} is undone: {error}"


def go_back(
    job: Job,
    control: JobControl,
    savepoints: Mapping[str, str],
    code: Code,
    *,
    launcher: Launcher,
    sink: SinkChoice | None,
    by: Mapping[str, str],
    why: str,
    say: Say,
) -> StreambankError | None:
    """Stop what runs, restore the savepoints, and choose the old code, which is started then.

    Args:
        sink: What becomes of later output; None for `rollback` where it is needed and proven, and nothing
            else.

    Returns:
        What speaks against it, such as rows that would be lost or repeated, or old code that is not there any
            more: then nothing was stopped. None where it is done.

    Raises:
        StreambankError: What a retry may not meet again, and whatever a stop and a restore raise.
    """
    repository = job.open_repository()
    requests = {
        query: RestoreRequest(
            repository,
            savepoint,
            job=job.savepoint_name(query),
            generation=control,
            checkpoint=job.queries[query],
            kafka=Brokers(job.kafka),
            declared_sinks=job.sinks,
            jobs_file=job.source,
            restored_too=frozenset({job.name}),
            by=by,
        )
        for query, savepoint in savepoints.items()
    }
    with control.operation(OPERATION, by=by, wait_s=job.start.timeout_s) as held:
        try:
            plans = {query: plan_restore(request) for query, request in requests.items()}
            for plan in plans.values():
                _choice(plan, sink)
            runnable(code, job, control)
        except StreambankError as error:
            if error.retryable:
                raise
            return error
        say("stopping the new code")
        mark_late_drivers(control, by=by, why=why)
        stop_job(job, by=by, why=why, launcher=launcher, control=control, operation=held, lasting=False)
        with hold_job(control, by=by, operation=held) as job_held:
            if len(requests) > 1:  # no driver runs while some of them are restored, and others not
                noted = {query: Noted(plan.savepoint, plan.generation or 0) for query, plan in plans.items()}
                job_held.check()
                note_together(control, noted, by=by)
            for request in requests.values():
                say(f"restoring {request.reference}")
                restore(replace(request, sink=_choice(plan_restore(request), sink)), held=job_held)
        held.check()
        choose_code(control, Code.declared(job), code, by=by, why=why)
        return None


def _choice(plan: RestorePlan, sink: SinkChoice | None) -> SinkChoice:
    """What becomes of output that is newer than the savepoint.

    Raises:
        RefusedError: Rows would be lost or repeated.
    """
    against: list[StreambankError] = [one for one in plan.other_refusals if one.code != HELD]
    against += plan.source_refusals["refuse"]
    choices: tuple[SinkChoice, ...] = ("refuse", "rollback") if sink is None else (sink,)
    possible = [one for one in choices if not plan.sink_refusals.get(one)]
    if not against and possible:
        return possible[0]
    first = [*against, *plan.sink_refusals[choices[-1]], *plan.sink_refusals[choices[0]]][0]
    raise RefusedError(first.message, code=first.code, hint=first.hint)
