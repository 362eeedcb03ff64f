"""Which batches can be planned at all, by the names of their logs; signs of logs not written per batch."""

from __future__ import annotations

from streambank.checkpoint.files import CheckpointFiles
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.sources import file_log_offset
from streambank.core.errors import FormatError, NotFoundError

_ASYNC_HINT = (
    "Asynchronous progress tracking and real-time mode write such logs, and savepoints do not support them: "
    "run the query without. If it never used them, files are missing, and a newer batch may be whole."
)


def choose_batch(index: CheckpointIndex, batch: int | None) -> int:
    """The batch asked for, or the newest committed one.

    Raises:
        NotFoundError: `not-a-checkpoint` or `no-committed-batch`.
    """
    if not index.metadata and not index.offsets and not index.commits:
        raise NotFoundError(
            "There is no checkpoint here: neither metadata nor offsets nor commits.",
            code="not-a-checkpoint",
            hint="Give the directory that the query has as its checkpointLocation.",
        )
    if not index.commits and batch is None:
        raise NotFoundError(
            "The query has not committed any batch yet: there is nothing in commits/.",
            code="no-committed-batch",
            hint="Wait for its first batch.",
        )
    return max(index.commits) if batch is None else batch


def check_logs(index: CheckpointIndex, batch: int) -> None:
    """Whether the logs of a batch are there, by name.

    Raises:
        NotFoundError: `batch-not-committed`, `batch-not-retained` or `missing-log-entry`.
    """
    newest, oldest = max(index.commits, default=None), min(index.commits, default=batch)
    if batch not in index.commits:
        if newest is None or batch > newest:
            planned = "is planned, but not committed" if batch in index.offsets else "is not committed"
            last = "and no other is" if newest is None else f"and the newest one that is is {newest}"
            raise NotFoundError(
                f"Batch {batch} {planned} (there is no commits/{batch}), {last}.",
                code="batch-not-committed",
                hint="Wait until it is committed, or take an older one.",
            )
        if batch < oldest:
            raise _not_retained(index, batch, f"commits/{batch}")
        raise _gap(index, batch, f"commits/{batch}")
    for wanted in (batch, batch - 1):
        if wanted < 0 or wanted in index.offsets:
            continue
        if not index.offsets or wanted < min(index.offsets):
            raise _not_retained(index, batch, f"offsets/{wanted}")
        raise _gap(index, batch, f"offsets/{wanted}")


def refuse_asynchronous(index: CheckpointIndex, files: CheckpointFiles, batch: int) -> None:
    """Refuse logs that are not written for every batch.

    Both logs having the same gap is one sign. A file source's log that is two or more entries ahead of the
    last planned batch is the other: Spark otherwise plans a batch right after it has logged the files for it.

    Raises:
        FormatError: `async-progress`.
    """
    for first, second in zip(sorted(index.offsets), sorted(index.offsets)[1:], strict=False):
        if second != first + 1 and not any(gap in index.commits for gap in range(first + 1, second)):
            raise FormatError(
                f"The logs have no batch between {first} and {second}: they are not written for every batch.",
                code="async-progress",
                hint=_ASYNC_HINT,
            )
    newest = max(index.offsets)
    try:
        planned = files.offsets(index.offsets[newest]).sources
    except FormatError:
        if newest <= batch:
            raise
        return  # damage of a batch that is not asked for; the batches before it stay good
    for source, offset in planned.items():
        last = file_log_offset(offset)
        entries = (part.batch for part in index.sources.get(source, ()) if part.batch is not None)
        logged = max(entries, default=-1)
        if last is not None and logged > last + 1:
            raise FormatError(
                f"sources/{source} goes on to entry {logged}, and the newest planned batch {newest} "
                f"ends at {last}.",
                code="async-progress",
                hint=_ASYNC_HINT,
            )


def _gap(index: CheckpointIndex, batch: int, path: str) -> FormatError | NotFoundError:
    number = int(path.rpartition("/")[2])
    if number not in index.commits and number not in index.offsets:
        return FormatError(
            f"{path} is missing among newer and older ones: the logs are not written for every batch.",
            code="async-progress",
            hint=_ASYNC_HINT,
        )
    return NotFoundError(
        f"{path} is missing, though batch {batch} needs it.",
        code="missing-log-entry",
        hint="The checkpoint is damaged. Take another batch.",
    )


def _not_retained(index: CheckpointIndex, batch: int, path: str) -> NotFoundError:
    oldest = min(index.commits)
    while oldest > 0 and oldest - 1 not in index.offsets and oldest < max(index.commits):
        oldest += 1
    return NotFoundError(
        f"Batch {batch} is not retained any more: {path} is gone, and batches {oldest} to "
        f"{max(index.commits)} are left.",
        code="batch-not-retained",
        hint="Take a retained batch, or raise spark.sql.streaming.minBatchesToRetain.",
    )
