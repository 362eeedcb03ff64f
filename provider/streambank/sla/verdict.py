"""An objective's answer, as data: what was seen, against which limit, since when, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from streambank.core.shape import JsonObject
from streambank.core.units import say_bytes, say_duration
from streambank.declaration.objectives import Unit
from streambank.declaration.sla import Mute
from streambank.sla.growth.forecast import Growth

Level = Literal["ok", "unknown", "warn", "breach"]
LEVELS: tuple[Level, ...] = ("ok", "unknown", "warn", "breach")
"""From best to worst. What is unknown is worse than what is well, and nobody's fault yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(JsonObject):
    """One objective of one query.

    Attributes:
        limit: The limit that was passed, or else the next one; None where there is none.
        subject: What of the query, such as an operator, partition or metric; empty for all of it.
    """

    job: str
    query: str
    objective: str
    level: Level
    why: str
    unit: Unit | None = None
    value: float | None = None
    limit: float | None = None
    warn: float | None = None
    breach: float | None = None
    subject: str = ""
    statistic: str | None = None
    window_s: float | None = None
    since: datetime | None = None
    as_of: datetime | None = None
    evidence: tuple[str, ...] = ()
    advice: str = ""
    growth: Growth | None = None
    mute: Mute | None = None
    at: datetime


def worst(verdicts: Iterable[Verdict]) -> Level:
    """The worst level of some verdicts, muted ones too; `ok` for none."""
    return max((verdict.level for verdict in verdicts), key=LEVELS.index, default="ok")


def no_worse(level: Level, than: Level) -> Level:
    """The level, or the milder one that it may be at most."""
    return min(level, than, key=LEVELS.index)


def say(value: float, unit: Unit) -> str:
    """A figure for people."""
    if unit == "bytes":
        return say_bytes(value)
    if unit == "bytes/h":
        return f"{say_bytes(value)}/h"
    if unit == "s":
        return say_duration(value)
    if unit == "ms":
        return f"{value:.3g} ms"
    if unit == "ratio":
        return f"{value:.3g} times"
    number = f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"
    return number if unit == "count" else f"{number} {unit}"
