"""What a compaction would move, and the proof that nothing that Spark needs is among it.

The proof of a stopped query: the safe closures of the kept batches, planned on the listing without the dead
files, are the same to the last file. It is made before anything moves, and once more afterwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from streambank.checkpoint.closure import Closure, ClosurePlanner, refuse_none
from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.listing import Listing
from streambank.checkpoint.shape import PARTITIONS
from streambank.checkpoint.state.changelog import UnreadableLineageError
from streambank.checkpoint.state.rocksdb import ReadRange
from streambank.compaction.dead_files import DeadFile, Needed, RunningQuery, Stopped, stage
from streambank.core.errors import InputError, InternalError, NotFoundError, RefusedError
from streambank.storage import FileInfo

Mode = Literal["running", "stopped"]

MIN_OLDER_THAN_S = 3600.0
"""A write of a running query that paused for less may go on: a task may have nothing to say for a while."""


@dataclass(frozen=True, slots=True)
class Sum:
    """How many files there are of a kind, and how many bytes they have."""

    files: int
    bytes: int

    @classmethod
    def of(cls, dead: Collection[DeadFile]) -> Sum:
        return cls(len(dead), sum(each.size_bytes for each in dead))


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What would move.

    Attributes:
        mode: `running`: only unfinished writes; `stopped`: everything that no kept batch needs.
        commit_digest: SHA-256 of the newest entry of the commit log, by which an undo knows that the query
            has not gone on.
        kept: The safe closures of the batches that are kept, newest first; none for a running query.
    """

    mode: Mode
    query_id: str | None
    batch: int | None
    planned: int | None
    commit_digest: str | None
    kept: tuple[Closure, ...]
    dead: tuple[DeadFile, ...]
    total: Sum
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    listing: Mapping[str, FileInfo] = field(default_factory=dict, repr=False)

    @property
    def won(self) -> Sum:
        return Sum.of(self.dead)


def plan_running(
    listing: Mapping[str, FileInfo], read: ReadRange, older_than_s: float, now_ns: int
) -> CompactionPlan:
    """Plan what can be moved of a query that runs, or of which nobody says that it does not.

    Args:
        now_ns: The time by this machine's clock. What counts is this clock or the newest file of the
            checkpoint, whichever is earlier: its storage may have another clock.

    Raises:
        InputError: `older_than_s` is less than an hour (code `too-young`).
        NotFoundError: There is no checkpoint (code `not-a-checkpoint`).
    """
    if older_than_s < MIN_OLDER_THAN_S:
        raise InputError(
            f"Unfinished writes of a query that may run are left alone for an hour, not {older_than_s:g} s.",
            code="too-young",
            hint="Give --older-than 1h or more; a write that pauses may still go on.",
        )
    index = CheckpointIndex.build(listing)
    refuse_none(index)
    newest_ns = max((info.mtime_ns for info in index.listing.values()), default=0)
    dead = RunningQuery(index, min(now_ns, newest_ns) - int(older_than_s * 1e9)).dead()
    return _plan("running", index, read, None, (), dead)


def plan_stopped(listing: Mapping[str, FileInfo], read: ReadRange, keep_batches: int = 1) -> CompactionPlan:
    """Plan what can be moved of a query that does not run.

    Raises:
        InputError: No batch was to be kept (code `bad-input`).
        RefusedError: The checkpoint is damaged (`checkpoint-damaged`), batches are planned as if others had
            been committed (`commits-behind`), or its state is being repartitioned
            (`unfinished-repartition`).
        StreambankError: The closure of a batch that is to be kept cannot be planned; see `plan_closure`.
    """
    if keep_batches < 1:
        raise InputError(
            f"{keep_batches} batches cannot be kept.",
            code="bad-input",
            hint="Keep at least one batch: the query goes on from it.",
        )
    index = CheckpointIndex.build(listing)
    planner = ClosurePlanner(index, read)
    newest = planner.plan(None, "safe")
    _refuse_odd(index, planner, newest)
    kept, notes = _kept(index, planner, newest, keep_batches)
    needed = Needed.by(kept)
    if not all(_lineages_tell(planner, closure) for closure in kept):
        # Where a lineage cannot be read here, the commit log tells the same, as far back as the state goes.
        needed.keep_commits_from(min(needed.oldest_version.values(), default=1) - 1)
    plan = _plan("stopped", index, read, newest, kept, Stopped(index.listing, needed).dead(), notes)
    check_unchanged(plan, _without(index.listing, plan.dead), read)
    return plan


def check_unchanged(plan: CompactionPlan, listing: Mapping[str, FileInfo], read: ReadRange) -> None:
    """Make sure that the kept batches need the same files of a listing, and find them the same.

    Raises:
        InternalError: They do not (code `closure-changed`).
        StreambankError: One of them cannot be planned at all.
    """
    planner = ClosurePlanner(CheckpointIndex.build(listing), read)
    for before in plan.kept:
        after = planner.plan(before.batch, "safe")
        if after != before or any(
            plan.listing[path].identity != listing[path].identity for path in before.paths
        ):
            raise InternalError(
                f"Batch {before.batch} needs other files than before the compaction.",
                code="closure-changed",
                hint="Nothing that was moved is deleted; report this with the output of --dry-run --json.",
            )


def _plan(
    mode: Mode,
    index: CheckpointIndex,
    read: ReadRange,
    newest: Closure | None,
    kept: Sequence[Closure],
    dead: Iterable[DeadFile],
    notes: Sequence[str] = (),
) -> CompactionPlan:
    batch = max(index.commits, default=None)
    return CompactionPlan(
        mode=mode,
        query_id=newest.query_id if newest is not None else None,
        batch=batch,
        planned=max(index.offsets, default=None),
        commit_digest=None if newest is None else commit_digest(read(f"commits/{newest.batch}", 0, None)),
        kept=tuple(kept),
        dead=tuple(sorted(dead, key=_order)),
        total=Sum(len(index.listing), index.listing.bytes),
        unknown=tuple(index.others.get(Kind.UNKNOWN, ())),
        notes=tuple(notes),
        listing=index.listing,
    )


def commit_digest(data: bytes) -> str:
    """What tells one entry of the commit log from another one of the same name."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _order(dead: DeadFile) -> tuple[int, int, int, str]:
    part = classify(dead.path)
    # Oldest first, and the commit of a batch before its offsets: what is left is never taken for whole.
    return stage(dead.reason), part.batch or part.version or 0, part.kind is not Kind.COMMITS, dead.path


def _refuse_odd(index: CheckpointIndex, planner: ClosurePlanner, newest: Closure) -> None:
    """Refuse a checkpoint that is not as a query leaves it when it ends, however it ends."""
    if newest.notes:
        raise RefusedError(
            f"The checkpoint is damaged: {newest.notes[0]}",
            code="checkpoint-damaged",
            hint="Start the query until it has written another snapshot, or restore a savepoint.",
        )
    planned = max(index.offsets)
    if planned > newest.batch + 1:
        raise RefusedError(
            f"Batches up to {planned} are planned, and only {newest.batch} is committed; Spark is never more "
            "than one ahead, so entries of the commit log are missing.",
            code="commits-behind",
            hint="Restore a savepoint, or find out what deleted them: their state would count as garbage.",
        )
    if planned == newest.batch + 1:
        partitions = planner.files.offsets(index.offsets[planned]).conf.get(PARTITIONS)
        if partitions != newest.offset_conf.get(PARTITIONS):
            raise RefusedError(
                f"The state is being repartitioned: batch {planned} is planned with {partitions} partitions, "
                f"and batch {newest.batch} has {newest.offset_conf.get(PARTITIONS)}.",
                code="unfinished-repartition",
                hint="Let the repartition end first: run it again.",
            )


def _kept(
    index: CheckpointIndex, planner: ClosurePlanner, newest: Closure, keep_batches: int
) -> tuple[list[Closure], list[str]]:
    kept, notes = [newest], []
    for batch in sorted(index.commits, reverse=True)[1:keep_batches]:
        try:
            kept.append(planner.plan(batch, "safe"))
        except NotFoundError as error:
            if error.code != "batch-not-retained":
                raise
            notes.append(f"Batch {batch} is not kept: {error.message}")
            break
    if len(kept) < keep_batches:
        notes.append(f"Only {len(kept)} of {keep_batches} batches exist.")
    return kept, notes


def _lineages_tell(planner: ClosurePlanner, closure: Closure) -> bool:
    """Whether each lineage that the closure rests on can be read here."""
    if closure.spark.checkpoint_format < 2:
        return True
    for path in closure.paths:
        if classify(path).kind is Kind.CHANGELOG:
            try:
                planner.files.lineage(path)
            except UnreadableLineageError:
                return False
    return True


def _without(listing: Listing, dead: Sequence[DeadFile]) -> Listing:
    gone = {each.path for each in dead}
    return Listing(info for path, info in listing.items() if path not in gone)
