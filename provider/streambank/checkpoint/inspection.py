"""What `inspect` tells about a checkpoint directory, live or damaged: an answer, whatever is in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeVar

from streambank.checkpoint.closure import ClosurePlanner, logs_behind
from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.shape import Closure
from streambank.checkpoint.sources import SourceState
from streambank.checkpoint.state.rocksdb import ReadRange, ZipMetadata
from streambank.core.errors import ConflictError, FormatError, NotFoundError, StorageError, StreambankError
from streambank.core.finding import Finding, Severity
from streambank.core.units import from_epoch_ms, say_count, to_json_time
from streambank.storage import FileInfo

MAX_THOROUGH_READS = 5000
"""So many snapshots and changelogs are opened to tell which batches are whole; beyond, names have to do."""
_SHOWN = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inspection:
    """A checkpoint at a glance.

    Attributes:
        retained_batches: Committed batches whose closure is whole, oldest first.
        retained_by: `closure` where each of them was planned to the last file, `names` where there are too
            many files for that and SST files were not looked for.
        closure: The safe closure of the batch that was asked for; None where there is none.
    """

    checkpoint: str
    query_id: str | None
    last_committed_batch: int | None
    last_planned_batch: int | None
    retained_batches: tuple[int, ...]
    retained_by: str
    closure: Closure | None
    minimal_bytes: int | None
    file_count: int
    bytes: int
    findings: tuple[Finding, ...]

    @property
    def watermark(self) -> datetime | None:
        """Event-time watermark after the batch; None for none, or one beyond what a calendar can say."""
        if self.closure is None or self.closure.watermark_ms is None:
            return None
        return from_epoch_ms(self.closure.watermark_ms)

    def to_dict(self) -> dict[str, Any]:
        closure, watermark = self.closure, self.watermark
        return {
            "checkpoint": self.checkpoint,
            "query_id": self.query_id,
            "last_committed_batch": self.last_committed_batch,
            "last_planned_batch": self.last_planned_batch,
            "retained_batches": list(self.retained_batches),
            "retained_by": self.retained_by,
            "batch": closure.batch if closure else None,
            "watermark": to_json_time(watermark) if watermark else None,
            "watermark_ms": closure.watermark_ms if closure else None,
            "operators": [operator.to_dict() for operator in closure.operators] if closure else [],
            "sources": [_source(source) for source in closure.sources] if closure else [],
            "spark": asdict(closure.spark) if closure else None,
            "closure": {
                "files": len(closure.files),
                "bytes": closure.bytes,
                "minimal_bytes": self.minimal_bytes,
            }
            if closure
            else None,
            "files": self.file_count,
            "bytes": self.bytes,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def inspect_listing(
    checkpoint: str,
    listing: Mapping[str, FileInfo],
    read: ReadRange,
    batch: int | None = None,
    *,
    planner: ClosurePlanner | None = None,
) -> Inspection:
    """Inspect a checkpoint from its listing, made in the order of `listing.LISTING_ORDER`.

    Raises:
        ConflictError: `checkpoint-moved`: the files of the batch went away meanwhile; list and inspect again.
    """
    planner = planner or ClosurePlanner(CheckpointIndex.build(listing), read)
    index = planner.index
    findings: list[Finding] = []
    query_id = _attempt(
        findings, "warning", "The query cannot be distinguished from others.", planner.files.query_id
    )
    which = "the newest batch" if batch is None else f"batch {batch}"
    closure = None
    try:
        closure = planner.plan(batch, "safe")
    except ConflictError:
        raise
    except StreambankError as error:
        effect = f"No savepoint of {which} can be taken."
        if batch is None:
            error = explained(planner, error)
            if _keeps_spark_from_starting(planner, error):
                effect = f"{_NO_START}, and no savepoint of its newest batch can be taken."
        findings = [finding for finding in findings if not error.message.startswith(finding.cause)]
        hint = error.hint.removeprefix(f"{_NO_START}. ")
        findings.append(Finding(error.code, "error", file_of(error), error.message, effect, hint))
    minimal = planner.plan(closure.batch, "minimal") if closure else None
    retained, by = _retained(index, planner, read, findings)
    if closure:
        findings += [_note(note) for note in closure.notes]
    findings += _oddities(index, closure)
    if closure is not None:
        findings += counted_twice(closure, planner.files.zip_metadata)
    with suppress(FormatError, StorageError):  # what cannot be read stands already
        if (behind := logs_behind(index, planner.files)) is not None:
            findings.append(_logs_behind(max(index.offsets), behind))
    return Inspection(
        checkpoint=checkpoint,
        query_id=query_id,
        last_committed_batch=max(index.commits, default=None),
        last_planned_batch=max(index.offsets, default=None),
        retained_batches=retained,
        retained_by=by,
        closure=closure,
        minimal_bytes=minimal.bytes if minimal else None,
        file_count=len(listing),
        bytes=sum(info.size_bytes for info in listing.values()),
        findings=tuple(dict.fromkeys(findings)),
    )


def retained_batches(index: CheckpointIndex, planner: ClosurePlanner) -> dict[int, StreambankError | None]:
    """Each committed batch, and why it has no whole closure; None for those that have."""
    result: dict[int, StreambankError | None] = {}
    for batch in sorted(index.commits):
        try:
            planner.plan(batch, "minimal")
            result[batch] = None
        except StreambankError as error:
            result[batch] = error
    return result


def _attempt(findings: list[Finding], severity: Severity, effect: str, work: Callable[[], T]) -> T | None:
    """The result of some work; where it fails, a finding. That a file moved is for the caller to retry."""
    try:
        return work()
    except ConflictError:
        raise
    except StreambankError as error:
        findings.append(Finding(error.code, severity, file_of(error), error.message, effect, error.hint))
        return None


def _retained(
    index: CheckpointIndex, planner: ClosurePlanner, read: ReadRange, findings: list[Finding]
) -> tuple[tuple[int, ...], str]:
    opened = sum(
        len(files.of(Kind.ZIP)) + len(files.of(Kind.CHANGELOG))
        for operator in index.operators.values()
        for files in operator.stores.values()
    )
    by = "closure" if opened <= MAX_THOROUGH_READS else "names"
    checked = retained_batches(
        index, planner if by == "closure" else ClosurePlanner(index, read, by_names=True)
    )
    gone = {"batch-not-retained", "checkpoint-moved"}
    for batch, error in checked.items():
        if error is not None and error.code not in gone and batch != max(checked):
            if any(finding.cause.startswith(error.message) for finding in findings):
                continue  # it stands already, with what it does to the newest batch
            newer = [each for each, why in checked.items() if each > batch and why is None]
            effect = f"No savepoint of batch {batch} can be taken" + (
                "; newer batches are not affected." if newer else "."
            )
            finding = Finding(error.code, "warning", file_of(error), error.message, effect, error.hint)
            if len([each for each in findings if each.code == error.code]) < _SHOWN:
                findings.append(finding)
    return tuple(batch for batch, error in checked.items() if error is None), by


def file_of(error: StreambankError) -> str:
    """The file that a message begins with; every one about a file does."""
    first = error.message.partition(" ")[0].rstrip(":,.")
    return first if "/" in first or first == "metadata" else ""


LOGS_BEHIND = "logs-behind"
_DAMAGE = ("half-written", "missing-state-file", "missing-log-entry")
"""Codes of a plan that Spark stumbles over as well."""
_NO_FILE_OF_SPARK = (Kind.TEMPORARY, Kind.HIDDEN_CHECKSUM, Kind.HARMLESS, Kind.UNKNOWN, Kind.CHECKSUM)
_MOST_TRIED = 20
_NO_START = "Spark does not start from this checkpoint"


def damaged_files(planner: ClosurePlanner) -> Sequence[str]:
    """Files that are empty, and logs that are cut off, whichever batch they are of.

    Raises:
        ConflictError: `checkpoint-moved`.
    """
    index, files = planner.index, planner.files
    found = {
        info.path
        for info in index.listing.values()
        if info.size_bytes == 0 and classify(info.path).kind not in _NO_FILE_OF_SPARK
    }
    logs: list[tuple[str, Callable[[str], object]]] = [
        *((path, files.offsets) for path in index.offsets.values()),
        *((path, files.commit) for path in index.commits.values()),
    ]
    if index.metadata:
        logs.append(("metadata", lambda _: files.query_id()))
    for path, parse in logs:
        try:
            parse(path)
        except FormatError as error:
            if error.code == "half-written":
                found.add(path)
        except StorageError:
            continue  # whether it is damaged is not known
    return sorted(found)


def explained(planner: ClosurePlanner, error: StreambankError) -> StreambankError:
    """What keeps the newest batch from being planned, with all that is damaged and what is whole.

    An error that is no damage is given back as it is.

    Raises:
        ConflictError: `checkpoint-moved`.
    """
    if error.code not in _DAMAGE:
        return error
    named = error.message.split()
    others = [
        path for path in damaged_files(planner) if not any(path == word.rstrip(".,:") for word in named)
    ]
    message = error.message
    if others:
        more = ", ..." if len(others) > _MOST_TRIED else ""
        message += f" Damaged as well: {', '.join(others[:_MOST_TRIED])}{more}."
    whole = None
    for batch in sorted(planner.index.commits, reverse=True)[1 : _MOST_TRIED + 1]:
        try:
            whole = planner.plan(batch, "minimal").batch
            break
        except (FormatError, NotFoundError, StorageError):
            continue
    hint = error.hint
    if whole is not None and f"Batch {whole} " not in hint:
        hint = f"Batch {whole} is whole, and can be saved by its number. {hint}"
    if _keeps_spark_from_starting(planner, error) and "Spark does not" not in hint:
        way = "" if whole is not None or "estore a savepoint" in hint else " Restore a savepoint."
        hint = f"{_NO_START}. {hint}{way}"
    return type(error)(message, code=error.code, hint=hint)


def _keeps_spark_from_starting(planner: ClosurePlanner, error: StreambankError) -> bool:
    """Whether Spark needs what is damaged, and not only the older snapshot of a safe closure."""
    if error.code not in _DAMAGE:
        return False
    try:
        planner.plan(None, "minimal")
    except (FormatError, NotFoundError):
        return True
    except StorageError:
        return False
    return False


def _logs_behind(planned: int, behind: str) -> Finding:
    return Finding(
        "logs-behind",
        "warning",
        "offsets",
        f"{behind[0].upper()}{behind[1:]}, but the newest planned batch is {planned}: entries of offsets and "
        "commits were deleted, or older ones were put back.",
        f"Spark goes on with batch {planned + 1}, and runs later batches again: sinks that remember batches "
        "skip their rows, and snapshots of the state from before may be loaded as if they were new.",
        f"A savepoint of batch {planned} leaves out what belongs to later batches: take it, and restore it "
        "into another directory. Or restore a savepoint from before.",
    )


def counted_twice(closure: Closure, metadata: Callable[[str], ZipMetadata]) -> Sequence[Finding]:
    """Joins whose snapshots count rows twice, as versions before the mend of `state` rewrites left them."""
    paths: dict[int, str] = {}
    for file in closure.files:
        part = classify(file.path)
        if part.kind is not Kind.ZIP or part.operator is None or part.operator in paths:
            continue
        if metadata(file.path).counted_twice:
            paths[part.operator] = file.path
    return [
        Finding(
            "rows-counted-twice",
            "warning",
            path,
            f"The snapshots of operator {operator}, a join, count the rows of its indexes as rows: a rewrite "
            "of the state by an earlier version left them so.",
            "The query's results are right. Its row counts (numRowsTotal, limits of an SLA, forecasts) are "
            "about twice as high as its rows, for good.",
            "Rewrite the state once more with this version (`streambank state compact` or `state rescale`): "
            "the counts are right from then on.",
        )
        for operator, path in paths.items()
    ]


def _note(note: str) -> Finding:
    return Finding(
        "damaged-snapshot",
        "warning",
        note.partition(" ")[0],
        note,
        "Spark has to repair this snapshot from an older one and the changes since.",
        "Let the query write another snapshot, and look for the reason on the disk.",
    )


def _oddities(index: CheckpointIndex, closure: Closure | None) -> list[Finding]:
    found = []
    if temporary := index.others.get(Kind.TEMPORARY):
        found.append(
            Finding(
                "temporary-files",
                "info",
                temporary[0],
                f"{len(temporary)} temporary files lie in the checkpoint.",
                "They are being written, or a killed writer left them; savepoints leave them out.",
                "Spark never deletes them. Those older than some hours may be deleted.",
            )
        )
    left_out = closure.left_out if closure is not None else index.left_out(index.sources)
    if left_out:
        files = sum(group.files for group in left_out)
        examples = ", ".join(group.example for group in left_out[:_SHOWN])
        more = ", ..." if len(left_out) > _SHOWN else ""
        found.append(
            Finding(
                "unknown-files",
                "warning",
                left_out[0].example,
                f"{say_count(files, 'file')} {'is' if files == 1 else 'are'} nothing that Spark 3.5 to 4.3, "
                f"or a connector that is known, writes: {examples}{more}.",
                "Savepoints leave them out: if a connector wrote them, a restored query may fail, or read "
                "other rows.",
                "If a newer Spark or a connector wrote them and needs them, report it.",
            )
        )
    for operator in closure.operators if closure else ():
        if not index.operators[operator.operator].has_schema:
            found.append(
                Finding(
                    "schema-missing",
                    "warning",
                    f"state/{operator.operator}",
                    f"Operator {operator.operator} has no state schema.",
                    "The query goes on, but Spark's state reader cannot read this state.",
                    "Spark writes the schema again when the query starts.",
                )
            )
    return found


def _source(source: SourceState) -> dict[str, Any]:
    found = asdict(source)
    return found | {"log_files": len(found.pop("files"))}
