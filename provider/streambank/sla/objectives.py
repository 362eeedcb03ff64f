"""The objectives that hold for a job: with the limits that it declares, or the usual ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streambank.core.choices import Severity
from streambank.declaration.objectives import PROMISES, Measure, Promise, Statistic
from streambank.declaration.sla import MIN_HISTORY_S, Declared, Mute, SlaPolicy

HISTORY = "history"
"""The objective that nobody declares: that the history can be read."""


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective of one job: limits in the unit of its promise.

    Attributes:
        promise: Its unit, and which side of a limit is wrong.
        warn: From where on it warns; None for not.
        breach: From where on it is broken; None for not.
        window_s: Over how long; None where there is no window.
        statistic: What of the window is held against the limits.
        severity: `warn`: never worse than a warning.
        min_history_s: How much history a trend needs.
        mute: Nobody is told for a while.
        usual: Whether its limits are the usual ones, none of them declared.
    """

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
    def measure(self) -> Measure:
        """How it is measured."""
        return self.promise.measure

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
