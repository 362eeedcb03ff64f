"""What a compaction moved, or would move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from streambank.compaction.plan import CompactionPlan, Mode, Sum
from streambank.compaction.quarantine import Record
from streambank.compaction.reasons import WHY, Reason
from streambank.core.errors import StreambankError


@dataclass(frozen=True, slots=True)
class DeadFile:
    """One file that was moved."""

    path: str
    size_bytes: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What became of one checkpoint.

    Attributes:
        checkpoint: Its URI.
        job: The declared job, `job/query` where it has several; None for another query.
        mode: `running`: only unfinished writes were looked for; `stopped`: everything.
        dry_run: Nothing was changed.
        already_done: An earlier try of the same compaction did it; this one changed nothing.
        batch: The newest committed batch.
        kept_batches: The batches that can be restored and saved afterwards, newest first.
        files: What was moved and why, in this order.
        before: The whole checkpoint before; None for `already_done`.
        quarantine: Where they are now; None where nothing was dead, or nothing was changed.
        refusals: Of a dry run: what would speak against it now.
        notes: What a person should know although nothing is wrong.
        seconds: How long it took.
    """

    checkpoint: str
    job: str | None
    mode: Mode
    dry_run: bool
    already_done: bool
    batch: int | None
    kept_batches: tuple[int, ...]
    files: tuple[DeadFile, ...]
    before: Sum | None
    quarantine: str | None
    refusals: tuple[StreambankError, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @classmethod
    def of_plan(cls, plan: CompactionPlan, checkpoint: str, *, dry_run: bool) -> CompactionReport:
        """What a plan would come to."""
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
            files=tuple(DeadFile(dead.info.path, dead.info.size_bytes, dead.reason) for dead in plan.dead),
            before=plan.total,
            quarantine=None,
            notes=tuple(notes),
        )

    @classmethod
    def of_record(cls, record: Record, quarantine: str) -> CompactionReport:
        """What an earlier try came to."""
        return cls(
            checkpoint=record.checkpoint,
            job=None,
            mode=record.mode,
            dry_run=False,
            already_done=True,
            batch=record.batch,
            kept_batches=record.kept_batches,
            files=tuple(DeadFile(entry.path, entry.size_bytes, entry.reason) for entry in record.entries),
            before=None,
            quarantine=quarantine,
        )

    @property
    def won(self) -> Sum:
        """Everything that was moved."""
        return total(self.files)

    @property
    def reasons(self) -> dict[Reason, Sum]:
        """The same by reason."""
        return {
            reason: total([file for file in self.files if file.reason is reason])
            for reason in dict.fromkeys(file.reason for file in self.files)
        }

    def having(self, **changes: Any) -> CompactionReport:
        """The same report with some fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        won, before = self.won, self.before
        return {
            "checkpoint": self.checkpoint,
            "job": self.job,
            "mode": self.mode,
            "dry_run": self.dry_run,
            "already_done": self.already_done,
            "batch": self.batch,
            "kept_batches": list(self.kept_batches),
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
            "quarantine": self.quarantine,
            "refusals": [refusal.to_dict() for refusal in self.refusals],
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
        }


def total(files: Sequence[DeadFile]) -> Sum:
    """How many files, and how many bytes they have."""
    return Sum(len(files), sum(file.size_bytes for file in files))
