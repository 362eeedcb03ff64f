"""Compact one checkpoint: plan, prove, say what will be moved, move it, and prove it again.

Whoever calls this for a stopped query holds the job, or has the word of a person that the query is stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from streambank.checkpoint.reader import CheckpointReader
from streambank.compaction.dead_files import FILES, IN_ORDER, WHY, DeadFile, DeadReason
from streambank.compaction.moving import Move, move_files
from streambank.compaction.plan import CompactionPlan, Mode, Sum, check_unchanged, plan_running, plan_stopped
from streambank.compaction.quarantine import Quarantine, QuarantineRecord, check_place
from streambank.compaction.quiet_check import QuietCheck, check_not_started, check_quiet, check_still
from streambank.compaction.undo import WENT_ON, bring_back
from streambank.core.errors import RefusedError, StreambankError
from streambank.core.shape import HIDDEN, MILLIS, encode
from streambank.storage import Store, same_place
from streambank.work.pace import Meter, Progress

DEFAULT_OLDER_THAN_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """How a checkpoint is to be compacted.

    Attributes:
        older_than_s: How old unfinished writes have to be, of a running one.
        watch: How hard to look for signs of life, of a stopped one.
        check: Raises where a lock or a lease was lost.
    """

    stopped: bool
    keep_batches: int = 1
    older_than_s: float = DEFAULT_OLDER_THAN_S
    watch: QuietCheck = field(default_factory=QuietCheck)
    check: Callable[[], None] = lambda: None
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


def plan(checkpoint: Store, request: CompactionRequest) -> CompactionReport:
    """What `compact` would do now, and what would speak against it; changes nothing.

    Raises:
        StreambankError: No plan can be made; see `plan_stopped` and `plan_running`.
    """
    began = time.monotonic()
    planned = _plan(checkpoint, request)
    refusals = []
    if request.stopped:
        try:
            check_quiet(checkpoint, planned.listing, request.watch)
        except RefusedError as error:
            refusals.append(error)
    report = CompactionReport.of_plan(planned, checkpoint.uri, dry_run=True)
    return report.having(refusals=tuple(refusals), seconds=time.monotonic() - began)


def compact(
    checkpoint: Store, quarantine: Store, request: CompactionRequest, *, progress: Progress | None = None
) -> CompactionReport:
    """Move the dead files of a checkpoint into a quarantine, an empty place apart from it.

    Where an earlier try with the same quarantine broke off, what it had moved is brought back first; where it
    had done everything, nothing is done again.

    Raises:
        RefusedError: There are signs that the query runs (`signs-of-life`), or the checkpoint is not as a
            stopped query leaves it; see `plan_stopped`.
        ConflictError: A file was written again meanwhile (`checkpoint-moved`), or a lock was lost.
        StreambankError: Whatever else went wrong. The checkpoint can be started whenever that happens; the
            message says where the files are that had been moved by then.
    """
    began = time.monotonic()
    check_place(checkpoint.uri, quarantine.uri)
    kept_apart = Quarantine(quarantine)
    record = kept_apart.record()
    if record is not None:
        if kept_apart.won() is not None and same_place(record.checkpoint, checkpoint.uri):
            return CompactionReport.of_record(record, quarantine.uri)
        try:
            bring_back(checkpoint, kept_apart, check=request.check, progress=progress)
        except RefusedError as error:
            if error.code != WENT_ON:
                raise
            return _end(kept_apart, record)
    planned = _plan(checkpoint, request)
    report = CompactionReport.of_plan(planned, checkpoint.uri, dry_run=False)
    if request.stopped:
        check_quiet(checkpoint, planned.listing, request.watch)
        check_still(checkpoint, planned.listing, request.watch)
    if not planned.dead:
        return report.having(seconds=time.monotonic() - began)
    request.check()
    kept_apart.begin(QuarantineRecord.of(planned, checkpoint, by=request.by, why=request.why))
    try:
        gone = _move(checkpoint, quarantine, planned, request, progress)
        _prove(checkpoint, planned)
    except StreambankError as error:
        raise type(error)(
            f"{error.message} What had been moved by then is in {quarantine.uri}.",
            code=error.code,
            hint=f"{error.hint} The query can be started. To bring the files back, undo the compaction with "
            "that location.".strip(),
        ) from error
    notes = (*report.notes, f"{gone} files had disappeared by themselves.") if gone else report.notes
    report = report.having(quarantine=quarantine.uri, notes=notes, seconds=time.monotonic() - began)
    kept_apart.finish({"files": report.won.files, "bytes": report.won.bytes, "seconds": report.seconds})
    return report


def _end(kept_apart: Quarantine, record: QuarantineRecord) -> CompactionReport:
    """End a compaction that broke off, and that the query has shown to be right by going on."""
    moved = {info.path for info in kept_apart.store.list(FILES)}
    entries = tuple(entry for entry in record.entries if entry.key in moved)
    report = CompactionReport.of_record(replace(record, entries=entries), kept_apart.store.uri)
    kept_apart.finish({"files": report.won.files, "bytes": report.won.bytes, "seconds": 0.0})
    note = (
        "An earlier attempt broke off, and the query has gone on since. Only what was moved by then is "
        "listed."
    )
    return report.having(notes=(note,))


def _plan(checkpoint: Store, request: CompactionRequest) -> CompactionPlan:
    listing = CheckpointReader(checkpoint).listing()
    if request.stopped:
        return plan_stopped(listing, checkpoint.read, request.keep_batches)
    return plan_running(listing, checkpoint.read, request.older_than_s, request.watch.now_ns())


def _move(
    checkpoint: Store,
    quarantine: Store,
    planned: CompactionPlan,
    request: CompactionRequest,
    progress: Progress | None,
) -> int:
    def check() -> None:
        request.check()
        if request.stopped:
            check_not_started(checkpoint, planned.batch, planned.planned)

    moves = [
        Move(dead.path, dead.key, dead.size_bytes, dead.identity, dead.reason in IN_ORDER)
        for dead in planned.dead
    ]
    won = planned.won
    meter = Meter(progress, "move", won.files, won.bytes)
    gone = move_files(checkpoint, quarantine, moves, check=check, meter=meter)
    for folder in sorted(_partitions(planned)):
        checkpoint.prune(folder)
    return gone


def _partitions(planned: CompactionPlan) -> set[str]:
    gone = (dead.path for dead in planned.dead if dead.reason is DeadReason.ABANDONED_PARTITION)
    return {"/".join(path.split("/")[:3]) for path in gone}


def _prove(checkpoint: Store, planned: CompactionPlan) -> None:
    """Of a stopped query: the kept batches need the same files as before, and all of them are there."""
    if planned.kept:
        check_unchanged(planned, CheckpointReader(checkpoint).listing(), checkpoint.read)


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What became of one checkpoint.

    Attributes:
        job: The declared job, `job/query` where it has several; None for another query.
        mode: `running`: only unfinished writes were looked for; `stopped`: everything.
        kept_batches: The batches that can be restored and saved afterwards, newest first.
        before: The whole checkpoint before; None for `already_done`.
        quarantine: Where they are now; None where nothing was dead, or nothing was changed.
        refusals: Of a dry run: what would speak against it now.
    """

    checkpoint: str
    job: str | None
    mode: Mode
    dry_run: bool
    already_done: bool
    batch: int | None
    kept_batches: tuple[int, ...]
    files: Annotated[tuple[DeadFile, ...], HIDDEN]
    before: Annotated[Sum | None, HIDDEN]
    quarantine: str | None
    refusals: tuple[StreambankError, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Annotated[float, MILLIS] = 0.0

    @classmethod
    def of_plan(cls, plan: CompactionPlan, checkpoint: str, *, dry_run: bool) -> CompactionReport:
        unknown = len(plan.unknown)
        notes = list(plan.notes)
        if unknown:
            notes.append(f"{unknown} unknown files stay, such as {plan.unknown[0]}.")
        return cls(
            checkpoint=checkpoint,
            job=None,
            mode=plan.mode,
            dry_run=dry_run,
            already_done=False,
            batch=plan.batch,
            kept_batches=tuple(closure.batch for closure in plan.kept),
            files=plan.dead,
            before=plan.total,
            quarantine=None,
            notes=tuple(notes),
        )

    @classmethod
    def of_record(cls, record: QuarantineRecord, quarantine: str) -> CompactionReport:
        return cls(
            checkpoint=record.checkpoint,
            job=None,
            mode=record.mode,
            dry_run=False,
            already_done=True,
            batch=record.batch,
            kept_batches=record.kept_batches,
            files=record.entries,
            before=None,
            quarantine=quarantine,
        )

    @property
    def won(self) -> Sum:
        return Sum.of(self.files)

    @property
    def reasons(self) -> dict[DeadReason, Sum]:
        return {
            reason: Sum.of([file for file in self.files if file.reason is reason])
            for reason in dict.fromkeys(file.reason for file in self.files)
        }

    def having(self, **changes: Any) -> CompactionReport:
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        won, before = self.won, self.before
        return encode(self) | {
            "files": won.files,
            "bytes": won.bytes,
            "kept_files": before.files - won.files if before is not None else None,
            "kept_bytes": before.bytes - won.bytes if before is not None else None,
            "reasons": [
                {"reason": reason.value, "why": WHY[reason], "files": found.files, "bytes": found.bytes}
                for reason, found in self.reasons.items()
            ],
            "moved": [
                {"path": file.path, "bytes": file.size_bytes, "reason": file.reason.value}
                for file in self.files
            ],
        }
