"""What became of one savepoint that was to be replicated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from streambank.core.errors import StreambankError

State = Literal["copied", "there", "refilled", "failed", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """What became of one savepoint.

    Attributes:
        savepoint: Its id.
        job: `job` or `job/query`.
        batch: Its batch; None where its manifest cannot be read.
        state: `copied` now; `there` before; `refilled`: it was there, and objects that the replica had lost
            are back; `failed`: not whole in the replica, see `errors`; `gone` from the source meanwhile.
        moved_objects: How many objects were moved for it.
        moved_bytes: How many bytes those have.
        service_bytes: How many of them the storage service copied itself.
        there_bytes: How many bytes of it the replica had.
        pinned: Whether the source's pin was set in the replica by this.
        seconds: How long it took.
        errors: What is wrong, each with the first file that it is about.
    """

    savepoint: str
    job: str
    batch: int | None = None
    state: State
    moved_objects: int = 0
    moved_bytes: int = 0
    service_bytes: int = 0
    there_bytes: int = 0
    pinned: bool = False
    seconds: float = 0.0
    errors: tuple[tuple[str, StreambankError], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """It as JSON."""
        return {
            "savepoint": self.savepoint,
            "job": self.job,
            "batch": self.batch,
            "state": self.state,
            "moved_objects": self.moved_objects,
            "moved_bytes": self.moved_bytes,
            "service_bytes": self.service_bytes,
            "there_bytes": self.there_bytes,
            "pinned": self.pinned,
            "seconds": round(self.seconds, 3),
            "errors": [{"file": file, **error.to_dict()} for file, error in self.errors],
        }
