"""What is known of a query besides its history: savepoints, failures, recoveries, skew, breaks.

Each is looked at by itself, and only where an objective asks for it; what cannot be looked at is said, and
ends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeGuard, TypeVar

from streambank.control.control import JobControl
from streambank.control.copies import copied, is_refreshed
from streambank.control.drills import outcomes
from streambank.control.progress import last_progress, progress_keys
from streambank.core.errors import ConflictError, NotFoundError, StreambankError
from streambank.core.names import MAIN
from streambank.core.units import from_json_time, say_duration, time_or_none
from streambank.declaration.declaration import Job
from streambank.declaration.health import HealthPolicy
from streambank.driver.failure import root_cause
from streambank.inputs.replayable import Replayable, look_at_replayable
from streambank.job.alive import Life
from streambank.kafka.settings import Brokers
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.sites.forks import newest_own
from streambank.sla.fact import Fact
from streambank.sla.judge.events import Drills, Facts, Sign
from streambank.sla.judge.recoveries import NEWEST_EVENTS, Recovery, recoveries
from streambank.sla.objectives import Objective
from streambank.sla.skew.report import SkewReport, skew_of_checkpoint
from streambank.sla.skew.traffic import hot_key_facts
from streambank.storage import open_store

T = TypeVar("T")

_SAVEPOINTS = 5
_NOTHING_YET = ("not-a-checkpoint", "no-committed-batch")
_MOMENT = timedelta(milliseconds=1)
_STEPS = {
    "end": (
        "the end of the driver before",
        "Most of it was the end of the driver before: look at how long a batch takes, and at "
        "stop.force_after.",
    ),
    "launch": (
        "the launch of the driver",
        "Most of it was the launch of the driver, not the state: look at the load of its machine, at the "
        "room in its cluster, and at what is installed or fetched at each start.",
    ),
    "first-batch": (
        "from the driver's beginning to its first batch",
        "Most of it was spent from the driver's beginning to its first batch: look at what the application "
        "does before its query begins, and at the size of that batch. For a large state, take snapshots more "
        "often, so that fewer changelogs are replayed.",
    ),
    "restore": (
        "the restore itself",
        "Most of it was the restore itself: keep a repository or replica near the checkpoint, and the state "
        "small.",
    ),
    "between": (
        "between the restore and the start",
        "Most of it lay between the restore and the start: start the job when the restore is done, as "
        "<job>.restore does.",
    ),
}
"""The steps of a recovery: in words, and what to do where one takes most of it."""
_LOOKS = 3
"""So often is looked at what moves while it is read."""
_INTERVALS = 3
"""So many of the longest of interval, timeout and trigger a query may be without progress, by default."""


@dataclass(slots=True)
class Looking:
    """Collects facts; what cannot be looked at becomes a sentence."""

    unreadable: list[str] = field(default_factory=list)

    def at(self, what: str, look: Callable[[], T]) -> T | None:
        """What a look gives; None where it fails. What moved meanwhile is looked at again."""
        for left in reversed(range(_LOOKS)):
            try:
                return look()
            except StreambankError as error:
                if left and isinstance(error, ConflictError):
                    continue
                self.unreadable.append(f"{what}: {error.message}")
                return None
        return None


def facts_of_query(
    control: JobControl,
    query: str | None,
    *,
    wanted: Sequence[Objective],
    location: str,
    repository: str,
    savepoint_name: str,
    now: datetime,
    skew: bool = True,
    life: Life | None = None,
    health: HealthPolicy | None = None,
    queries: Sequence[str] = (),
    brokers: Brokers | None = None,
    application: str = "",
    replicas: Sequence[str] = (),
    copies: Mapping[str, Job] | None = None,
    with_skew: Callable[[SkewReport], object] = lambda report: None,
) -> Facts:
    """What is known of a query of a job.

    Args:
        query: The query's name; None for the only one.
        repository: Where its savepoints are.
        savepoint_name: How they are called there.
        skew: Whether to look at the checkpoint's files for skew.
        life: Whether the job runs; None where that could not be looked at.
        health: What the job declares about its health.
        queries: All queries of the job.
        brokers: Who is asked of the job's Kafka; None for those that its savepoints name.
        application: The path of its PySpark application.
        replicas: Where copies of its savepoints are.
        copies: The job as it runs on each copy of its state, by name.
        with_skew: Gets the whole report on skew.
    """
    looking = Looking()
    by_name = {objective.name: objective for objective in wanted}
    held: dict[str, Fact | None] | None = None
    unknown: dict[str, str] = {}
    unread: dict[str, str] = {}
    no_traffic = ""
    brought: dict[str, Fact | None] | None = None
    heads = savepoints = replayable = drills = failures = recovered = skews = hot_keys = None
    if not by_name.keys().isdisjoint(("savepoint_age", "replayable_for")):
        heads = looking.at("Its savepoints", lambda: _newest_heads(repository, savepoint_name, control))
    if heads is not None and "savepoint_age" in by_name:
        savepoints = [_fact_of(head) for head in heads]
    if heads is not None and "replayable_for" in by_name:
        newest = next(iter(heads), None)
        replayable = looking.at(
            "Its sources",
            lambda: replayable_now(repository, newest, location, brokers or Brokers(), application),
        )
    if "replica_age" in by_name:
        brought, unread = newest_in_replicas(replicas, savepoint_name, control)
        looking.unreadable += unread.values()
    if "copy_age" in by_name:
        held, unknown = held_by_copies(copies or {}, query)
        looking.unreadable += unknown.values()
    if "drill_age" in by_name:
        drills = looking.at("Its drills", lambda: drills_seen(control, queries or (query or MAIN,)))
    if "failed_batches" in by_name:
        failures = looking.at("Its failures", lambda: failures_of(control, query))
    if "recovery_time" in by_name:
        since = now - timedelta(seconds=by_name["recovery_time"].window_s or 0.0)
        recovered = looking.at("Its recoveries", lambda: _recoveries(control, query, since))
    if skew and "partition_skew" in by_name:
        objective = by_name["partition_skew"]
        begun = bool(looking.at("Its records", lambda: progress_keys(control.store, query)))
        skews = looking.at(
            "Its state", lambda: skews_of(location, objective, now, begun=begun, with_skew=with_skew)
        )
    if "hot_key" in by_name:
        found = looking.at("Its largest keys", lambda: hot_key_facts(control, query, now))
        hot_keys, no_traffic = found or (None, "")
    breaks = looking.at("Its generations", lambda: breaks_of(control, query)) or ()
    return Facts(
        savepoints=savepoints,
        failures=failures,
        recoveries=recovered,
        skews=skews,
        hot_keys=hot_keys,
        no_traffic=no_traffic,
        breaks=breaks,
        unreadable=tuple(looking.unreadable),
        life=life,
        restarts=None
        if life is None
        else [Fact(failure.at, 1, failure.driver, failure.what) for failure in life.failures],
        sign=None if life is None else sign_of(life, query or MAIN, health or HealthPolicy()),
        begun=looking.at("Its generations", lambda: begun_at(control, query)),
        drills=drills,
        replayable=replayable,
        replicas=brought,
        unknown_replicas=tuple(unread),
        copies=held,
        unknown_copies=tuple(unknown),
    )


def sign_of(life: Life, query: str, health: HealthPolicy) -> Sign:
    """When a query last made progress, by what its driver said last.

    Args:
        query: Its name, `main` for the only one.
        health: What the job declares: a batch, or a query's own trigger, may take longer than most.
    """
    if not life.desired:
        return Sign(over=life.why_not, finished=life.finished)
    queries = life.status.get("queries")
    one = queries.get(query) if isinstance(queries, Mapping) else None
    said: Mapping[str, Any] = one if isinstance(one, Mapping) else {}
    if said.get("over") and not said.get("failed"):
        return Sign(over="it has ended well", finished=True)
    still_s = said.get("still_s", life.status.get("still_s"))
    trigger_s = said.get("trigger_s")
    longest_s = max(health.interval_s, health.timeout_s, trigger_s if _is_number(trigger_s) else 0.0)
    first = not said.get("triggered")
    limit_s = _INTERVALS * longest_s * (2 if first else 1)
    if first:
        limit_s = max(limit_s, health.first_batch_s or 0.0)
    if life.said_at is None or not _is_number(still_s):
        return Sign(limit_s=limit_s)
    return Sign(life.said_at - timedelta(seconds=still_s), limit_s)


def begun_at(control: JobControl, query: str | None) -> datetime | None:
    """When the first generation of a query was made; None before the first start."""
    return min((generation.made_at for generation in control.generations(query).all()), default=None)


def drills_seen(control: JobControl, queries: Sequence[str]) -> Drills:
    """What the records of a job say of its drills."""
    failed = ""
    for number, outcome in enumerate(outcomes(control)):
        if outcome.passed:
            return Drills(from_json_time(outcome.started_at), failed, not_run=outcome.not_run)
        if number == 0:
            failed = f"The newest drill {outcome.failed}"
    begun = (begun_at(control, query) for query in queries)
    return Drills(None, failed, min((moment for moment in begun if moment is not None), default=None))


def newest_savepoints(repository: str, name: str, control: JobControl | None = None) -> list[Fact]:
    """The newest savepoints of a query that are not known to be damaged, nor of another line.

    Args:
        repository: Where; one that is not there has none.
        name: `job`, or `job/query`.
        control: The job's records, which tell its line; None where it is not declared.

    Raises:
        StreambankError: It, or what the records say of the job's sites, cannot be read.
    """
    return [_fact_of(head) for head in _newest_heads(repository, name, control)]


def _newest_heads(repository: str, name: str, control: JobControl | None) -> list[Manifest]:
    # What was derived from a savepoint is as old as that, however late it was made.
    found = newest_own(control, open_store(repository), name, _SAVEPOINTS)
    return [head for head in found if head.derived_from is None]


def _fact_of(head: Manifest) -> Fact:
    return Fact(head.taken_at, subject=head.savepoint, what=f"of batch {head.batch}")


def replayable_now(
    repository: str, savepoint: Manifest | None, location: str, brokers: Brokers, application: str
) -> Replayable:
    """How long the input after a savepoint can be read again.

    Args:
        savepoint: The savepoint; None for none.
        location: The query's current checkpoint.
        application: The path of the PySpark application.
    """
    if savepoint is None:
        return Replayable()
    opened = Repository.open(open_store(repository))
    return look_at_replayable(opened, savepoint, brokers, location, application)


def newest_in_replicas(
    replicas: Sequence[str], name: str, control: JobControl | None
) -> tuple[dict[str, Fact | None], dict[str, str]]:
    """The newest savepoint of a query in each replica that is not known to be damaged, nor of another line.

    Args:
        name: `job`, or `job/query`.
        control: The job's records, which tell its line; None where it is not declared.

    Returns:
        By replica, what is known, with None where there is no savepoint; and of the others why they cannot be
        read.
    """
    found: dict[str, Fact | None] = {}
    unread: dict[str, str] = {}
    for place in replicas:
        try:
            found[place] = next(iter(newest_savepoints(place, name, control)), None)
        except StreambankError as error:
            unread[place] = f"The replica {place}: {error.message}"
    return found, unread


def held_by_copies(
    copies: Mapping[str, Job], query: str | None
) -> tuple[dict[str, Fact | None], dict[str, str]]:
    """The savepoint of a query that each copy holds.

    Args:
        copies: The job as it runs on each copy, by name.
        query: The query's name; None for the only one.

    Returns:
        By copy, what is known, with None for a copy that was never made; and of the others why it is not: the
        records cannot be read, or what the copy uses is not what its newest refresh made.
    """
    found: dict[str, Fact | None] = {}
    unknown: dict[str, str] = {}
    for name, copy in copies.items():
        try:
            records = copy.records()
            one = copied(records).get(query or MAIN)
            if one is None or is_refreshed(records, query or MAIN, one):
                found[name] = None if one is None else Fact(one.taken_at, subject=one.savepoint)
            else:
                unknown[name] = (
                    f"What the copy {name} uses is not what its newest refresh made, or is not there: it was "
                    "restored, or its directory was removed."
                )
        except StreambankError as error:
            unknown[name] = f"The copy {name}: {error.message}"
    return found, unknown


def skews_of(
    location: str,
    objective: Objective,
    now: datetime,
    *,
    begun: bool,
    with_skew: Callable[[SkewReport], object] = lambda report: None,
) -> list[Fact] | None:
    """The skew of each store of a checkpoint that is large enough for it to mean something.

    Args:
        objective: `partition_skew`, for its limits.
        begun: Whether the query has committed batches for certain.
        with_skew: Gets the whole report.

    Returns:
        None where it has not begun, or went on faster than its checkpoint could be read.
    """
    limits = [limit for limit in (objective.warn, objective.breach) if limit is not None]
    limit = max(1.0, min(limits))
    try:
        report = skew_of_checkpoint(open_store(location), limit=limit)
    except (ConflictError, NotFoundError) as error:
        if error.code != "checkpoint-moved" and (begun or error.code not in _NOTHING_YET):
            raise
        return None
    with_skew(report)
    found = []
    for store in report.stores:
        if store.skew is not None and (store.uneven or store.skew <= limit):
            name = "" if store.store == "default" else f", store {store.store}"
            found.append(Fact(now, store.skew, f"operator {store.operator}{name}", store.advice))
    return found


def failures_of(control: JobControl, query: str | None) -> list[Fact]:
    """Drivers that ended without being asked to, or abandoned a batch: one fact each, by time."""
    found: dict[str, Fact] = {}
    for record in control.events(newest=NEWEST_EVENTS):
        event = record.data
        what, at = _failure(event, query or MAIN, control.name), time_or_none(event.get("at"))
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


def breaks_of(control: JobControl, query: str | None) -> tuple[datetime, ...]:
    """When another directory became the query's checkpoint: restores, compactions."""
    return tuple(
        generation.made_at for generation in control.generations(query).all() if generation.number > 1
    )


def _recoveries(control: JobControl, query: str | None, since: datetime) -> list[Fact]:
    return [
        Fact(recovery.at, recovery.seconds, recovery.kind, _recovered(recovery), *_longest(recovery))
        for recovery in recoveries(control, query, since=since)
    ]


def _recovered(one: Recovery) -> str:
    step = max(one.steps, key=lambda step: step[1], default=None)
    longest = (
        "" if step is None else f" The longest step: {_STEPS[step[0]][0]}, {say_duration(round(step[1]))}."
    )
    if one.kind == "restore":
        return f"A restore of {one.savepoint}.{longest}"
    made_none = " of a driver that made no progress" if one.cause == "health" else ""
    return f"A {one.kind}{made_none}, epoch {one.epoch}.{longest}"


def _longest(one: Recovery) -> tuple[str, ...]:
    """What to do about the longest step of a recovery, where its steps are known."""
    step = max(one.steps, key=lambda step: step[1], default=None)
    return () if step is None else (_STEPS[step[0]][1],)


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


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
