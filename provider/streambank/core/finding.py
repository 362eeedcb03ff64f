"""One thing that is wrong: data for `inspect`, `doctor` and `verify`, never an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streambank.core.shape import JsonObject

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding(JsonObject):
    """One problem.

    Attributes:
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
