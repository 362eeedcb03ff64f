"""What is wrong with a checkpoint, or will be: damage, garbage, a sink ahead, little time for a take.

Files of a first batch that no log tells of, which Spark does not start over.

Where `offsets/` has no batch, Spark begins with batch 0, and wants `offsets`, `commits` and `state` to be
empty (4.3.0: MicroBatchExecution.verifyNewCheckpointDirectory); else it fails with
STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY. A first batch that is planned, `offsets/0`, is simply run again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from streambank.checkpoint.compactible import LogName, entries_up_to
from streambank.checkpoint.grammar import Kind, Part, classify
from streambank.checkpoint.inspection import Inspection
from streambank.checkpoint.position import batches_in
from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import NotFoundError, StreambankError
from streambank.core.finding import Finding
from streambank.repository.manifest import Manifest
from streambank.savepoint.plan import Budget
from streambank.sinks.file.lacking import lacking
from streambank.sinks.file.log import LOG_DIRECTORY, chain, list_log
from streambank.sinks.file.nearby import skipped_by
from streambank.storage.store import FileInfo, Store

GARBAGE_AGE = timedelta(hours=1)
"""A temporary file that nobody has touched for so long was left by a driver that was killed."""

SINK_LOOKS = 3
"""So often is looked before a sink and its checkpoint are said to contradict each other."""

SHORT_BUDGET_S = 10.0
"""A take that has less time than this between two cleanings may have to plan again."""


def check_inputs(
    checkpoint: Store,
    inspection: Inspection,
    listing: Mapping[str, FileInfo],
    sinks: Mapping[str, Store],
    now: datetime,
    savepoints: Sequence[Manifest] = (),
) -> list[Finding]:
    """Everything that is wrong, or worth knowing, about a checkpoint. Only reads.

    Args:
        sinks: Output directories of the query's file sinks, by the names to report them by.
        savepoints: The newest ones, which say how long it took to take them.
    """
    found = [each for each in inspection.findings if each.code != "temporary-files"]
    if (skipped := _skipped(checkpoint, inspection, listing, sinks)) is not None:
        found = [skipped, *(each for each in found if each.code != "missing-state-file")]
    found += check_garbage(listing.values(), now)
    if _was_cleaned(listing):  # else nobody can tell how many batches it will keep
        found += check_budget(Budget.of(listing), savepoints, holds=checkpoint.features.holds)
    if CheckpointReader(checkpoint).last_planned() is None:  # else a first batch has begun since the listing
        found += check_beginning(listing)
    for name, store in sinks.items():
        found += check_sink(name, store, checkpoint)
        found += check_output(name, store)
    return found


def _skipped(
    checkpoint: Store, inspection: Inspection, listing: Iterable[str], sinks: Mapping[str, Store]
) -> Finding | None:
    """Batches that were committed and left no state behind, in any partition: a sink has skipped them.

    That happens where a checkpoint went back to a batch and the sink did not. Spark's file sink, and Delta's
    own, do not compute a batch that they have already, so nothing writes its state (4.3.0: FileStreamSink).
    """
    last = inspection.last_committed_batch
    broken = any(
        finding.code == "missing-state-file" and finding.severity == "error"
        for finding in inspection.findings
    )
    versions = [part.version for part in map(classify, listing) if part.kind in _STATE and part.version]
    if last is None or not broken or not versions or max(versions) > last:
        return None
    first = max(versions)  # version n is the state after batch n - 1
    which = f"batch {last} was" if first == last else f"batches {first} to {last} were"
    by = skipped_by(checkpoint.uri, [sink.uri for sink in sinks.values()], first, last)
    why = (
        f"The file sink {by} had them before they were planned, since it did not go back when the checkpoint "
        "did, so Spark skipped them."
        if by is not None
        else "So does a sink that has them already, since it did not go back when the checkpoint did: Spark "
        "skips them. Else the files of state were deleted."
    )
    sink = by or "DIR"
    return Finding(
        "batches-skipped",
        "error",
        "state",
        f"{which[0].upper()}{which[1:]} committed without state: the newest state is that of batch "
        f"{first - 1}. {why}",
        f"The query cannot start again: it looks for the state after batch {last} and fails each time "
        "(CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS). No savepoint of its newest batch can "
        "be taken.",
        "Stop it, and restore a savepoint into a new directory, together with its output: `streambank "
        f"restore latest-good --job NAME --into NEW --file-sink {sink} --sink rollback`; for a declared job "
        "with --generation instead of --into.",
    )


_STATE = (Kind.DELTA, Kind.SNAPSHOT, Kind.ZIP, Kind.CHANGELOG)


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


def check_budget(
    budget: Budget, savepoints: Sequence[Manifest] = (), *, holds: bool = True
) -> Iterator[Finding]:
    """How long a committed batch stays whole: the time in which a take has to hold or copy its files.

    Args:
        savepoints: The newest ones: those that planned again, or could hold nothing, say what they need.
        holds: Whether files can be held at once, whatever their size.
    """
    if budget.retained_batches < 2 or budget.batch_period_s is None:
        return
    has_s = budget.retained_batches * budget.batch_period_s
    needed_s, which = _needed(savepoints, holds)
    if has_s < max(SHORT_BUDGET_S, needed_s):
        fits = max(int(SHORT_BUDGET_S / budget.batch_period_s), int(2 * needed_s / budget.batch_period_s)) + 1
        yield Finding(
            "short-retention",
            "warning",
            "commits",
            f"{budget.retained_batches} batches of {budget.batch_period_s:.2f} s are kept: {has_s:.1f} "
            f"s.{which}",
            "A take of a large state may have to start over while the query runs.",
            f"Set spark.sql.streaming.minBatchesToRetain to {fits} or more.",
        )


def _was_cleaned(listing: Iterable[str]) -> bool:
    """Whether Spark has deleted old batches: a young query, and one just restored, has few for other reasons.

    Spark takes the same batches from both logs, and a restored checkpoint has one more of what was planned.
    """
    found: dict[Kind, int] = {}
    for part in map(classify, listing):
        if part.kind in (Kind.OFFSETS, Kind.COMMITS) and part.batch is not None:
            found[part.kind] = min(part.batch, found.get(part.kind, part.batch))
    return 0 < found.get(Kind.COMMITS, 0) <= found.get(Kind.OFFSETS, 0)


def _needed(savepoints: Sequence[Manifest], holds: bool) -> tuple[float, str]:
    took = [
        (float(seconds), replans, savepoint.savepoint)
        for savepoint in savepoints
        if isinstance(seconds := savepoint.stats.get("seconds"), int | float)
        and ((replans := savepoint.stats.get("replans") or 0) > 0 or not holds)
    ]
    if not took:
        return 0.0, ""
    seconds, replans, savepoint = max(took)
    again = f", and had to plan {replans} times again" if replans else ""
    return seconds, f" Savepoint {savepoint} took {seconds:.1f} s{again}."


def check_sink(name: str, sink: Store, checkpoint: Store) -> list[Finding]:
    """A file sink whose log and the checkpoint do not belong together, or that has no log.

    Both may move while they are read. So what looks like an error is looked at again, from the beginning.
    """
    found: list[Finding] = []
    for _ in range(SINK_LOOKS):
        found = list(_look_at_sink(name, sink, checkpoint))
        if not any(finding.severity == "error" for finding in found):
            break
    return found


def _look_at_sink(name: str, sink: Store, checkpoint: Store) -> Iterator[Finding]:
    # Spark plans a batch, writes it to the sink, and commits it. Read against that order, no batch that comes
    # meanwhile is taken for one that the sink has too much or too little.
    last_committed = batches_in(checkpoint).committed
    try:
        log = list_log(sink)
    except StreambankError as error:
        yield Finding(error.code, "error", name, error.message, "The sink cannot be judged.", error.hint)
        return
    last_planned = batches_in(checkpoint).planned
    batches = [entry.batch for entry in log]
    if not batches:
        yield Finding(
            "no-sink-log",
            "warning",
            name,
            "This directory has no log of a file sink (_spark_metadata).",
            "A savepoint with this sink cannot be taken.",
            "Name the directory that the query writes to.",
        )
        return
    yield from _check_gap(name, log)
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
    if last_committed is not None and max(batches) < last_committed:
        yield Finding(
            "sink-behind",
            "error",
            name,
            f"The checkpoint has committed batch {last_committed}, and the sink has batches up to "
            f"{max(batches)} only.",
            "Spark does not run the batches between again: their rows are missing in the output, and the "
            "query stops with BATCH_METADATA_NOT_FOUND when Spark next compacts the sink's log.",
            f"Restore a savepoint of batch {max(batches)} or before; or name the directory that the query "
            "writes to.",
        )


def check_output(name: str, sink: Store) -> Iterator[Finding]:
    """Data files that an output's log names, and that are not there.

    A batch's files are there before its entry is, so what the log names first and the listing lacks then is
    gone. A log that is being compacted is read again.
    """
    for _ in range(SINK_LOOKS):
        try:
            log = list_log(sink)
            found = lacking(sink, chain(log, max(log).batch, name) if log else ())
        except NotFoundError:
            continue  # it moves, or has a gap, which is said besides
        except StreambankError as error:
            yield Finding(error.code, "error", name, error.message, "The sink cannot be judged.", error.hint)
            return
        if found.missing:
            yield Finding(
                "sink-files-gone",
                "error",
                name,
                found.sentence(sink.uri),
                "Readers of the output fail, and a restore of a savepoint that knows these files is refused "
                "until somebody accepts that they are gone.",
                "Bring the files back, for example from a copy of the output, or find out who deletes them.",
            )
        return


def _check_gap(name: str, log: Collection[LogName]) -> Iterator[Finding]:
    """A log that lacks an entry which Spark looks for: from the newest back to a compacted one, or to 0."""
    try:
        entries_up_to(log, max(entry.batch for entry in log), LOG_DIRECTORY)
        return
    except NotFoundError as error:
        missing = error.message
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


_WANTED_EMPTY = ("commits", "offsets", "state")


def check_beginning(paths: Iterable[str]) -> Iterator[Finding]:
    """Leftovers of a first batch that was never planned, or batches whose `offsets` are lost."""
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
