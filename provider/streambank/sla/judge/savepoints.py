"""Objectives about what a job would be restored from: its savepoints, wherever they are, and its drills."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from streambank.control.control import JobControl
from streambank.control.copies import copied, is_refreshed
from streambank.control.drills import outcomes
from streambank.core.errors import StreambankError
from streambank.core.units import from_json_time
from streambank.declaration.declaration import Job
from streambank.inputs.replayable import Replayable, look_at_replayable
from streambank.kafka.retention import KafkaReplay
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.sla.fact import Fact
from streambank.sla.judge.case import Case
from streambank.sla.judge.reported import ReportedObjective, Subject, begun_at, newest_heads
from streambank.sla.objectives import Objective
from streambank.sla.verdict import Verdict
from streambank.storage import open_store


@dataclass(frozen=True, slots=True)
class NewestSavepoints:
    """The newest savepoints of a query.

    Attributes:
        facts: They, by the time of their batch.
        begun: When its first checkpoint was begun, where it has no savepoint and a usual limit gives it time
            for one; None before its first start.
    """

    facts: Sequence[Fact]
    begun: datetime | None = None


def _savepoints(subject: Subject, objective: Objective) -> NewestSavepoints | None:
    heads = subject.savepoints
    if heads is None:
        return None
    has_time = not heads and objective.usual
    begun = begun_at(subject.control, subject.query) if has_time else None
    return NewestSavepoints([_fact_of(head) for head in heads], begun)


def newest_savepoints(repository: str, name: str, control: JobControl | None = None) -> list[Fact]:
    """The newest savepoints of a query, as `newest_heads`."""
    return [_fact_of(head) for head in newest_heads(repository, name, control)]


def _fact_of(head: Manifest) -> Fact:
    return Fact(head.taken_at, subject=head.savepoint, what=f"of batch {head.batch}")


def _savepoint_age(case: Case, savepoints: NewestSavepoints) -> Verdict:
    """By the newest one; a usual limit gives a job time for its first."""
    if savepoints.facts:
        newest = max(savepoints.facts, key=lambda fact: fact.at)
        return _age_of(case, newest, "The newest savepoint")
    if not case.objective.usual:
        return case.missing("There is no savepoint of it.")
    if savepoints.begun is None:
        return case.verdict("unknown", "There is no savepoint of it, and nothing to save yet.")
    return case.aged(savepoints.begun, "There is no savepoint of it, and its checkpoint")


def _age_of(case: Case, savepoint: Fact, what: str) -> Verdict:
    """The verdict on a savepoint, which is not old where no newer batch is lost with it."""
    if case.newest is not None and savepoint.at >= case.newest:
        why = f"{what}, {savepoint.subject}, is not older than the newest batch."
        return case.verdict("ok", why, value=0.0, as_of=savepoint.at)
    return case.aged(savepoint.at, f"{what}, {savepoint.subject},")


def _replayable(subject: Subject, objective: Objective) -> Replayable | None:
    """How long the input after the newest savepoint can be read again."""
    if not subject.savepoints:
        return None if subject.savepoints is None else Replayable()
    opened = Repository.open(open_store(subject.job.repository))
    newest, application = subject.savepoints[0], subject.job.application
    return look_at_replayable(opened, newest, subject.brokers, subject.location, application)


def _replayable_for(case: Case, found: Replayable) -> Verdict:
    """By the source that ends first; one that is not known may end before."""
    if not found.savepoint:
        why = "There is no savepoint of it, so nothing needs its input."
        return case.verdict("unknown", why)
    what = f"the input after the newest savepoint, {found.savepoint},"
    evidence = tuple(
        f"Source {source.source}: {source.sentence(case.now)} ({source.why.rstrip('.')})."
        for source in found.sources
    )
    ends = [source for source in found.sources if source.state in ("gone", "until")]
    first = min(ends, key=lambda one: _held_s(one, case.now), default=None)
    held_s = math.inf if first is None else _held_s(first, case.now)
    level = case.objective.level_of(held_s)
    unknown = next((source for source in found.sources if source.state == "not-known"), None)
    if level == "ok" and unknown is not None:
        why = f"It is not known how long {what} can be read again: {unknown.why.rstrip('.')}."
        return case.verdict("unknown", why, evidence=evidence)
    if first is None:
        why = f"Nothing limits how long {what} can be read again."
        return case.verdict("ok", why, as_of=case.now, evidence=evidence)
    if first.state == "gone":
        why = f"Part of {what} is gone. {first.why}"
    elif held_s <= 0:
        why = f"T{what[1:]} may be deleted at any moment: {first.why}."
    else:
        why = f"T{what[1:]} can be read again for {case.objective.against(level, held_s)}: {first.why}."
    limit = case.objective.breach if level == "breach" else case.objective.warn
    since = None
    if first.until is not None and limit is not None:
        since = first.until - timedelta(seconds=limit)
    return case.verdict(
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


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What places hold of a query's savepoints: the newest (None for none), or why that is unknown."""

    newest: Mapping[str, Fact | None]
    unknown: Mapping[str, str] = field(default_factory=dict)


def replicas_of(job: Job) -> Sequence[str]:
    """The replicas whose age counts: of a job at its primary with a standby, that of the standby alone."""
    return (job.standby.repository,) if job.standby and not job.primary else job.replicate.to


def newest_in_replicas(replicas: Sequence[str], name: str, control: JobControl | None) -> Elsewhere:
    """The newest savepoint of a query in each replica, as `newest_heads`."""
    found: dict[str, Fact | None] = {}
    unread: dict[str, str] = {}
    for place in replicas:
        try:
            found[place] = next(iter(newest_savepoints(place, name, control)), None)
        except StreambankError as error:
            unread[place] = f"The replica {place}: {error.message}"
    return Elsewhere(found, unread)


def _in_replicas(subject: Subject, objective: Objective) -> Elsewhere:
    found = newest_in_replicas(replicas_of(subject.job), subject.savepoint_name, subject.control)
    subject.looking.unreadable += found.unknown.values()
    return found


def _in_copies(subject: Subject, objective: Objective) -> Elsewhere:
    """The savepoint that each copy of the job's state holds.

    It is not known where the records cannot be read, or the copy uses something else than its newest refresh
    has made.
    """
    found: dict[str, Fact | None] = {}
    unknown: dict[str, str] = {}
    for name in subject.job.copies:
        try:
            records = subject.job.as_copy(name).records()
            one = copied(records).get(subject.query)
            if one is None or is_refreshed(records, subject.query, one):
                found[name] = None if one is None else Fact(one.taken_at, subject=one.savepoint)
            else:
                unknown[name] = (
                    f"What the copy {name} uses is not what its newest refresh made, or is not there: it was "
                    "restored, or its directory was removed."
                )
        except StreambankError as error:
            unknown[name] = f"The copy {name}: {error.message}"
    subject.looking.unreadable += unknown.values()
    return Elsewhere(found, unknown)


def _replica_age(case: Case, replicas: Elsewhere) -> Verdict:
    missing, held = "There is no savepoint of it in {}.", "The newest savepoint in {}"
    unknown = "It is not known how old the newest savepoint in {} is, which cannot be read."
    return _furthest_behind(case, replicas, missing, held, unknown)


def _copy_age(case: Case, copies: Elsewhere) -> Verdict:
    missing, held = "The copy {} was never made.", "The savepoint of the copy {}"
    unknown = "It is not known how old the savepoint is that the copy {} holds."
    return _furthest_behind(case, copies, missing, held, unknown)


def _furthest_behind(case: Case, places: Elsewhere, missing: str, held: str, unknown: str) -> Verdict:
    """By the place that is the furthest behind; one of which nothing is known hides no other too old one."""
    known = [(fact.at, place, fact) for place, fact in places.newest.items() if fact is not None]
    empty = [place for place, fact in places.newest.items() if fact is None]
    if empty:
        found = case.missing(missing.format(empty[0]))
    elif known:
        _, place, fact = min(known, key=lambda one: one[:2])
        found = _age_of(case, fact, held.format(place))
    else:
        found = case.unmeasured()
    if places.unknown and found.level in ("ok", "unknown"):  # of what is known; others may break it
        return case.verdict("unknown", unknown.format(next(iter(places.unknown))))
    return found


@dataclass(frozen=True, slots=True)
class Drills:
    """What is known of the drills of a job.

    Attributes:
        passed_at: When the newest one that passed began; None where none has.
        failed: The newest one where that failed: the step, and why. Empty where it passed, or there is none.
        not_run: Why the newest one that passed did not run the application; empty where it did.
    """

    passed_at: datetime | None = None
    failed: str = ""
    begun: datetime | None = None
    not_run: str = ""


def drills_seen(control: JobControl, queries: Iterable[str]) -> Drills:
    """What the records of a job say of its drills."""
    failed = ""
    for number, outcome in enumerate(outcomes(control)):
        if outcome.passed:
            return Drills(from_json_time(outcome.started_at), failed, not_run=outcome.not_run)
        if number == 0:
            failed = f"The newest drill {outcome.failed}"
    begun = (begun_at(control, query) for query in queries)
    return Drills(None, failed, min((moment for moment in begun if moment is not None), default=None))


def _drill_age(case: Case, drills: Drills) -> Verdict:
    """By the newest one that passed; without one, by how long the job has had a checkpoint."""
    if drills.passed_at is not None:
        found = case.aged(drills.passed_at, "The newest drill that passed")
    elif drills.begun is not None:
        found = case.aged(drills.begun, "No drill of it has passed, and its checkpoint")
    else:
        found = case.verdict("unknown", "No drill of it has passed, and it was never started.")
    not_run = f"It proved the savepoint alone: {drills.not_run}" if drills.not_run else ""
    return replace(found, why=" ".join(filter(None, (found.why, not_run, drills.failed))))


SAVED: Mapping[str, ReportedObjective[Any]] = {
    "savepoint_age": ReportedObjective("Its generations", _savepoints, _savepoint_age),
    "replayable_for": ReportedObjective("Its sources", _replayable, _replayable_for),
    "replica_age": ReportedObjective("Its replicas", _in_replicas, _replica_age),
    "copy_age": ReportedObjective("Its copies", _in_copies, _copy_age),
    "drill_age": ReportedObjective(
        "Its drills", lambda subject, _: drills_seen(subject.control, subject.job.queries), _drill_age
    ),
}
