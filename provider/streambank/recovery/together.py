"""All queries of a job restored as one, to savepoints that belong together as far as they can.

No two queries of a driver are ever at the same point of the world, so there is no savepoint of a whole job.
What comes closest is one savepoint of each query, chosen around one moment: the newest that all queries reach
back to. The time between the oldest and the newest of them is the *skew*; what the report says of it is for
people who join the outputs of the queries.

The order of steps:

1. The job is held: its operation lock, and its lease, so that no driver lives and none can start.
2. A savepoint of each query is chosen and verified, and each restore is planned. What speaks against one of
   them is raised here, before anything is changed.
3. A note names the queries, their savepoints and the generations that they will have.
4. Each query is restored into its next generation (`restore.py`), one after the other.

A note is over once each query has a generation of the number that it names, or a higher one. Until then no
driver of the job starts (`restore-unfinished`): some queries would go on from the savepoint and others not.
The same restore again restores those that are left. To restore each of those alone ends it, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from streambank.control.control import JobControl
from streambank.control.generations import Noted, left_together, note_together, noted_together
from streambank.core.choices import SinkChoice, SourceChoice
from streambank.core.errors import InputError, StreambankError
from streambank.declaration.declaration import Job
from streambank.kafka.settings import Brokers
from streambank.recovery.plan import RestorePlan
from streambank.recovery.preconditions import RestoreRequest
from streambank.recovery.report import RestoreReport
from streambank.recovery.resolve import choose
from streambank.recovery.restore import hold_job, plan_restore, restore
from streambank.repository.catalog import LATEST_GOOD
from streambank.repository.manifest import Manifest
from streambank.repository.references import parse_reference
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.sites.forks import left_after, why_left
from streambank.sites.records import Sites
from streambank.sites.standing import check_active
from streambank.work.executor import DEFAULT_PACE, Pace


@dataclass(frozen=True, slots=True)
class TogetherRequest:
    """What a restore of a whole job is asked for.

    Attributes:
        job: The declared job.
        repository: Where the savepoints are.
        reference: `latest-good`, or whatever names a savepoint of each query, such as a time.
        control: The job's records; opened from the declaration when left out.
        sink: What to do where going on would lose or repeat rows; see `RestoreRequest`.
        sink_of: The same for single sinks, by the paths that a plan shows.
        source: What to do where input is gone; see `RestoreRequest`.
        kafka: How Kafka is reached.
        by: Who asks.
    """

    job: Job
    repository: Repository
    reference: str = LATEST_GOOD
    control: JobControl | None = None
    sink: SinkChoice = "refuse"
    sink_of: Mapping[str, SinkChoice] = field(default_factory=dict)
    source: SourceChoice = "refuse"
    kafka: Brokers = field(default_factory=Brokers)
    by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TogetherPlan:
    """What a restore of a whole job would do.

    Attributes:
        job: The job.
        plans: Of each query, by its name.
        done: Queries that an unfinished restore of the same savepoints has restored already.
    """

    job: str
    plans: Mapping[str, RestorePlan]
    done: tuple[str, ...] = ()

    @property
    def skew_s(self) -> float:
        """Seconds between the oldest and the newest savepoint."""
        return skew_s([plan.taken_at for plan in self.plans.values()])

    @property
    def refusals(self) -> tuple[StreambankError, ...]:
        """What speaks against it, each once."""
        found = {(one.code, one.message): one for plan in self.plans.values() for one in plan.refusals}
        return tuple(found.values())

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            "job": self.job,
            "skew_s": round(self.skew_s, 1),
            "queries": {name: plan.to_dict() for name, plan in self.plans.items()},
            "already_restored": list(self.done),
        }


@dataclass(frozen=True, slots=True)
class TogetherReport:
    """A restore of a whole job that has been done.

    Attributes:
        job: The job.
        reports: Of each query that was restored now, by its name.
        done: Queries that the restore before this one had restored already.
        skew_s: Seconds between the oldest and the newest savepoint.
        seconds: How long it took.
    """

    job: str
    reports: Mapping[str, RestoreReport]
    done: tuple[str, ...]
    skew_s: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "job": self.job,
            "skew_s": round(self.skew_s, 1),
            "queries": {name: report.to_dict() for name, report in self.reports.items()},
            "already_restored": list(self.done),
            "seconds": round(self.seconds, 3),
        }


def skew_s(moments: Sequence[datetime]) -> float:
    """Seconds between the oldest and the newest of some moments; 0 for one."""
    return (max(moments) - min(moments)).total_seconds() if moments else 0.0


def plan_together(request: TogetherRequest, *, pace: Pace = DEFAULT_PACE) -> TogetherPlan:
    """What `restore_together` would do with the same request. Writes nothing.

    Raises:
        InputError, NotFoundError, IntegrityError, FormatError, StorageError: As `restore_together`.
    """
    records = request.control or request.job.records()
    return _planned(request, records, pace, held=False)


def restore_together(request: TogetherRequest, *, pace: Pace = DEFAULT_PACE) -> TogetherReport:
    """Restore each query of a job into its next generation.

    Args:
        request: What is asked.
        pace: Who does the work, how fast, and who hears of it.

    Raises:
        InputError: The reference is of one query (code `names-one-query`).
        NotFoundError: A query has no such savepoint, or none that verifies.
        RefusedError: The job has another site that is the active one (codes `failed-over`, `failing-over`,
            `sites-disagree`), a live owner holds the job, or a sink or source speaks against one of the
            restores.
        StreambankError: What a restore raises. Those of other queries may be done: see the module.
    """
    began = time.monotonic()
    records = request.control or request.job.records()
    with hold_job(records, by=request.by) as held:
        check_active(request.job, records)
        plan = _planned(request, records, pace, held=True)
        for refusal in plan.refusals:
            raise refusal
        if not plan.done:
            noted = {name: Noted(one.savepoint, one.generation or 0) for name, one in plan.plans.items()}
            held.check()
            note_together(records, noted, by=request.by)
        reports = {}
        for name, planned in plan.plans.items():
            if name not in plan.done:
                held.check()
                exact = _of_query(request, records, name, planned.savepoint)
                reports[name] = restore(exact, pace=pace, held=held)
    return TogetherReport(request.job.name, reports, plan.done, plan.skew_s, time.monotonic() - began)


def _planned(request: TogetherRequest, records: JobControl, pace: Pace, *, held: bool) -> TogetherPlan:
    chosen = choose_together(request, pace=pace, record=held)
    noted = noted_together(records) if left_together(records, request.job.queries) else {}
    done: list[str] = []
    if {name: one.savepoint for name, one in noted.items()} == {
        name: manifest.savepoint for name, manifest in chosen.items()
    }:
        done = [name for name, one in noted.items() if _is_done(records, name, one)]
    plans = {
        name: plan_restore(
            _of_query(request, records, name, manifest.savepoint), pace=pace, held=held or name in done
        )
        for name, manifest in chosen.items()
    }
    return TogetherPlan(
        request.job.name,
        {name: replace(plan, refusals=()) if name in done else plan for name, plan in plans.items()},
        tuple(done),
    )


def _is_done(records: JobControl, query: str, noted: Noted) -> bool:
    current = records.generation(query)
    return (
        current is not None
        and current.number >= noted.generation
        and (current.from_savepoint == noted.savepoint)
    )


def _of_query(request: TogetherRequest, records: JobControl, query: str, savepoint: str) -> RestoreRequest:
    job = request.job
    return RestoreRequest(
        request.repository,
        savepoint,
        job=job.savepoint_name(query),
        generation=records,
        checkpoint=job.queries[query],
        sink=request.sink,
        sink_of=request.sink_of,
        source=request.source,
        kafka=request.kafka,
        application=job.application,
        declared_sinks=job.sinks,
        check=partial(check_active, job, records),
        by=request.by,
    )


def choose_together(
    request: TogetherRequest, *, pace: Pace = DEFAULT_PACE, record: bool = False
) -> dict[str, Manifest]:
    """A savepoint of each query of a job, by its name.

    Of `latest-good` the newest one that every query reaches back to is the moment, and each query's savepoint
    that is closest to it is chosen; each byte of it is hashed.

    Args:
        request: What is asked.
        pace: Who does the work.
        record: Leave the results of verifications beside the manifests.

    Raises:
        InputError: The reference is of one query (code `names-one-query`).
        NotFoundError, IntegrityError, InputError: See `recovery.resolve.choose`.
    """
    job, found = request.job, {}
    sites = Sites(request.control or job.records()).all()
    asked = parse_reference(request.reference)
    if len(job.queries) > 1 and (asked.place or asked.kind in ("id", "batch")):
        raise InputError(
            f"{request.reference} is a savepoint of one query, and job {job.name} has several.",
            code="names-one-query",
            hint="Use latest-good, latest, a name or a time; or restore that query alone.",
        )
    for name in job.queries:
        of_query = job.savepoint_name(name)
        chosen = choose(
            request.repository,
            request.reference,
            of_query,
            record=record,
            by=request.by,
            pace=pace,
            left=left_after(sites, name),
        )
        found[name] = chosen.manifest
    if asked.kind != LATEST_GOOD:
        return found
    moment = min(manifest.taken_at for manifest in found.values())
    return {
        name: _closest(
            request,
            job.savepoint_name(name),
            manifest,
            moment,
            left=left_after(sites, name),
            pace=pace,
            record=record,
        )
        for name, manifest in found.items()
    }


def _closest(
    request: TogetherRequest,
    of_query: str,
    newest: Manifest,
    moment: datetime,
    *,
    left: dict[str, int],
    pace: Pace,
    record: bool,
) -> Manifest:
    """The savepoint of a query that was taken closest to a moment and verifies; or the newest one."""

    def distance(taken_at: datetime) -> float:
        return abs((taken_at - moment).total_seconds())

    repository = request.repository
    there = {
        one.savepoint: one.taken_at
        for one in repository.manifests(of_query)
        if one.job == of_query
        and one.error is None
        and one.taken_at is not None
        and not why_left(left, one.checkpoint, one.batch)
    }
    for savepoint in sorted(there, key=lambda one: distance(there[one])):
        if distance(there[savepoint]) >= distance(newest.taken_at):
            break
        report = verify(repository, of_query, savepoint, "full", pace=pace, record=record, by=request.by)
        if report.restorable:
            return repository.load(of_query, savepoint)
    return newest
