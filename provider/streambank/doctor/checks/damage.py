"""Files of a live checkpoint that the query loads at its next start, and that are damaged."""

from __future__ import annotations

from collections.abc import Iterator

from streambank.core.errors import NotFoundError
from streambank.core.finding import Finding
from streambank.doctor.subject import Query
from streambank.driver.damage import way_out
from streambank.repository.repository import Repository
from streambank.savepoint.live_damage import find_damage
from streambank.storage import open_store


def check_damage(query: Query) -> Iterator[Finding]:
    """Damage that a running query does not notice, and that its next start fails by.

    Args:
        query: What was looked at. What its inspection has found already is said again only with the savepoint
            that is the way out.
    """
    savepoints = query.savepoints or ()
    try:
        repository = Repository.open(open_store(query.repository)) if query.repository else None
    except NotFoundError:
        repository = None
    newest = savepoints[0] if savepoints else None
    said = {finding.cause for finding in query.inspection.findings if finding.severity == "error"}
    for one in find_damage(query.checkpoint, query.planner, savepoints, repository):
        if newest is None and any(cause.startswith(one.cause) for cause in said):
            continue
        if query.job is not None:
            hint = way_out(query.job.name, query.query, newest)
        elif newest is not None:
            hint = (
                f"Restore {newest.savepoint} into another directory: `streambank restore {newest.savepoint} "
                "-r REPOSITORY --into DIRECTORY`."
            )
        else:
            hint = "Restore a savepoint, or repair the file from a backup."
        if not one.fatal:
            yield Finding(
                "damaged-snapshot",
                "warning",
                one.path,
                one.cause,
                "Spark has to repair this snapshot from an older one and the changes since.",
                "Let the query write another snapshot, and look for the reason on the disk.",
            )
            continue
        yield Finding(
            "checkpoint-damaged",
            "error",
            one.path,
            one.cause,
            "The query fails when it loads this file, at its next start at the latest.",
            hint,
        )
