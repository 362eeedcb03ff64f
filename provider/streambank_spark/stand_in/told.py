"""What a driver that stands in for Spark is told while it runs: a file that the test writes, and it reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streambank.core.json_text import loads
from streambank.core.shape import decode


@dataclass(frozen=True, slots=True)
class Told:
    """What it does until it is told otherwise.

    Attributes:
        period_s: How often it commits a batch.
        batches: After how many it ends by itself; None for never.
        cannot_start: The error with which it ends before it has the job's lease; None for none.
        dies_after: After how many of its batches it dies, as by kill -9; None for never.
        hangs_after: After how many it commits no more, and lives; None for never.
        last_words: What its log says then.
        watermark_ms: Up to where event time has come, in ms since 1970.
        state_rows: How many rows of state it reports; None to report no progress at all.
        differs: Whether a copy of the job computes something else than the job has.
    """

    period_s: float = 0.1
    batches: int | None = None
    cannot_start: str | None = None
    dies_after: int | None = None
    hangs_after: int | None = None
    last_words: str = "it does not feel well"
    watermark_ms: int | None = None
    state_rows: int | None = 3
    differs: bool = False


def read_told(file: Path) -> Told:
    """What stands in a file; what it does by default where there is none."""
    return decode(Told, loads(file.read_text(encoding="utf-8")), file.name) if file.exists() else Told()
