"""Whether a driver has got going: each query has had its first trigger, with data or without."""

from __future__ import annotations

from streambank.checkpoint.position import batches_of
from streambank.control.claims import ClaimView
from streambank.declaration.declaration import Job
from streambank.driver.spec import LaunchSpec


def has_got_going(job: Job, launch: LaunchSpec | None, view: ClaimView) -> bool:
    """Whether each declared query has had its first trigger, by the heartbeat or by the commit log."""
    said = view.status.get("queries")
    seen = said if isinstance(said, dict) else {}
    for name in job.queries:
        query = seen.get(name)
        triggered = isinstance(query, dict) and query.get("triggered")
        if not triggered and not _has_committed(launch, name):
            return False
    return True


def _has_committed(launch: LaunchSpec | None, name: str) -> bool:
    """Whether the query has committed a batch that was not there before its driver was launched."""
    query = launch.queries.get(name) if launch else None
    if query is None:
        return False
    committed = batches_of(query.checkpoint).committed
    return committed is not None and (query.committed is None or committed > query.committed)
