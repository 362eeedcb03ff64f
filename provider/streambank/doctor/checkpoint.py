"""What is wrong with a checkpoint, or will be: damage, garbage, a sink ahead, little time for a take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from streambank.checkpoint.compactible import entries_up_to
from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.reader import CheckpointReader
from streambank.doctor.beginning import check_beginning
from streambank.errors import NotFoundError, StreambankError
from streambank.finding import Finding
from streambank.savepoint.plan import Budget
from streambank.sinks.file_log import LOG_DIRECTORY, list_log
from streambank.storage.base import FileInfo, Store
from streambank.times import utc_now

GARBAGE_AGE = timedelta(hours=1)
"""A temporary file that nobody has touched for so long was left by a driver that was killed."""

SHORT_BUDGET_S = 10.0
"""A take that has less time than this between two cleanings may have to plan again."""


def check_checkpoint(
    checkpoint: Store, sinks: Mapping[str, Store] | None = None, now: datetime | None = None
) -> list[Finding]:
    """Everything that is wrong, or worth knowing, about a checkpoint. Only reads.

    Args:
        checkpoint: The checkpoint directory.
        sinks: Output directories of the query's file sinks, by the names to report them by.
        now: The time to judge ages by.

    Raises:
        NotFoundError: There is no checkpoint.
        StorageError: The environment failed.
    """
    reader = CheckpointReader(checkpoint)
    inspection = reader.inspect()
    listing = reader.listing()
    found = [each for each in inspection.findings if each.code != "temporary-files"]
    found += check_garbage(listing.values(), now or utc_now())
    found += check_budget(Budget.of(listing))
    if reader.last_planned() is None:  # else a first batch has begun since the listing
        found += check_beginning(listing)
    for name, store in (sinks or {}).items():
        found += check_sink(name, store, inspection.last_planned_batch)
    return found


def check_garbage(listing: Iterable[FileInfo], now: datetime) -> Iterator[Finding]:
    """Temporary files that nobody is writing any more."""
    before_ns = int((now - GARBAGE_AGE).timestamp() * 1e9)
    old = [
        info for info in listing if info.mtime_ns < before_ns and classify(info.path).kind is Kind.TEMPORARY
    ]
    if old:
        size_bytes = sum(info.size_bytes for info in old)
        yield Finding(
            "old-temporary-files",
            "warning",
            min(info.path for info in old),
            f"{len(old)} temporary files ({size_bytes} bytes) have not been touched for an hour or longer.",
            "A killed driver left them; Spark never deletes them.",
            "Delete them while no driver runs; savepoints do not carry them.",
        )


def check_budget(budget: Budget) -> Iterator[Finding]:
    """How long a committed batch stays whole: the time in which a take has to hold its files."""
    if budget.retained_batches < 2 or budget.batch_period_s is None:
        return
    has_s = budget.retained_batches * budget.batch_period_s
    if has_s < SHORT_BUDGET_S:
        fits = int(SHORT_BUDGET_S / budget.batch_period_s) + 1
        yield Finding(
            "short-retention",
            "warning",
            "commits",
            f"{budget.retained_batches} batches of {budget.batch_period_s:.2f} s are kept: {has_s:.1f} s.",
            "A take of much state may have to plan again and again while the query runs.",
            f"Set spark.sql.streaming.minBatchesToRetain to {fits} or more.",
        )


def check_sink(name: str, sink: Store, last_planned: int | None) -> Iterator[Finding]:
    """A file sink whose log knows batches that the checkpoint has never planned, or that has no log."""
    try:
        batches = [entry.batch for entry in list_log(sink)]
    except StreambankError as error:
        yield Finding(error.code, "error", name, error.message, "The sink cannot be judged.", error.hint)
        return
    if not batches:
        yield Finding(
            "no-sink-log",
            "warning",
            name,
            "There is no file sink's log (_spark_metadata) here.",
            "A savepoint with this sink cannot be taken.",
            "Name the directory that the query writes to.",
        )
        return
    yield from _check_gap(name, sink)
    if last_planned is None or max(batches) > last_planned:
        yield Finding(
            "sink-ahead",
            "error",
            name,
            f"The sink has batch {max(batches)}, and the checkpoint has planned "
            f"{'none' if last_planned is None else f'up to {last_planned} only'}.",
            "Spark skips the batches that the sink has, and loses their new rows in silence.",
            "Restore a savepoint with --sink rollback, or give the query another output directory.",
        )


def _check_gap(name: str, sink: Store) -> Iterator[Finding]:
    """A log that lacks an entry which Spark looks for: from the newest back to a compacted one, or to 0."""
    missing = _missing_entry(sink)
    if missing is None or _missing_entry(sink) is None:  # it was compacted while it was listed
        return
    yield Finding(
        "sink-log-gap",
        "error",
        f"{name}/{LOG_DIRECTORY}",
        missing,
        "Readers of the output fail, and the query stops with BATCH_METADATA_NOT_FOUND at its next start, or "
        "when Spark next compacts the log.",
        "Restore the savepoint that the query began from once more, with --new-sink and an empty directory; "
        "or restore one with --sink rollback.",
    )


def _missing_entry(sink: Store) -> str | None:
    names = list_log(sink)
    try:
        entries_up_to(names, max(name.batch for name in names), LOG_DIRECTORY)
    except NotFoundError as error:
        return error.message
    return None
