"""Bring back what a compaction has moved: all of it, however far the compaction or an earlier undo came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streambank.checkpoint.reader import CheckpointReader
from streambank.compaction.dead_files import FILES, IN_ORDER, NEVER_NEEDED, DeadFile
from streambank.compaction.moving import Move, move_files, same_bytes
from streambank.compaction.plan import commit_digest
from streambank.compaction.quarantine import DONE_KEY, RECORD_KEY, Quarantine, QuarantineRecord
from streambank.core.errors import NotFoundError, RefusedError
from streambank.core.shape import JsonObject
from streambank.storage import Store, same_place
from streambank.work.pace import Meter, Progress

WENT_ON = "query-went-on"


@dataclass(frozen=True, slots=True)
class UndoReport(JsonObject):
    """What an undo came to.

    Attributes:
        quarantine: URI of the quarantine; it is gone where nothing is `left` in it.
        left: Files that no batch ever needed, and whose names other files have by now: they stay in the
            quarantine.
    """

    checkpoint: str
    quarantine: str
    files: int
    bytes: int
    left: tuple[str, ...]
    missing: tuple[str, ...]
    already_done: bool = False


def bring_back(
    checkpoint: Store, quarantine: Quarantine, *, check: Callable[[], None], progress: Progress | None = None
) -> UndoReport:
    """Move the files of a quarantine back into their checkpoint.

    Its query must not run, unless only unfinished writes were moved. `check` raises where a lock was lost.

    Raises:
        NotFoundError: There is no quarantine (code `not-a-quarantine`).
        RefusedError: It is of another checkpoint (`other-checkpoint`); its files are being deleted for good
            (`quarantine-purged`); the query has committed more since (`query-went-on`); or another file has
            a name by now that one of them needs (`undo-conflict`). Nothing was moved.
    """
    record = quarantine.existing()
    _check(checkpoint, quarantine, record)
    back, double, left, missing = _sorted(checkpoint, quarantine, record)
    check()
    quarantine.store.delete(DONE_KEY)  # what is half undone must not be taken for a whole compaction
    meter = Meter(progress, "undo", len(back), sum(entry.size_bytes for entry in back))
    moves = [
        Move(entry.key, entry.path, entry.size_bytes, in_order=entry.reason in IN_ORDER) for entry in back
    ]
    move_files(quarantine.store, checkpoint, moves, check=check, meter=meter, together=False)
    for entry in double:
        quarantine.store.delete(entry.key)
    if not left:
        quarantine.store.delete(RECORD_KEY)
        quarantine.store.prune()
    return UndoReport(
        checkpoint=checkpoint.uri,
        quarantine=quarantine.store.uri,
        files=len(back) + len(double),
        bytes=sum(entry.size_bytes for entry in (*back, *double)),
        left=tuple(entry.path for entry in left),
        missing=tuple(entry.path for entry in missing),
    )


def _sorted(
    checkpoint: Store, quarantine: Quarantine, record: QuarantineRecord
) -> tuple[list[DeadFile], list[DeadFile], list[DeadFile], list[DeadFile]]:
    """Files to bring back, files that are in both places, files to be left, files that are in neither."""
    here = {info.path: info for info in quarantine.store.list(FILES)}
    there = CheckpointReader(checkpoint).listing()
    back: list[DeadFile] = []
    double: list[DeadFile] = []
    left: list[DeadFile] = []
    missing: list[DeadFile] = []
    for entry in reversed(record.entries):
        copy, original = here.get(entry.key), there.get(entry.path)
        if original is None:
            # A copy that a power cut has torn is none; then the original never went.
            is_whole = copy is not None and copy.size_bytes == entry.size_bytes
            (back if is_whole else missing).append(entry)
        elif copy is None:
            continue
        elif original.identity == entry.identity or same_bytes(
            quarantine.store, entry.key, checkpoint, entry.path
        ):
            double.append(entry)
        elif entry.reason in NEVER_NEEDED:
            left.append(entry)
        else:
            raise RefusedError(
                f"{entry.path} in {checkpoint.uri} is another file than the one that was moved.",
                code="undo-conflict",
                hint=f"Somebody wrote it since. Look at both: the old one is {entry.key} in "
                f"{quarantine.store.uri}. If the query goes on, nothing has to be brought back.",
            )
    return back, double, left, missing


def _check(checkpoint: Store, quarantine: Quarantine, record: QuarantineRecord) -> None:
    if not same_place(record.checkpoint, checkpoint.uri):
        raise RefusedError(
            f"The quarantine {quarantine.store.uri} belongs to {record.checkpoint}, not to {checkpoint.uri}.",
            code="other-checkpoint",
            hint="Name the checkpoint that it belongs to.",
        )
    if quarantine.is_purging:
        raise RefusedError(
            f"The files in {quarantine.store.uri} are being deleted for good, so they cannot come back.",
            code="quarantine-purged",
            hint="Finish that with --purge. The checkpoint does not need them.",
        )
    if record.mode == "running":
        return
    reader = CheckpointReader(checkpoint)
    newest = reader.last_committed()
    if newest != record.batch or has_moved_on(checkpoint, record):
        raise RefusedError(
            f"The query of {checkpoint.uri} has gone on to batch {newest} since {record.batch}, and state of "
            "an attempt that was given up must not lie beside that.",
            code="query-went-on",
            hint="It does not need what was moved: let --purge delete it. To go back, restore a savepoint.",
        )


def has_moved_on(checkpoint: Store, record: QuarantineRecord) -> bool:
    """Whether the newest batch of a compaction is another one by now, or no more there."""
    try:
        return commit_digest(checkpoint.read(f"commits/{record.batch}")) != record.commit_digest
    except NotFoundError:
        return True
