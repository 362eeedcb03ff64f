"""Objectives about what is not in the history: savepoints, recoveries, failures, skew, as found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from streambank.core.units import say_duration, to_json_time
from streambank.driver.launchers.disks import TEMPORARY, Disk
from streambank.inputs.replayable import Replayable
from streambank.job.alive import Life
from streambank.kafka.retention import KafkaReplay
from streambank.sla.fact import Fact
from streambank.sla.judge.case import Case, against, level_of
from streambank.sla.judge.windows import statistic
from streambank.sla.objectives import Objective
from streambank.sla.verdict import Verdict, say

BESIDE_HISTORY = (
    "alive",
    "free_space",
    "restart_rate",
    "savepoint_age",
    "replayable_for",
    "replica_age",
    "drill_age",
    "copy_age",
    "recovery_time",
    "partition_skew",
    "hot_key",
)
"""Objectives that can be judged without the history."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Sign:
    """When a query last made progress, by its driver's word: an idle one does with each trigger.

    Attributes:
        at: When; None where its driver does not say.
        limit_s: How long it may make none where no limit is declared.
        over: Why none is expected, as half a sentence; empty where some is.
        finished: Whether that is because its application ran to its end by itself.
    """

    at: datetime | None = None
    limit_s: float = 0.0
    over: str = ""
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Drills:
    """What is known of the drills of a job.

    Attributes:
        passed_at: When the newest one that passed began; None where none has.
        failed: The newest one where that failed: the step, and why. Empty where it passed, or there is none.
        begun: When the first checkpoint of the job was begun; None before its first start.
        not_run: Why the newest one that passed did not run the application; empty where it did.
    """

    passed_at: datetime | None = None
    failed: str = ""
    begun: datetime | None = None
    not_run: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a query besides its history. None: nobody looked, which is not the same as none.

    Attributes:
        savepoints: Its newest savepoints, by the time of their batch.
        failures: Batches that failed or were abandoned, drivers that died.
        recoveries: Starts and restores, each with the seconds to the next committed batch.
        skews: The largest partition against the mean, of each store that is large enough for that to mean
            something.
        hot_keys: The largest key against the mean, of each store, and of the traffic of each operator.
        no_traffic: Why it is not known of the traffic, as half a sentence; empty where it is not asked.
        breaks: Moments at which the state was made smaller or larger: compactions, restores, backfills.
        unreadable: What should have been looked at and could not be, a sentence each.
        life: Whether its job runs and is watched.
        restarts: Drivers that failed, or were replaced by a program, of the whole job.
        sign: When it last made progress.
        begun: When its first checkpoint was begun.
        replayable: How long the input after its newest savepoint can be read again.
        replicas: Its newest savepoint in each replica, by location; None for a replica that has none.
        copies: The savepoint that each copy of its state holds, by name; None for one that was never made.
        unknown_replicas: Replicas that cannot be read.
        unknown_copies: Copies of which it is not known which savepoint they hold.
        disks: The file systems of this machine on which its whole job works.
    """

    savepoints: Sequence[Fact] | None = None
    failures: Sequence[Fact] | None = None
    recoveries: Sequence[Fact] | None = None
    skews: Sequence[Fact] | None = None
    hot_keys: Sequence[Fact] | None = None
    no_traffic: str = ""
    breaks: Sequence[datetime] = ()
    unreadable: Sequence[str] = ()
    life: Life | None = None
    restarts: Sequence[Fact] | None = None
    sign: Sign | None = None
    begun: datetime | None = None
    drills: Drills | None = None
    replayable: Replayable | None = None
    replicas: Mapping[str, Fact | None] | None = None
    copies: Mapping[str, Fact | None] | None = None
    unknown_replicas: Sequence[str] = ()
    unknown_copies: Sequence[str] = ()
    disks: Sequence[Disk] | None = None


def reported_verdict(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    """The verdict on an objective of the kind `reported`.

    Args:
        newest: When the newest batch of the history was committed; None for none.
    """
    return _JUDGES[objective.name](case, objective, facts, newest)


def _alive(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    life = facts.life
    if life is None:
        return _nobody(case, objective)
    if not life.desired:
        return case.verdict(objective, "ok", f"It does not have to run: {life.why_not}.", value=0.0)
    if life.up is None:
        why = "It is not known yet whether its driver is alive."
        return case.verdict(objective, "unknown", why)
    down_s, unwatched_s = life.down_s(case.now), life.unwatched_s(case.now)
    if not down_s and not unwatched_s:
        watched = f", and {life.watcher.who} watches it" if life.watched and life.watcher else ""
        return case.verdict(objective, "ok", f"Its driver is alive{watched}.", value=0.0)
    down = down_s >= unwatched_s
    value, since = max(down_s, unwatched_s), life.down_since if down else life.unwatched_since
    level = level_of(objective, value)
    what = "It must run, but has not run" if down else "It has had no watcher to restart it"
    if not down and life.down_since is None:
        what = "It runs, but has had no watcher to restart it"
    said = f"{what} for {against(objective, level, value)}."
    whys = [
        why for why in (life.down_why if down_s else "", life.unwatched_why if unwatched_s else "") if why
    ]
    return case.verdict(objective, level, " ".join((said, *whys)), value=value, since=since, as_of=case.now)


def _free_space(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    """By the disk that has the least; one that takes no more files, or nothing at all, has none."""
    if facts.disks is None:
        return _nobody(case, objective)
    if not facts.disks:
        why = "Nothing of it is on a disk of this machine: an object store has no free space to judge."
        return case.verdict(objective, "ok", why)
    # A small disk for temporary files is no sign of what grows; one that is full is.
    judged = [
        disk
        for disk in facts.disks
        if disk.space.refusal("") is not None or {place.what for place in disk.places} != {TEMPORARY}
    ]
    by_room = sorted(judged or facts.disks, key=lambda disk: disk.space.usable_bytes)
    fullest = by_room[0]
    value = float(fullest.space.usable_bytes)
    level = level_of(objective, value)
    refusal = fullest.space.refusal(fullest.holds[:1].upper() + fullest.holds[1:])
    said = f"Free on the disk at {fullest.space.point}: {against(objective, level, value)}."
    return case.verdict(
        objective,
        level,
        said if refusal is None else f"{said} {refusal.message}",
        value=value,
        subject=f"disk at {fullest.space.point}",
        as_of=case.now,
        evidence=tuple(
            f"{disk.space.point} has {say(disk.space.free_bytes, 'bytes')} of "
            f"{say(disk.space.total_bytes, 'bytes')} left; there: {disk.holds}."
            for disk in by_room[:_SHOWN]
        ),
    )


def _restart_rate(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    if facts.restarts is None:
        return _nobody(case, objective)
    window_s = objective.window_s or 0.0
    begin = case.now - timedelta(seconds=window_s)
    seen = sorted((fact for fact in facts.restarts if fact.at >= begin), key=lambda fact: fact.at)
    level = level_of(objective, len(seen))
    return case.verdict(
        objective,
        level,
        f"Failed drivers and restarts within {say_duration(window_s)}: "
        f"{against(objective, level, len(seen))}.",
        value=float(len(seen)),
        since=seen[0].at if seen else None,
        as_of=seen[-1].at if seen else None,
        evidence=tuple(_sentence(fact) for fact in seen[-_SHOWN:]),
    )


def _savepoint_age(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    if facts.savepoints is None:
        return _nobody(case, objective)
    if not facts.savepoints and objective.usual:
        if facts.begun is None:
            return case.verdict(objective, "unknown", "There is no savepoint of it, and nothing to save yet.")
        return _age(case, objective, facts.begun, "There is no savepoint of it, and its checkpoint")
    if not facts.savepoints:
        level = objective.severity if objective.breach is not None else "warn"
        return case.verdict(objective, level, "There is no savepoint of it.")
    last = max(facts.savepoints, key=lambda fact: fact.at)
    if newest is not None and last.at >= newest:
        why = f"The newest savepoint, {last.subject}, is not older than the newest batch."
        return case.verdict(objective, "ok", why, value=0.0, as_of=last.at)
    return _age(case, objective, last.at, f"The newest savepoint, {last.subject},")


def _replayable_for(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    found = facts.replayable
    if found is None:
        return _nobody(case, objective)
    if not found.savepoint:
        return case.verdict(objective, "unknown", "There is no savepoint of it, so nothing needs its input.")
    what = f"the input after the newest savepoint, {found.savepoint},"
    evidence = tuple(
        f"Source {source.source}: {source.sentence(case.now)} ({source.why.rstrip('.')})."
        for source in found.sources
    )
    ends = [source for source in found.sources if source.state in ("gone", "until")]
    first = min(ends, key=lambda one: _held_s(one, case.now), default=None)
    held_s = math.inf if first is None else _held_s(first, case.now)
    level = level_of(objective, held_s)
    unknown = next((source for source in found.sources if source.state == "not-known"), None)
    if level == "ok" and unknown is not None:
        why = f"It is not known how long {what} can be read again: {unknown.why.rstrip('.')}."
        return case.verdict(objective, "unknown", why, evidence=evidence)
    if first is None:
        why = f"Nothing limits how long {what} can be read again."
        return case.verdict(objective, "ok", why, as_of=case.now, evidence=evidence)
    if first.state == "gone":
        why = f"Part of {what} is gone. {first.why}"
    elif held_s <= 0:
        why = f"T{what[1:]} may be deleted at any moment: {first.why}."
    else:
        why = f"T{what[1:]} can be read again for {against(objective, level, held_s)}: {first.why}."
    limit = objective.breach if level == "breach" else objective.warn
    since = None
    if first.until is not None and limit is not None:
        since = first.until - timedelta(seconds=limit)
    return case.verdict(
        objective,
        level,
        why,
        value=max(0.0, held_s),
        subject=f"source {first.source}",
        since=since,
        as_of=case.now,
        evidence=evidence,
    )


def _held_s(one: KafkaReplay, now: datetime) -> float:
    """How long a source can be read again, in seconds; less than any limit where it is gone."""
    return -math.inf if one.until is None else max(0.0, (one.until - now).total_seconds())


def _replica_age(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    """By the replica that is the furthest behind; one that cannot be read hides no other too old one."""
    missing = "There is no savepoint of it in {}."
    found = _furthest_behind(case, objective, facts.replicas, newest, missing, "The newest savepoint in {}")
    why = "It is not known how old the newest savepoint in {} is, which cannot be read."
    return _or_unknown(case, objective, found, facts.unknown_replicas, why)


def _copy_age(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    """By the copy that is the furthest behind; one of which nothing is known hides no other too old one."""
    missing, what = "The copy {} was never made.", "The savepoint of the copy {}"
    found = _furthest_behind(case, objective, facts.copies, newest, missing, what)
    why = "It is not known how old the savepoint is that the copy {} holds."
    return _or_unknown(case, objective, found, facts.unknown_copies, why)


def _or_unknown(
    case: Case, objective: Objective, found: Verdict, unknown: Sequence[str], why: str
) -> Verdict:
    """A verdict of what is known; where that keeps the objective, others may break it."""
    if not unknown or found.level not in ("ok", "unknown"):
        return found
    return case.verdict(objective, "unknown", why.format(unknown[0]))


def _furthest_behind(
    case: Case,
    objective: Objective,
    places: Mapping[str, Fact | None] | None,
    newest: datetime | None,
    missing: str,
    what: str,
) -> Verdict:
    if not places:
        return _nobody(case, objective)
    found = [(one.at, place, one.subject) for place, one in places.items() if one is not None]
    empty = [place for place, one in places.items() if one is None]
    if empty:
        level = objective.severity if objective.breach is not None else "warn"
        return case.verdict(objective, level, missing.format(empty[0]))
    at, place, savepoint = min(found)
    if newest is not None and at >= newest:
        why = f"{what.format(place)}, {savepoint}, is not older than the newest batch."
        return case.verdict(objective, "ok", why, value=0.0, as_of=at)
    return _age(case, objective, at, f"{what.format(place)}, {savepoint},")


def _drill_age(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    drills = facts.drills
    if drills is None:
        return _nobody(case, objective)
    if drills.passed_at is not None:
        found = _age(case, objective, drills.passed_at, "The newest drill that passed")
    elif drills.begun is not None:
        found = _age(case, objective, drills.begun, "No drill of it has passed, and its checkpoint")
    else:
        found = case.verdict(objective, "unknown", "No drill of it has passed, and it was never started.")
    not_run = f"It proved the savepoint alone: {drills.not_run}" if drills.not_run else ""
    return replace(found, why=" ".join(filter(None, (found.why, not_run, drills.failed))))


def _progress_age(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    sign = facts.sign or Sign()
    if sign.over and (objective.usual or not sign.finished):
        return case.verdict(objective, "ok", f"No progress is due: {sign.over}.", as_of=newest)
    if sign.at is not None and (newest is None or sign.at > newest):
        newest, what = sign.at, "Its newest sign of progress"
    else:
        what = "The newest batch"
    if newest is None:
        return case.verdict(objective, "unknown", "The history has no batch.")
    if objective.usual and objective.breach is not None:
        if sign.at is None:
            # A query without new input commits no batch, and nothing tells that its triggers come round.
            why = "Only its batches are known, which do not show whether it is idle or hangs."
            return case.verdict(objective, "unknown", why, as_of=newest)
        objective = replace(objective, breach=max(objective.breach, sign.limit_s))
    return _age(case, objective, newest, what)


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
        f"Failures in a row since the newest committed batch: {against(objective, level, len(row))}.",
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
    longest = max(seen, key=lambda fact: fact.value)
    found = case.verdict(
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
    return replace(found, advice=longest.advice) if found.advice and longest.advice else found


def _skew(case: Case, objective: Objective, facts: Facts, newest: datetime | None) -> Verdict:
    found = facts.skews if objective.name == "partition_skew" else facts.hot_keys
    if found is None:
        verdict = _nobody(case, objective)
        why = facts.no_traffic if objective.name == "hot_key" else ""
        return replace(verdict, evidence=(f"{why}.",)) if why else verdict
    why = facts.no_traffic if objective.name == "hot_key" else ""
    if why and all(level_of(objective, fact.value) == "ok" for fact in found):
        # What state alone says is not the answer where traffic was asked for.
        return replace(_nobody(case, objective), evidence=(f"{why}.",))
    if not found:
        return case.verdict(objective, "ok", "There is too little state for its spread to mean anything.")
    last = max(found, key=lambda fact: fact.value)
    level = level_of(objective, last.value)
    return case.verdict(
        objective,
        level,
        f"{objective.measure.begin} ({last.subject}) is {against(objective, level, last.value)}.",
        value=last.value,
        subject=last.subject,
        as_of=last.at,
        evidence=(last.what,) if last.what else (),
    )


def _nobody(case: Case, objective: Objective) -> Verdict:
    return case.verdict(objective, "unknown", f"Not measured: {objective.measure.meaning}.")


def _sentence(fact: Fact) -> str:
    return f"{to_json_time(fact.at)}: {': '.join(part for part in (fact.subject, fact.what) if part)}"


_JUDGES: Mapping[str, Callable[[Case, Objective, Facts, datetime | None], Verdict]] = {
    "alive": _alive,
    "free_space": _free_space,
    "restart_rate": _restart_rate,
    "savepoint_age": _savepoint_age,
    "replayable_for": _replayable_for,
    "replica_age": _replica_age,
    "drill_age": _drill_age,
    "copy_age": _copy_age,
    "progress_age": _progress_age,
    "failed_batches": _failed,
    "recovery_time": _recovery,
    "partition_skew": _skew,
    "hot_key": _skew,
}
