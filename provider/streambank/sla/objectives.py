"""The objectives that hold for a job: with the limits that it declares, or the usual ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streambank.core.choices import Severity
from streambank.core.units import say_duration
from streambank.declaration.objectives import PROMISES, Promise, Statistic
from streambank.declaration.sla import MIN_HISTORY_S, Declared, Mute, SlaPolicy
from streambank.sla.verdict import Level, no_worse, say

HISTORY = "history"
"""The objective that nobody declares: that the history can be read."""


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective of one job, in its promise's unit; `usual` if none of its limits are declared."""

    name: str
    promise: Promise
    warn: float | None
    breach: float | None
    window_s: float | None
    statistic: Statistic | None
    severity: Severity = "breach"
    min_history_s: float = MIN_HISTORY_S
    mute: Mute | None = None
    usual: bool = False

    @property
    def first_limit(self) -> float | None:
        """The limit that a value passes first: that of the warning, or of the breach where nothing warns."""
        return self.breach if self.warn is None else self.warn

    def limit_of(self, level: Level) -> float | None:
        """The limit that was passed, or else the one that comes first."""
        return self.breach if level == "breach" else self.first_limit

    def level_of(self, value: float) -> Level:
        """The level of a value, no worse than the objective's severity."""
        level: Level = "ok"
        if self.promise.exceeds(value, self.breach):
            level = "breach"
        elif self.promise.exceeds(value, self.warn):
            level = "warn"
        return no_worse(level, self.severity)

    def against(self, level: Level, value: float) -> str:
        """A value and its limit, for a sentence: `12 GB, above the limit of 10 GB`."""
        unit, limit = self.promise.unit, self.limit_of(level)
        text = say(value, unit)
        if limit is None:
            return text
        beyond, within = ("below", "not below") if self.promise.below else ("above", "not above")
        what = "limit" if level == "breach" or self.breach == limit else "warning"
        return f"{text}, {beyond if level in ('warn', 'breach') else within} the {what} of {say(limit, unit)}"

    @property
    def over(self) -> str:
        """The statistic and window, for a sentence: `p95 of 1 h`; empty where there is none."""
        if self.statistic is None or self.window_s is None:
            return ""
        return f"{self.statistic} of {say_duration(self.window_s)}"

    @property
    def size_limit(self) -> float | None:
        """The limit that a forecast is made for."""
        return self.warn if self.breach is None else self.breach


def objectives(policy: SlaPolicy | None = None) -> tuple[Objective, ...]:
    """The objectives that are judged: those with a limit, declared or usual, that were not switched off.

    A usual warning that would come after a declared breach is left out.
    """
    declared = SlaPolicy() if policy is None else policy
    found = (
        _objective(
            name,
            replace(promise, breach=declared.usual.get(name, promise.breach)),
            declared.objectives.get(name, Declared()),
            declared.mute,
            follows=name in declared.usual,
        )
        for name, promise in PROMISES.items()
    )
    return tuple(one for one in found if one is not None)


def _objective(
    name: str, promise: Promise, declared: Declared, mute: Mute | None, *, follows: bool
) -> Objective | None:
    """An objective with the limits that hold for it.

    Args:
        follows: Whether the usual breach follows from what else the job declares: such a one gives way to a
            declared warning that comes after it.
    """
    breach = promise.breach if declared.breach is None else declared.breach
    warn = promise.warn if declared.warn is None else declared.warn
    if follows and declared.breach is None and declared.warn is not None and breach is not None:
        breach = None if promise.exceeds(declared.warn, breach) else breach
    if warn is not None and breach is not None and promise.exceeds(warn, breach):
        warn = None
    if declared.off or (warn is None and breach is None):
        return None
    return Objective(
        name,
        promise,
        warn,
        breach,
        promise.window_s if declared.window_s is None else declared.window_s,
        declared.statistic or promise.statistic,
        declared.severity or "breach",
        MIN_HISTORY_S if declared.min_history_s is None else declared.min_history_s,
        declared.mute or mute,
        declared.warn is None and declared.breach is None,
    )
