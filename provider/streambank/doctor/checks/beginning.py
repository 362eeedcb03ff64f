"""Files of a first batch that no log tells of, which Spark does not start over.

Where `offsets/` has no batch, Spark begins with batch 0, and wants `offsets`, `commits` and `state` to be
empty (4.3.0: MicroBatchExecution.verifyNewCheckpointDirectory); else it fails with
STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY. A first batch that is planned, `offsets/0`, is simply run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streambank.checkpoint.grammar import Kind, Part, classify
from streambank.core.finding import Finding

_WANTED_EMPTY = ("commits", "offsets", "state")


def check_beginning(paths: Iterable[str]) -> Iterator[Finding]:
    """Leftovers of a first batch that was never planned, or batches whose `offsets` are lost.

    Args:
        paths: Every file of the checkpoint, relative to it.
    """
    parts = [classify(path) for path in sorted(paths)]
    if any(part.kind is Kind.OFFSETS for part in parts):
        return
    left = [part for part in parts if part.path.partition("/")[0] in _WANTED_EMPTY]
    if not left:
        return
    folders = " and ".join(dict.fromkeys(part.path.partition("/")[0] for part in left))
    effect = f"Spark does not start: {folders} must be empty (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY)."
    proof = next((part.path for part in parts if _is_of_a_batch_that_ran(part)), None)
    if proof is not None:
        yield Finding(
            "offsets-lost",
            "error",
            "offsets",
            f"No batch is planned in offsets, and {proof} tells of batches that ran.",
            effect,
            "Restore a savepoint. Moving files aside would make the query begin again, at its first batch, "
            "and repeat or lose rows in its sinks.",
        )
        return
    yield Finding(
        "unplanned-first-batch",
        "error",
        left[0].path,
        f"{len(left)} files lie in {folders}, and no batch is planned or committed.",
        effect,
        f"While no driver runs, move {folders} out of the checkpoint, leave metadata and sources, and start "
        "again: nothing of the query is committed, so nothing is lost. This holds where offsets and commits "
        "were not deleted by somebody: name the query's file sinks with --file-sink, and where one of them "
        "has batches (sink-ahead), restore a savepoint instead.",
    )


def _is_of_a_batch_that_ran(part: Part) -> bool:
    """Whether a file tells that the first batch was committed, or that there was a second one."""
    if part.kind is Kind.COMMITS:
        return True
    if part.of is not None:
        return part.kind is not Kind.TEMPORARY and _is_of_a_batch_that_ran(classify(part.of))
    return (part.version or 0) > 1 or (part.batch or 0) > 0
