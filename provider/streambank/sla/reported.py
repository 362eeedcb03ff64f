"""Objectives about what is not in the history: savepoints, recoveries, failures, skew, as found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from streambank.sla.case import Case, against, level_of
from streambank.sla.gauges import statistic
from streambank.sla.objectives import Objective
from streambank.sla.verdict import Verdict, say, say_duration
from streambank.times import to_json_time

BESIDE_HISTORY = ("savepoint_age", "recovery_time", "partition_skew", "hot_key")
"""Objectives that can be judged without the history."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Fact:
    """Something with a time.

    Attributes:
        at: When.
        value: The figure, in its objective's unit; 0 where only the time counts.
        subject: What it is of: a savepoint, a driver, a partition, a key.
        what: More, in a sentence; may be empty.
    """

    at: datetime
    value: float = 0.0
    subject: str = ""
    what: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a query besides its history. None: nobody looked, which is not the same as none.

    Attributes:
        savepoints: Its newest savepoints, by the time of their batch.
        failures: Batches that failed or were abandoned, drivers that died.
        recoveries: Starts and restores, each with the seconds to the next committed batch.
        skews: The largest partition against the mean, of each store that is large enough for that to mean
            something.
        hot_keys: The largest key against the mean, of each store.
        breaks: Moments at which the state was made smaller or larger: compactions, restores, backfills.
        unreadable: What should have been looked at and could not be, a sentence each.
    """

    savepoints: Sequence[Fact] | None = None
    failures: Sequence[Fact] | None = None
    recoveries: Sequence[Fact] | None = None
    skews: Sequence[Fact] | None = None
    hot_keys: Sequence[Fact] | None = None
    breaks: Sequence[datetime] = ()
    unreadable: Sequence[str] = ()


def reported_verdict(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    """The verdict on an objective of the kind `reported`.

    Args:
        case: The query and the moment.
        objective: The objective.
        facts: What is known.
        newest: When the newest batch of the history was committed; None for none.
    """
    return _JUDGES[objective.name](case, objective, facts, newest)


def _savepoint_age(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    if facts.savepoints is None:
        return _nobody(case, objective)
    if not facts.savepoints:
        level = objective.severity if objective.breach is not None else "warn"
        return case.verdict(objective, level, "There is no savepoint of it.")
    last = max(facts.savepoints, key=lambda fact: fact.at)
    if newest is not None and last.at >= newest:
        why = f"The newest savepoint, {last.subject}, is not older than the newest batch."
        return case.verdict(objective, "ok", why, value=0.0, as_of=last.at)
    return _age(case, objective, last.at, f"The newest savepoint, {last.subject},")


def _progress_age(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    if newest is None:
        return case.verdict(objective, "unknown", "The history has no batch.")
    return _age(case, objective, newest, "The newest batch")


def _age(case: Case, objective: Objective, at: datetime, what: str) -> Verdict:
    age_s = max(0.0, (case.now - at).total_seconds())
    level = level_of(objective, age_s)
    limit = objective.breach if level == "breach" else objective.warn
    return case.verdict(
        objective,
        level,
        f"{what} has an age of {against(objective, level, age_s)}.",
        value=age_s,
        since=None if limit is None else at + timedelta(seconds=limit),
        as_of=at,
    )


def _failed(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    """In a row: since the newest committed batch."""
    if facts.failures is None:
        return _nobody(case, objective)
    failures = sorted(facts.failures, key=lambda fact: fact.at)
    row = [fact for fact in failures if newest is None or fact.at > newest]
    level = level_of(objective, len(row))
    return case.verdict(
        objective,
        level,
        f"Failed in a row since the newest committed batch: {against(objective, level, len(row))}.",
        value=float(len(row)),
        since=row[0].at if row else None,
        as_of=newest,
        evidence=tuple(_sentence(fact) for fact in row[-_SHOWN:]),
    )


def _recovery(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    if facts.recoveries is None:
        return _nobody(case, objective)
    begin = case.now - timedelta(seconds=objective.window_s or 0.0)
    seen = sorted((fact for fact in facts.recoveries if fact.at >= begin), key=lambda fact: fact.at)
    if not seen:
        window = say_duration(objective.window_s or 0.0)
        return case.verdict(objective, "ok", f"It did not have to recover within the last {window}.")
    value = statistic([fact.value for fact in seen], objective.statistic)
    level = level_of(objective, value)
    bad = [fact.at for fact in seen if level_of(objective, fact.value) == level]
    return case.verdict(
        objective,
        level,
        f"Recovery ({objective.statistic} of {len(seen)}) took {against(objective, level, value)}.",
        value=value,
        since=bad[0] if bad else None,
        as_of=seen[-1].at,
        evidence=tuple(
            f"{to_json_time(fact.at)}: {say(fact.value, objective.promise.unit)}. {fact.what}".strip()
            for fact in seen[-_SHOWN:]
        ),
    )


def _skew(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    found = facts.skews if objective.name == "partition_skew" else facts.hot_keys
    if found is None:
        return _nobody(case, objective)
    if not found:
        return case.verdict(objective, "ok", "There is too little state for its spread to mean anything.")
    last = max(found, key=lambda fact: fact.value)
    level = level_of(objective, last.value)
    return case.verdict(
        objective,
        level,
        f"{objective.measure.meaning[:1].upper()}{objective.measure.meaning[1:]} "
        f"({last.subject}) is {against(objective, level, last.value)}.",
        value=last.value,
        subject=last.subject,
        as_of=last.at,
        evidence=(last.what,) if last.what else (),
    )


def _nobody(case: Case, objective: Objective) -> Verdict:
    return case.verdict(objective, "unknown", f"Nobody looked: {objective.measure.meaning}.")


def _sentence(fact: Fact) -> str:
    return f"{to_json_time(fact.at)}: {': '.join(part for part in (fact.subject, fact.what) if part)}"


_JUDGES: Mapping[str, Callable[[Case, Objective, Facts, datetime | None], Verdict]] = {
    "savepoint_age": _savepoint_age,
    "progress_age": _progress_age,
    "failed_batches": _failed,
    "recovery_time": _recovery,
    "partition_skew": _skew,
    "hot_key": _skew,
}
