"""Objectives about drivers: whether they live, have room, fail, and make progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from streambank.control.control import JobControl
from streambank.control.progress import last_progress
from streambank.core.units import number_or_none, say_duration, time_or_none, to_json_time
from streambank.declaration.health import HealthPolicy
from streambank.driver.failure import root_cause
from streambank.driver.launchers.disks import TEMPORARY, Disk, disks_of_job
from streambank.job.alive import Life
from streambank.sla.fact import Fact
from streambank.sla.judge.case import Case
from streambank.sla.judge.recoveries import NEWEST_EVENTS, recoveries
from streambank.sla.judge.reported import SHOWN, ReportedObjective, Subject, sentence_of
from streambank.sla.judge.windows import statistic
from streambank.sla.objectives import Objective
from streambank.sla.verdict import Verdict, say

_MOMENT = timedelta(milliseconds=1)
_INTERVALS = 3
"""So many of the longest of interval, timeout and trigger a query may be without progress, by default."""


def _alive(case: Case, life: Life) -> Verdict:
    if not life.desired:
        return case.verdict("ok", f"It does not have to run: {life.why_not}.", value=0.0)
    if life.up is None:
        return case.verdict("unknown", "It is not known yet whether its driver is alive.")
    down_s, unwatched_s = life.down_s(case.now), life.unwatched_s(case.now)
    if not down_s and not unwatched_s:
        watched = f", and {life.watcher.who} watches it" if life.watched and life.watcher else ""
        return case.verdict("ok", f"Its driver is alive{watched}.", value=0.0)
    down = down_s >= unwatched_s
    value, since = max(down_s, unwatched_s), life.down_since if down else life.unwatched_since
    level = case.objective.level_of(value)
    what = "It must run, but has not run" if down else "It has had no watcher to restart it"
    if not down and life.down_since is None:
        what = "It runs, but has had no watcher to restart it"
    whys = (life.down_why if down_s else "", life.unwatched_why if unwatched_s else "")
    why = " ".join(filter(None, (f"{what} for {case.objective.against(level, value)}.", *whys)))
    return case.verdict(level, why, value=value, since=since, as_of=case.now)


def _free_space(case: Case, disks: Sequence[Disk]) -> Verdict:
    """By the disk that has the least; one that takes no more files, or nothing at all, has none."""
    if not disks:
        why = "Nothing of it is on a disk of this machine: an object store has no free space to judge."
        return case.verdict("ok", why)
    # A small disk for temporary files is no sign of what grows; one that is full is.
    judged = [
        disk
        for disk in disks
        if disk.space.refusal("") is not None or {place.what for place in disk.places} != {TEMPORARY}
    ]
    by_room = sorted(judged or disks, key=lambda disk: disk.space.usable_bytes)
    fullest = by_room[0]
    value = float(fullest.space.usable_bytes)
    level = case.objective.level_of(value)
    refusal = fullest.space.refusal(fullest.holds[:1].upper() + fullest.holds[1:])
    said = f"Free on the disk at {fullest.space.point}: {case.objective.against(level, value)}."
    return case.verdict(
        level,
        said if refusal is None else f"{said} {refusal.message}",
        value=value,
        subject=f"disk at {fullest.space.point}",
        as_of=case.now,
        evidence=tuple(
            f"{disk.space.point} has {say(disk.space.free_bytes, 'bytes')} of "
            f"{say(disk.space.total_bytes, 'bytes')} left; there: {disk.holds}."
            for disk in by_room[:SHOWN]
        ),
    )


def _restarts(subject: Subject, objective: Objective) -> list[Fact] | None:
    """Drivers that failed, or were replaced by a program, of the whole job."""
    if subject.life is None:
        return None
    return [Fact(failure.at, 1, failure.driver, failure.what) for failure in subject.life.failures]


def _in_window(case: Case, facts: Sequence[Fact]) -> list[Fact]:
    begin = case.now - timedelta(seconds=case.objective.window_s or 0.0)
    return sorted((fact for fact in facts if fact.at >= begin), key=lambda fact: fact.at)


def _restart_rate(case: Case, restarts: Sequence[Fact]) -> Verdict:
    seen = _in_window(case, restarts)
    level = case.objective.level_of(len(seen))
    return case.verdict(
        level,
        f"Failed drivers and restarts within {say_duration(case.objective.window_s or 0.0)}: "
        f"{case.objective.against(level, len(seen))}.",
        value=float(len(seen)),
        since=seen[0].at if seen else None,
        as_of=seen[-1].at if seen else None,
        evidence=tuple(map(sentence_of, seen[-SHOWN:])),
    )


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


def sign_of(life: Life, query: str, health: HealthPolicy) -> Sign:
    """When a query last made progress, by what its driver said last.

    Args:
        health: What the job declares: a batch, or a query's own trigger, may take longer than most.
    """
    if not life.desired:
        return Sign(over=life.why_not, finished=life.finished)
    queries = life.status.get("queries")
    one = queries.get(query) if isinstance(queries, Mapping) else None
    said: Mapping[str, Any] = one if isinstance(one, Mapping) else {}
    if said.get("over") and not said.get("failed"):
        return Sign(over="it has ended well", finished=True)
    still_s = number_or_none(said.get("still_s", life.status.get("still_s")))
    longest_s = max(health.interval_s, health.timeout_s, number_or_none(said.get("trigger_s")) or 0.0)
    first = not said.get("triggered")
    limit_s = _INTERVALS * longest_s * (2 if first else 1)
    if first:
        limit_s = max(limit_s, health.first_batch_s or 0.0)
    if life.said_at is None or still_s is None or still_s < 0:
        return Sign(limit_s=limit_s)
    return Sign(life.said_at - timedelta(seconds=still_s), limit_s)


def _progress_age(case: Case, sign: Sign) -> Verdict:
    objective, newest = case.objective, case.newest
    if sign.over and (objective.usual or not sign.finished):
        return case.verdict("ok", f"No progress is due: {sign.over}.", as_of=newest)
    if sign.at is not None and (newest is None or sign.at > newest):
        newest, what = sign.at, "Its newest sign of progress"
    else:
        what = "The newest batch"
    if newest is None:
        return case.verdict("unknown", "The history has no batch.")
    if objective.usual and objective.breach is not None:
        if sign.at is None:
            # A query without new input commits no batch, and nothing tells that its triggers come round.
            why = "Only its batches are known, which do not show whether it is idle or hangs."
            return case.verdict("unknown", why, as_of=newest)
        case = replace(case, objective=replace(objective, breach=max(objective.breach, sign.limit_s)))
    return case.aged(newest, what)


def failures_of(control: JobControl, query: str) -> list[Fact]:
    """Drivers that ended without being asked to, or abandoned a batch: one fact each, by time."""
    found: dict[str, Fact] = {}
    for record in control.events(newest=NEWEST_EVENTS):
        event = record.data
        what, at = _failure(event, query, control.name), time_or_none(event.get("at"))
        if what is None or at is None:
            continue
        driver = str(event.get("launch_id") or f"event {record.number}")
        before = found.get(driver)
        # The last record of progress may be written after the query has failed, so the latest word counts.
        found[driver] = Fact(at if before is None else max(at, before.at), 1, driver, what)
    view = control.lease.view()
    if view is not None and view.state == "dead" and view.holder is not None:
        driver = str(view.holder.details.get("launch_id"))
        at = view.beat_at or view.since
        last = last_progress(control.store, query)
        if at is not None and last is not None and last.epoch == view.epoch:
            at = max(at, last.at + _MOMENT)
        if at is not None and driver not in found:
            found[driver] = Fact(at, 1, driver, f"its driver died: {view.why}")
    return sorted(found.values(), key=lambda fact: fact.at)


def _failure(event: Mapping[str, Any], query: str, job: str) -> str | None:
    """What an event says of a failure of a query; None where it is none."""
    kind = event.get("kind")
    if kind == "query-ended" and event.get("query") == query and event.get("failure"):
        return f"it failed: {root_cause(event['failure'], job)}"
    if kind == "driver-ended":
        failed = event.get("failed")
        if isinstance(failed, Mapping) and failed:
            return f"it failed: {root_cause(failed[query], job)}" if query in failed else None
        if event.get("exit_code") not in (0, None):
            return f"its driver ended with exit code {event['exit_code']}"
        return "it was stopped by force within a batch" if event.get("forced") else None
    if kind == "driver-died":
        return f"its driver ended before it was ready, with exit code {event.get('exit_code')}"
    return f"its driver was killed: {event.get('why')}" if kind == "killed" else None


def _failed_batches(case: Case, failures: Sequence[Fact]) -> Verdict:
    """In a row: since the newest committed batch."""
    by_time = sorted(failures, key=lambda fact: fact.at)
    row = [fact for fact in by_time if case.newest is None or fact.at > case.newest]
    level = case.objective.level_of(len(row))
    against = case.objective.against(level, len(row))
    return case.verdict(
        level,
        f"Failures in a row since the newest committed batch: {against}.",
        value=float(len(row)),
        since=row[0].at if row else None,
        as_of=case.newest,
        evidence=tuple(map(sentence_of, row[-SHOWN:])),
    )


def _recovered(subject: Subject, objective: Objective) -> list[Fact]:
    since = subject.now - timedelta(seconds=objective.window_s or 0.0)
    return [one.as_fact() for one in recoveries(subject.control, subject.query, since=since)]


def _recovery_time(case: Case, recovered: Sequence[Fact]) -> Verdict:
    objective, seen = case.objective, _in_window(case, recovered)
    if not seen:
        window = say_duration(objective.window_s or 0.0)
        return case.verdict("ok", f"It did not have to recover within the last {window}.")
    value = statistic([fact.value for fact in seen], objective.statistic)
    level = objective.level_of(value)
    bad = [fact.at for fact in seen if objective.level_of(fact.value) == level]
    longest = max(seen, key=lambda fact: fact.value)
    found = case.verdict(
        level,
        f"Recovery ({objective.statistic} of {len(seen)}) took {objective.against(level, value)}.",
        value=value,
        since=bad[0] if bad else None,
        as_of=seen[-1].at,
        evidence=tuple(
            f"{to_json_time(fact.at)}: {say(fact.value, objective.promise.unit)}. {fact.what}".strip()
            for fact in seen[-SHOWN:]
        ),
    )
    return replace(found, advice=longest.advice) if found.advice and longest.advice else found


RUNNING: Mapping[str, ReportedObjective[Any]] = {
    "alive": ReportedObjective("Whether it runs", lambda subject, _: subject.life, _alive),
    "free_space": ReportedObjective(
        "Its disks", lambda subject, _: disks_of_job(subject.job, subject.control), _free_space
    ),
    "restart_rate": ReportedObjective("Its restarts", _restarts, _restart_rate),
    "progress_age": ReportedObjective(
        "Its progress",
        lambda subject, _: subject.life and sign_of(subject.life, subject.query, subject.job.health),
        _progress_age,
        nothing=Sign(),
        needs_history=True,
    ),
    "failed_batches": ReportedObjective(
        "Its failures",
        lambda subject, _: failures_of(subject.control, subject.query),
        _failed_batches,
        needs_history=True,
    ),
    "recovery_time": ReportedObjective("Its recoveries", _recovered, _recovery_time),
}
