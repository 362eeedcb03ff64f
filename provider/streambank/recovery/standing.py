"""Whether a query stands where its savepoint was taken: asked by whoever must not lose or repeat a row."""

from __future__ import annotations

from streambank.checkpoint.position import batches_of
from streambank.core.errors import RefusedError


def check_stands_at(job: str, location: str, batch: int) -> None:
    """Make sure that a checkpoint has not gone on: this batch is the last, planned and committed.

    Args:
        job: `job` or `job/query`, for the message.
        location: The checkpoint.
        batch: The batch.

    Raises:
        RefusedError: Another one was committed last (code `query-went-on`), or the next one was begun
            (`batch-begun`): what a sink got of that is not always known.
    """
    found = batches_of(location)
    if found.committed != batch:
        raise RefusedError(
            f"{job} does not stand at batch {batch}: the last that was committed in {location} is "
            f"{shown(found.committed)}.",
            code="query-went-on",
            hint="Begin again: stop the job with a savepoint.",
        )
    if found.planned != batch:
        raise RefusedError(
            f"{job} does not stand between two batches: {shown(found.planned)} was begun in {location}, and "
            "not committed.",
            code="batch-begun",
            hint="Start the job, let it finish that batch, and stop it at a batch boundary (without force).",
        )


def shown(batch: int | None) -> str:
    """A batch for people."""
    return "none" if batch is None else f"batch {batch}"
