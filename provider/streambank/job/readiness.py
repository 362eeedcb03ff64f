"""Whether a driver is ready: what each declared query has done since the launch, and what may still come.

A driver that is up is not ready. It is ready when each declared query has had its first trigger, and its
application has started what it starts: it says so with its heartbeat (docs/formats/job.md). A query that the
job does not declare is refused only at its start, when another one may have committed a batch already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from streambank.checkpoint.position import batches_of
from streambank.control.claims import ClaimView
from streambank.driver.spec import LaunchSpec

QueryStart = Literal["committed", "no-input", "working", "failed", "not-started"]
"""What a query has done since its driver was launched: it has committed a batch; its first trigger found
nothing to read; it runs, and has done neither; it failed before that; its application has not started it."""
_SETTLED = "settled"

_ALONE: Mapping[QueryStart, str] = {
    "committed": "first batch committed",
    "no-input": "no new input found",
    "working": "first batch not committed yet",
    "failed": "its query failed before its first batch",
    "not-started": "no query started",
}
_AMONG: Mapping[QueryStart, str] = {
    "no-input": "no new input for",
    "working": "first batch not committed yet of",
    "failed": "failed before a first batch:",
    "not-started": "not started:",
}


def query_starts(
    names: Iterable[str], launch: LaunchSpec | None, said: Mapping[str, Any]
) -> dict[str, QueryStart]:
    """What each query has done since a driver was launched, by its heartbeat or by the commit log.

    Args:
        launch: The driver's launch; None where that is gone.
        said: What the driver said with its last heartbeat.
    """
    about = said.get("queries")
    of_queries: Mapping[str, Any] = about if isinstance(about, dict) else {}
    return {name: _query_start(name, launch, of_queries.get(name)) for name in names}


def _query_start(name: str, launch: LaunchSpec | None, said: Any) -> QueryStart:
    if _batch(said) >= 0 or _has_committed(launch, name):
        return "committed"
    if not isinstance(said, dict):
        return "not-started"
    if said.get("failed"):
        return "failed"
    return "no-input" if said.get("triggered") or said.get("over") else "working"


def _batch(said: Any) -> int:
    batch = said.get("batch") if isinstance(said, dict) else None
    return batch if isinstance(batch, int) else -1


def _has_committed(launch: LaunchSpec | None, name: str) -> bool:
    """Whether the query has committed a batch that was not there before its driver was launched."""
    query = launch.queries.get(name) if launch else None
    if query is None:
        return False
    committed = batches_of(query.checkpoint).committed
    return committed is not None and (query.committed is None or committed > query.committed)


def are_done(starts: Mapping[str, QueryStart]) -> bool:
    """Whether each query has committed a batch, or found nothing to read."""
    return all(start in ("committed", "no-input") for start in starts.values())


def has_settled(view: ClaimView) -> bool:
    """Whether the application has started what it starts; taken for granted of a driver that does not say."""
    return bool(view.status.get("application", _SETTLED) == _SETTLED)


def say_starts(starts: Mapping[str, QueryStart]) -> str:
    """What the queries have done, as half a sentence for people."""
    if len(starts) == 1:
        return _ALONE[next(iter(starts.values()))]
    committed = sum(start == "committed" for start in starts.values())
    others = [
        f"{words} {', '.join(names)}"
        for start, words in _AMONG.items()
        if (names := [name for name, one in starts.items() if one == start])
    ]
    return "; ".join([f"first batch committed by {committed} of {len(starts)} queries", *others])
