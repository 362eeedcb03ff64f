"""Where a job went on at its other site: what was saved later on the line that it left does not count.

A site that could not be fenced may run on, and save, after the batch from which the other one went on. Such a
savepoint is the newest one, it verifies, and it is replicated; but the job's outputs are of another line.
"""

from __future__ import annotations

from collections.abc import Sequence

from streambank.sites.records import SiteRecord


def left_after(records: Sequence[SiteRecord], query: str) -> dict[str, int]:
    """Checkpoints that a query has left by fail-overs, each with the last batch that counts.

    A site that goes on in its own checkpoint, because a fail-over from it was given up or a person decided
    for it, has not left that.

    Args:
        records: The records of a site, oldest first.
        query: The query's name.
    """
    left: dict[str, int] = {}
    kept: set[str] = set()
    for record in reversed([one for one in records if one.active and one.number > 1]):
        if record.was == record.site:
            kept.add(record.site)
            continue
        savepoint, checkpoint = record.savepoints.get(query), record.left.get(query)
        digits = (savepoint or "").partition("-")[0].removeprefix("b")
        if record.was not in kept and checkpoint and digits.isdecimal():
            left[checkpoint] = min(int(digits), left.get(checkpoint, int(digits)))
        kept.discard(record.site)
    return left


def why_left(left: dict[str, int], checkpoint: str, batch: int | None) -> str:
    """Why a savepoint is of a line that was left; empty where it is not.

    Args:
        left: See `left_after`.
        checkpoint: The checkpoint that it was taken from.
        batch: Its batch.
    """
    last = left.get(checkpoint)
    if last is None or batch is None or batch <= last:
        return ""
    return (
        f"The job went on at its other site after batch {last}, and this was saved on the line that it left."
    )
