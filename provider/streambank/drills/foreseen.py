"""Whether a job's application could run on a copy at all, seen before a savepoint is made to rehearse it.

What its last driver recorded says where it writes and what it reads, and its launcher is asked
as at a start. What only the run itself shows is left to the rehearsal.
"""

from __future__ import annotations

from streambank.code.chosen import as_chosen
from streambank.control.control import JobControl
from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.drills.copy_of_job import check_scratch, output_in, scratch_of
from streambank.drills.drill import as_drilled
from streambank.drills.request import DrillRequest
from streambank.driver.launcher import Launcher
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.outputs import recorded_output
from streambank.driver.redirected import check_source_kinds, reaches_live_query, redirected
from streambank.job.start import check_launch
from streambank.sinks.redirect import Redirect


def foresee_rehearsal(job: Job, control: JobControl, *, launcher: Launcher | None = None) -> None:
    """Refuse a rehearsal that could not run the job's application. Only reads.

    Raises:
        RefusedError: A query writes or reads what a copy must not (code `rehearsal-not-run`); or as
            `as_drilled`.
        InputError: The copy would not lie apart (code `scratch-not-apart`).
        StreambankError: The application could not be started (`check_launch`).
    """
    live = as_drilled(DrillRequest(job))
    check_scratch(live, control, scratch_of(live, "rehearsal"), live.repository)
    runs = as_chosen(live, control)[0]
    check_launch(runs, control, launcher or launcher_for(runs))
    why = why_not_run(live, control)
    if why:
        raise RefusedError(
            f"A rehearsal could not run the application of job {job.name}: {why}",
            code="rehearsal-not-run",
            hint="Leave out the rehearsal, and look at the job closely after the restore.",
        )


def why_not_run(job: Job, control: JobControl) -> str:
    """Why the runner would refuse to start a query of the job on a copy; empty where nothing says so."""
    for query in job.queries:
        facts, generation = control.query_facts(query) or {}, control.generation(query)
        if generation is None or facts.get("generation") != generation.number:
            continue  # a generation may have another sink than the one before it
        output = recorded_output(facts, "redirected_from") or recorded_output(facts)
        kinds = (facts.get("kafka") or {}).get("streams") or ()
        try:
            if output is not None:
                redirected(Redirect(output_in("", query), scratch=True), output, query)
            check_source_kinds(kinds, query, job.drill.sources)
            for option in facts.get("fixed_options") or ():
                raise reaches_live_query(query, option)
        except RefusedError as refused:
            return refused.message
    return ""
