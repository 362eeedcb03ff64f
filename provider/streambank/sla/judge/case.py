"""What is judged, and the one place where a figure becomes a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streambank.core.units import say_duration, to_json_time
from streambank.declaration.sla import Mute
from streambank.sla.growth.forecast import Growth
from streambank.sla.objectives import Objective
from streambank.sla.verdict import LEVELS, Level, Verdict, say


@dataclass(frozen=True, slots=True)
class Case:
    """One query at one moment.

    Attributes:
        query: Its query; `main` for the only one.
    """

    job: str
    query: str
    now: datetime

    def verdict(
        self,
        objective: Objective,
        level: Level,
        why: str,
        *,
        value: float | None = None,
        subject: str = "",
        since: datetime | None = None,
        as_of: datetime | None = None,
        evidence: tuple[str, ...] = (),
        growth: Growth | None = None,
    ) -> Verdict:
        """A verdict of a level that is known."""
        mute = active(objective.mute, self.now)
        if objective.mute is not None and mute is None:
            evidence = (*evidence, f"Its mute ended at {to_json_time(objective.mute.until)}.")
        bad = level in ("warn", "breach")
        return Verdict(
            job=self.job,
            query=self.query,
            objective=objective.name,
            level=level,
            why=why,
            unit=objective.promise.unit,
            value=value,
            limit=_limit(objective, level),
            warn=objective.warn,
            breach=objective.breach,
            subject=subject,
            statistic=objective.statistic,
            window_s=objective.window_s,
            since=since if bad else None,
            as_of=as_of,
            evidence=evidence,
            advice=objective.measure.advice if bad else "",
            growth=growth,
            mute=mute,
            at=self.now,
        )


def active(mute: Mute | None, now: datetime) -> Mute | None:
    """A mute that has not ended."""
    return mute if mute is not None and mute.until > now else None


def level_of(objective: Objective, value: float) -> Level:
    """The level of a value, no worse than the objective's severity."""
    level: Level = "ok"
    if objective.promise.exceeds(value, objective.breach):
        level = "breach"
    elif objective.promise.exceeds(value, objective.warn):
        level = "warn"
    return no_worse(level, objective.severity)


def first_limit(objective: Objective) -> float | None:
    """The limit that a value passes first: that of the warning, or of the breach where nothing warns."""
    return objective.breach if objective.warn is None else objective.warn


def no_worse(level: Level, than: Level) -> Level:
    """The level, or the milder one that it may be at most."""
    return min(level, than, key=LEVELS.index)


def against(objective: Objective, level: Level, value: float) -> str:
    """A value and its limit, for a sentence: `12 GB, above the limit of 10 GB`."""
    unit, limit = objective.promise.unit, _limit(objective, level)
    text = say(value, unit)
    if limit is None:
        return text
    beyond, within = ("below", "not below") if objective.promise.below else ("above", "not above")
    what = "limit" if level == "breach" or objective.breach == limit else "warning"
    return f"{text}, {beyond if level in ('warn', 'breach') else within} the {what} of {say(limit, unit)}"


def over(objective: Objective) -> str:
    """The statistic and window of an objective, for a sentence: `p95 of 1 h`."""
    if objective.statistic is None or objective.window_s is None:
        return ""
    return f"{objective.statistic} of {say_duration(objective.window_s)}"


def _limit(objective: Objective, level: Level) -> float | None:
    """The limit that was passed, or else the one that comes first."""
    return objective.breach if level == "breach" else first_limit(objective)
