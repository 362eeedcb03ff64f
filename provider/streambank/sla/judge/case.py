"""What is judged, and the one place where a figure becomes a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from streambank.core.units import to_json_time
from streambank.declaration.sla import Mute
from streambank.sla.growth.forecast import Growth
from streambank.sla.objectives import Objective
from streambank.sla.verdict import Level, Verdict


@dataclass(frozen=True, slots=True)
class Case:
    """One objective of one query at one moment; `newest` is when its history's newest batch was committed."""

    objective: Objective
    job: str
    query: str
    now: datetime
    newest: datetime | None = None

    def verdict(
        self,
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
        objective = self.objective
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
            limit=objective.limit_of(level),
            warn=objective.warn,
            breach=objective.breach,
            subject=subject,
            statistic=objective.statistic,
            window_s=objective.window_s,
            since=since if bad else None,
            as_of=as_of,
            evidence=evidence,
            advice=objective.promise.advice if bad else "",
            growth=growth,
            mute=mute,
            at=self.now,
        )

    def unmeasured(self, *evidence: str) -> Verdict:
        """The verdict where nobody looked, or could not."""
        why = f"Not measured: {self.objective.promise.meaning}."
        return self.verdict("unknown", why, evidence=evidence)

    def missing(self, why: str) -> Verdict:
        """The verdict where what should be there is not."""
        return self.verdict(self.objective.severity if self.objective.breach is not None else "warn", why)

    def aged(self, at: datetime, what: str) -> Verdict:
        """The verdict on how old something is: `what`, as the beginning of a sentence."""
        age_s = max(0.0, (self.now - at).total_seconds())
        level = self.objective.level_of(age_s)
        limit = self.objective.breach if level == "breach" else self.objective.warn
        since = None if limit is None else at + timedelta(seconds=limit)
        why = f"{what} has an age of {self.objective.against(level, age_s)}."
        return self.verdict(level, why, value=age_s, since=since, as_of=at)


def active(mute: Mute | None, now: datetime) -> Mute | None:
    """A mute that has not ended."""
    return mute if mute is not None and mute.until > now else None
