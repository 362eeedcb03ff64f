"""How a driver that is gone had ended, by the job's records."""

from __future__ import annotations

from typing import Literal

from streambank.checkpoint.position import Batches, batches_of
from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.control.generations import MAIN
from streambank.core.errors import NotFoundError
from streambank.declaration.declaration import Job

How = Literal["boundary", "forced", "killed", "dead", "none"]


def how_it_ended(
    control: JobControl, job: Job, request: int, view: ClaimView, killed: bool
) -> tuple[How, bool | None]:
    """How the driver ended that had the lease last, and whether it was drained.

    Args:
        control: The job's records.
        job: The job.
        request: By which it was asked to stop.
        view: Its lease, which is over.
        killed: Whether whoever stopped it had to.
    """
    answer = control.requests.answer_to(request) or {}
    drained = answer.get("drained")
    if killed:
        return "killed", drained
    if view.state == "dead":
        return ("killed" if _was_killed_by_its_runner(control, view) else "dead"), drained
    if answer.get("state") == "forced" or not all(
        one.at_boundary for one in last_batches(control, job).values()
    ):
        return "forced", drained
    return "boundary", drained


def how_it_answered(control: JobControl, request: int) -> tuple[How, bool | None]:
    """How a driver ended whose lease somebody else has had since: only its answer tells."""
    answer = control.requests.answer_to(request)
    if answer is None:
        return "dead", None
    return ("forced" if answer.get("state") == "forced" else "boundary"), answer.get("drained")


def _was_killed_by_its_runner(control: JobControl, view: ClaimView) -> bool:
    last = control.last_event("killed", "driver-started")
    return last is not None and last.get("kind") == "killed" and last.get("epoch") == view.epoch


def last_batches(control: JobControl, job: Job) -> dict[str, Batches]:
    """The newest batches of each query, in its current generation; none where there is no checkpoint yet."""
    found = {}
    for name, declared in job.queries.items():
        generation = control.generation(None if name == MAIN else name)
        try:
            found[name] = batches_of(generation.location if generation else declared)
        except NotFoundError:
            found[name] = Batches(None, None)
    return found
