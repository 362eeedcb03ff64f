"""The rehearsal of a savepoint that was made of another one: the application goes on from a copy."""

from __future__ import annotations

from collections.abc import Mapping

from streambank.core.names import MAIN, QueryRef
from streambank.core.units import say_count
from streambank.declaration.declaration import Job
from streambank.drills.drill import rehearse
from streambank.drills.report import DrillReport, why_unproven
from streambank.drills.request import DrillRequest
from streambank.procedure.procedure import Say, quiet
from streambank.repository.repository import Repository
from streambank.storage import open_store


def rehearse_made(
    job: Job,
    place: str,
    savepoint: str,
    repository: str,
    *,
    batches: int | None = None,
    by: Mapping[str, str],
    say: Say = quiet,
) -> DrillReport:
    """Execute the first batches of the job's application on a copy of a savepoint.

    They need not compute what the live query did, since the state is another one. Nothing of it stays but a
    mark: until a rehearsal, or a drill of it, has passed, only its id or its name means the savepoint. The
    job's records of drills do not count it.

    Args:
        place: `job` or `job/query`.
        batches: How many batches of the live query are executed again; the declared number when left out.

    Raises:
        InputError, RefusedError: As `streambank.drills.drill.rehearse`.
    """
    opened = Repository.open(open_store(repository))
    opened.mark_rehearsal(place, savepoint, passed=False, by=by)  # first: a rehearsal may be killed
    report = rehearse(
        DrillRequest(
            job,
            savepoints={QueryRef.parse(place).query or MAIN: savepoint},
            repository=repository,
            batches=batches,
            compare="none",
            by=by,
            why=f"rehearsal of {savepoint}",
        ),
        say=say,
    )
    if report.passed and not report.not_run:
        opened.mark_rehearsal(place, savepoint, passed=True, by=by)
    return report


def verdict(report: DrillReport) -> str:
    """How such a rehearsal ended, for people."""
    if not report.passed:
        return f"The rehearsal FAILED at the step {report.failed_step}: {report.error}"
    if report.not_run:
        return f"The rehearsal could not run the job's application on it: {report.not_run}"
    went = ", ".join(
        f"query {one.query}: {say_count(len(one.batches), 'batch')} of the live query executed again"
        for one in report.queries
    )
    why = why_unproven(report)
    return f"The job's application ran on it ({went}).{f' Not proven: {why}' if why else ''}"


def do_not_restore(savepoint: str, of: str) -> str:
    """What follows from a rehearsal that failed."""
    return f"Do not restore {savepoint} before that is understood. {of} is unchanged."
