"""What a sweep did, or would do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from streambank.core.errors import StreambankError
from streambank.repository.holds import Hold
from streambank.retention.expired import Expired
from streambank.retention.rescue import Rescued
from streambank.retention.survey import ContentFile
from streambank.storage.store import Leftover


@dataclass(slots=True)
class Tally:
    """How many files, and how many bytes they have."""

    files: int = 0
    bytes: int = 0

    def add(self, files: Iterable[ContentFile]) -> None:
        """Count some more."""
        for file in files:
            self.files += 1
            self.bytes += file.size_bytes

    def to_dict(self) -> dict[str, int]:
        """The numbers as JSON."""
        return {"files": self.files, "bytes": self.bytes}


@dataclass(slots=True)
class SweepReport:
    """What a sweep did, or with `dry_run` would do.

    Attributes:
        dry_run: Nothing was changed.
        grace_s: The grace.
        kept: Files that hold something that a savepoint needs, or that are too young to be judged.
        condemned: Files that were condemned: no savepoint needs them, or hardly anything of them.
        waiting: Files that are condemned and not deleted yet.
        next_s: In how many seconds the first of those may be deleted; None where none waits.
        deleted: Files that were deleted.
        rescued: Objects that savepoints need and that were stored again, out of condemned files.
        removed: Expired savepoints that can no more be brought back.
        expired: Expired savepoints that still can, with how many seconds they have left.
        left: Files that should have gone and are still there, or cannot be understood, and why.
        held: Of `kept` and `waiting` those that are still there only since somebody reads a savepoint.
        holds: Who does, and which.
        leftovers: What writes that were broken off have left, and that is deleted.
        warnings: What a person should know although nothing is wrong.
    """

    dry_run: bool
    grace_s: float
    kept: Tally = field(default_factory=Tally)
    condemned: Tally = field(default_factory=Tally)
    waiting: Tally = field(default_factory=Tally)
    next_s: float | None = None
    deleted: Tally = field(default_factory=Tally)
    rescued: Rescued = field(default_factory=Rescued)
    removed: list[Expired] = field(default_factory=list)
    expired: list[tuple[Expired, float]] = field(default_factory=list)
    left: dict[str, StreambankError] = field(default_factory=dict)
    held: Tally = field(default_factory=Tally)
    holds: list[Hold] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def leftover_bytes(self) -> int:
        """How many bytes broken writes had left."""
        return sum(leftover.size_bytes for leftover in self.leftovers)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "dry_run": self.dry_run,
            "ok": not self.left,
            "grace_s": self.grace_s,
            "kept": self.kept.to_dict(),
            "condemned": self.condemned.to_dict(),
            "waiting": self.waiting.to_dict(),
            "next_s": None if self.next_s is None else round(self.next_s, 1),
            "deleted": self.deleted.to_dict(),
            "held": self.held.to_dict(),
            "rescued": {"objects": self.rescued.objects, "bytes": self.rescued.bytes},
            "removed": [copy.to_dict() for copy in self.removed],
            "expired": [copy.to_dict() | {"left_s": round(left_s, 1)} for copy, left_s in self.expired],
            "holds": [hold.to_dict() for hold in self.holds],
            "leftovers": [{"file": each.key, "bytes": each.size_bytes} for each in self.leftovers],
            "warnings": list(self.warnings),
            "left": [
                {"file": key, "error": error.code, "message": error.message}
                for key, error in sorted(self.left.items())
            ],
        }
