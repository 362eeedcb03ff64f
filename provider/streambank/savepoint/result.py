"""What a take gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TakeResult:
    """What a take gave.

    Attributes:
        savepoint: Its id.
        job: `job` or `job/query`.
        batch: The committed batch it is of.
        files: How many files it has, sinks' included.
        bytes: Their size.
        new_bytes: Bytes that were added to the repository.
        new_files: Files that had to be read.
        seconds: How long it took.
        replans: How often it had to plan again, because the query moved on.
        already_there: The savepoint of this batch was there before, or another take made it meanwhile.
    """

    savepoint: str
    job: str
    batch: int
    files: int
    bytes: int
    new_bytes: int
    new_files: int
    seconds: float
    replans: int
    already_there: bool

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "savepoint": self.savepoint,
            "job": self.job,
            "batch": self.batch,
            "files": self.files,
            "bytes": self.bytes,
            "new_bytes": self.new_bytes,
            "new_files": self.new_files,
            "seconds": round(self.seconds, 3),
            "replans": self.replans,
            "already_there": self.already_there,
        }
