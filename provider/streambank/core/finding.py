"""One thing that is wrong: data for `inspect`, `doctor` and `verify`, never an exception."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem.

    Attributes:
        code: Stable name of the problem.
        severity: `error` where no savepoint of the batch can be taken, or this one not be restored; `warning`
            where something is lost or odd, `info` for what is only worth knowing.
        file: What it is about: a file of the checkpoint, savepoint or repository; empty for all of it.
    """

    code: str
    severity: Severity
    file: str
    cause: str
    effect: str
    hint: str

    def to_dict(self) -> dict[str, str]:
        return asdict(self)
