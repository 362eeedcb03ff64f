"""The rehearsal of an upgrade: the new code on a copy, beside the old code."""

from __future__ import annotations

from typing import Any

from streambank.checkpoint.position import batches_of
from streambank.control.control import JobControl
from streambank.core.errors import NotFoundError, RefusedError
from streambank.declaration.declaration import Job
from streambank.drills.drill import rehearse as drill
from streambank.drills.report import DrillReport
from streambank.drills.request import DrillRequest
from streambank.driver.launcher import Launcher
from streambank.driver.outputs import check_output, recorded_output
from streambank.driver.preflight import declared_query
from streambank.job.savepoint import savepoint_job
from streambank.procedure.procedure import Say
from streambank.upgrade.plan import UpgradeRequest


def rehearse(
    request: UpgradeRequest,
    name: str,
    runs: Job,
    control: JobControl,
    launcher: Launcher,
    say: Say,
) -> DrillReport:
    """Run the new code on a copy of a fresh savepoint of each query."""
    job = request.job
    batches = job.drill.batches if request.batches is None else request.batches
    options: dict[str, Any] = {"by": request.by, "why": f"{name}: the rehearsal", "control": control}

    def savepoint(query: str) -> str:
        """A fresh savepoint, with batches of the live query after it that the new code can execute again."""
        generation = control.generation(query)
        committed = None if generation is None else batches_of(generation.location).committed
        if committed is not None and committed - batches >= 0 < batches:
            try:
                taken = savepoint_job(job, batch=committed - batches, query=query, **options)
                return taken.savepoints[query].savepoint
            except (NotFoundError, RefusedError) as error:
                say(f"no savepoint of batch {committed - batches}, so of the newest: {error.message}")
        return savepoint_job(job, query=query, **options).savepoints[query].savepoint

    def check_outputs(copy: JobControl) -> None:
        """What the new code's driver would be refused for, by where its queries were to write."""
        for query in job.queries:
            named = recorded_output(copy.query_facts(query) or {}, "redirected_from")
            generation = control.generation(query)
            if named is not None and generation is not None:
                check_output(declared_query(job, query, control), generation, named)

    return drill(
        DrillRequest(
            job,
            savepoints={query: savepoint(query) for query in job.queries},
            repository=job.repository,
            batches=batches,
            scratch=request.scratch,
            timeout_s=request.timeout_s,
            by=request.by,
            why=name,
            runs=runs,
            compare=request.compare,
            inspect=check_outputs,
        ),
        launcher=launcher,
        say=say,
    )
