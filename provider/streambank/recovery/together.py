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
from typing import Any

from streambank.control.control import JobControl
from streambank.control.generations import Noted, left_together, note_together, noted_together
from streambank.core.choices import SinkChoice, SourceChoice
from streambank.core.errors import InputError, NotFoundError, StreambankError
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from streambank.kafka.settings import Brokers
from streambank.recovery.nearest import (
    NEAREST,
    PASSED_OVER,
    Place,
    choose_nearest,
    meant_by,
    name_older_of,
    open_places,
    whole_at,
)
from streambank.recovery.older import BY_AGE
from streambank.recovery.plan import RestorePlan
from streambank.recovery.preconditions import RestoreRequest
from streambank.recovery.report import RestoreReport
from streambank.recovery.resolve import Chosen, PassedOver, Skipped, choose, hinting_refresh, unrecorded
from streambank.recovery.restore import hold_job, plan_restore, restore
from streambank.repository.catalog import LATEST_GOOD, none_of
from streambank.repository.references import Reference, parse_reference
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.sites.forks import left_after, why_left
from streambank.sites.records import Sites
from streambank.work.executor import DEFAULT_PACE, Pace


@dataclass(frozen=True, slots=True)
class TogetherRequest:
    """What a restore of a whole job is asked for.

    Attributes:
        job: The declared job.
        repository: Where the savepoints are.
        reference: `latest-good`, or whatever names a savepoint of each query, such as a time.
        savepoints: The id of the savepoint of each query, instead of a reference: what a person approved.
        whole: Read every byte of savepoints that are named, too; see `plan_restore`. `nearest` reads
            every byte whatever this says (`from_place`).
        chosen: The savepoint of each query, where they have been chosen and verified already (`from_place`).
        control: The job's records; opened from the declaration when left out.
        sink: What to do where going on would lose or repeat rows; see `RestoreRequest`.
        sink_of: The same for single sinks, by the paths that a plan shows.
        source: What to do where input is gone; see `RestoreRequest`.
        kafka: How Kafka is reached.
        skipped: What a plan has passed over of each query before it came to `savepoints`.
        by: Who asks.
    """

    job: Job
    repository: Repository
    reference: str = LATEST_GOOD
    savepoints: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    chosen: Mapping[str, Chosen] | None = None
    control: JobControl | None = None
    sink: SinkChoice = "refuse"
    sink_of: Mapping[str, SinkChoice] = field(default_factory=dict)
    source: SourceChoice = "refuse"
    kafka: Brokers = field(default_factory=Brokers)
    skipped: Mapping[str, tuple[Skipped, ...]] = field(default_factory=dict)
    by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TogetherPlan:
    """What a restore of a whole job would do.

    Attributes:
        job: The job.
        plans: Of each query, by its name.
        done: Queries that an unfinished restore of the same savepoints has restored already.
        chosen: The savepoint of each, and how it was chosen.
    """

    job: str
    plans: Mapping[str, RestorePlan]
    done: tuple[str, ...] = ()
    chosen: Mapping[str, Chosen] = field(default_factory=dict)

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
                exact = _of_query(request, records, name, planned.savepoint, plan.chosen[name])
                reports[name] = restore(exact, pace=pace, held=held)
    return TogetherReport(request.job.name, reports, plan.done, plan.skew_s, time.monotonic() - began)


def _planned(request: TogetherRequest, records: JobControl, pace: Pace, *, held: bool) -> TogetherPlan:
    chosen = request.chosen
    if chosen is None:
        chosen = choose_together(request, pace=pace, record=held).queries
    noted = noted_together(records) if left_together(records, request.job.queries) else {}
    done: list[str] = []
    if {name: one.savepoint for name, one in noted.items()} == {
        name: one.manifest.savepoint for name, one in chosen.items()
    }:
        done = [name for name, one in noted.items() if _is_done(records, name, one)]
    plans = {
        name: plan_restore(
            _of_query(request, records, name, one.manifest.savepoint, one),
            pace=pace,
            held=held or name in done,
        )
        for name, one in chosen.items()
    }
    _check_sinks_named(request, plans)
    return TogetherPlan(
        request.job.name,
        {name: _without_refusals(plan) if name in done else plan for name, plan in plans.items()},
        tuple(done),
        chosen,
    )


def _without_refusals(plan: RestorePlan) -> RestorePlan:
    """The plan of a query that is restored already: nothing of it is asked any more."""
    return replace(
        plan,
        mixed_sinks={},
        refusals=(),
        other_refusals=(),
        sink_refusals=dict.fromkeys(plan.sink_refusals, ()),
        source_refusals=dict.fromkeys(plan.source_refusals, ()),
    )


def _check_sinks_named(request: TogetherRequest, plans: Mapping[str, RestorePlan]) -> None:
    """Make sure that each sink that is chosen for by its path is one of a query of the job."""
    known = [str(sink.get("path")) for plan in plans.values() for sink in plan.sinks]
    for path in request.sink_of:
        if path not in known and len(request.job.queries) > 1:
            raise InputError(
                f"No query of {request.job.name} has a sink {path}.",
                code="unknown-sink",
                hint=f"Their sinks: {', '.join(dict.fromkeys(known)) or 'none'}.",
            )


def _is_done(records: JobControl, query: str, noted: Noted) -> bool:
    current = records.generation(query)
    return (
        current is not None
        and current.number >= noted.generation
        and (current.from_savepoint == noted.savepoint)
    )


def _of_query(
    request: TogetherRequest, records: JobControl, query: str, savepoint: str, chosen: Chosen | None = None
) -> RestoreRequest:
    job = request.job
    return RestoreRequest(
        request.repository,
        savepoint,
        chosen=chosen,
        job=job.savepoint_name(query),
        generation=records,
        checkpoint=job.queries[query],
        sink=request.sink,
        sink_of=request.sink_of,
        source=request.source,
        kafka=request.kafka,
        application=job.application,
        declared_sinks=job.sinks,
        together=len(job.queries) > 1,
        skipped=request.skipped.get(query, ()),
        by=request.by,
    )


def _parse(job: Job, reference: str) -> Reference:
    """The reference, which has to be one of each query."""
    asked = parse_reference(reference)
    if len(job.queries) > 1 and (asked.place or asked.kind in ("id", "batch")):
        raise InputError(
            f"{reference} is a savepoint of one query, and job {job.name} has several.",
            code="names-one-query",
            hint="Use latest-good, latest, a name or a time; or restore that query alone.",
        )
    return asked


def _check_each_named(job: Job, savepoints: Mapping[str, str]) -> None:
    """Make sure that savepoints that are named by their ids are of all queries of a job, or that none is."""
    if savepoints and set(savepoints) != set(job.queries):
        raise InputError(
            f"The queries of {job.name} are {', '.join(job.queries)}, and savepoints are named of "
            f"{', '.join(savepoints)}.",
            code="names-one-query",
            hint="Plan the restore again: another query was declared, or one is not declared any more.",
        )


def from_place(
    job: Job,
    place: str | None,
    reference: str,
    *,
    control: JobControl,
    target: str,
    record: bool,
    savepoints: Mapping[str, str] | None = None,
    by: Mapping[str, str] | None = None,
    pace: Pace = DEFAULT_PACE,
) -> tuple[Repository, Mapping[str, Chosen] | None]:
    """Where the savepoints of all queries come from, and what `nearest` has chosen there.

    The nearest place is the cheapest one that has the savepoint of every query undamaged; which savepoints
    are meant does not depend on that. Of `latest-good` it is the newest moment that any place reaches with
    all queries; see nearest.py.

    Args:
        job: The job.
        place: The repository or a replica, or `nearest`; None for the job's repository.
        reference: `latest-good`, or whatever names a savepoint of each query.
        control: The job's records.
        target: The location of a checkpoint that is restored into.
        record: Leave the results of verifications beside the manifests, where that is possible.
        savepoints: As in `TogetherRequest`.
        by: Who asks, for those records.
        pace: Who does the work.

    Returns:
        The repository, and for `nearest` the savepoint of each query.

    Raises:
        InputError: The reference is of one query (code `names-one-query`).
        NotFoundError: A query has no such savepoint (code `no-such-savepoint`), or no place has all of them
            whole (`no-good-savepoint`).
        StorageError: No place answers (code `no-place-answers`).
        StreambankError: As `Job.open_repository` and `Job.open_place`.
    """
    if place is None or place == job.repository:
        with hinting_refresh(job):  # a copy of which no savepoint was taken has no repository
            return job.open_repository(), None
    if place != NEAREST:
        return job.open_place(place), None
    asked, sites, named = _parse(job, reference), Sites(control).all(), savepoints or {}
    _check_each_named(job, named)
    left = {name: left_after(sites, name) for name in job.queries}
    locations = (job.repository, *job.replicate.to)
    if len(job.queries) == 1:
        (name,) = job.queries
        repository, only = choose_nearest(
            locations,
            named.get(name, reference),
            job.savepoint_name(name),
            target=target,
            record=record,
            open_place=job.open_place,
            by=by,
            pace=pace,
            left=left[name],
        )
        return repository, {name: only}
    passed: list[PassedOver] = []
    places = open_places(locations, job.name, target, job.open_place, passed)
    if asked.kind == LATEST_GOOD and not named:
        request = TogetherRequest(job, places[0].repository, reference, control=control, by=by or {})
        return _newest_moment(request, places, left, passed, pace, record=record)
    meant = {
        name: meant_by(
            places, locations, named.get(name, reference), job.savepoint_name(name), passed, left[name]
        )
        for name in job.queries
    }
    somewhere: set[str] = set()
    for at in places:
        found: dict[str, Chosen] = {}
        for name, one in meant.items():
            try:
                found[name] = whole_at(at, one, record=record, by=by, pace=pace)
            except PASSED_OVER as error:
                passed.append(PassedOver(at.location, error.message))
        if len(found) == len(meant):
            return at.repository, {
                name: replace(one, passed_over=tuple(passed)) for name, one in found.items()
            }
        somewhere |= found.keys()
    nowhere = _no_place(job, reference, passed)
    damaged = next((name for name in meant if name not in somewhere), None)
    if damaged is None or asked.kind not in BY_AGE or named:
        raise nowhere
    beside = _beside(job, damaged)
    raise name_older_of(nowhere, places, meant[damaged], asked.said, left[damaged], pace, beside=beside)


def _beside(job: Job, query: str) -> list[str] | None:
    """The other queries of a job, each as `job/query`; None where there is no other."""
    return [job.savepoint_name(name) for name in job.queries if name != query] or None


def _newest_moment(
    request: TogetherRequest,
    places: Sequence[Place],
    left: Mapping[str, dict[str, int]],
    passed: list[PassedOver],
    pace: Pace,
    *,
    record: bool,
) -> tuple[Repository, Mapping[str, Chosen]]:
    """The place with the newest moment that all queries reach; the nearest one of those with the same.

    A place is read only where its manifests promise a newer moment than what was found whole.
    """
    promised: list[tuple[datetime, Place]] = []
    for place in places:
        try:
            promised.append((_promised(request.job, place.repository, left), place))
        except PASSED_OVER as error:
            passed.append(PassedOver(place.location, error.message))
    promised.sort(key=lambda one: one[0], reverse=True)
    best: tuple[Place, ChosenTogether] | None = None
    for moment, place in promised:
        if best is not None and best[1].moment >= moment:
            passed.append(
                PassedOver(place.location, f"It has all queries only up to {to_json_time(moment)}.")
            )
            continue
        try:
            chosen = choose_together(replace(request, repository=place.repository), pace=pace, record=record)
        except PASSED_OVER as error:
            passed.append(PassedOver(place.location, error.message))
            continue
        if best is None or chosen.moment > best[1].moment:
            best = place, chosen
    if best is None:
        raise _no_place(request.job, request.reference, passed)
    at, found = best
    return at.repository, {
        name: replace(one, passed_over=tuple(passed)) for name, one in found.queries.items()
    }


def _promised(job: Job, repository: Repository, left: Mapping[str, dict[str, int]]) -> datetime:
    """A moment beyond which not all queries have a savepoint there; what is damaged is found out later."""
    newest = []
    for name in job.queries:
        of_query = job.savepoint_name(name)
        taken = [
            one.taken_at
            for one in repository.candidates(of_query)
            if one.taken_at is not None and not why_left(left[name], one.checkpoint, one.batch)
        ]
        if not taken:
            raise none_of(repository.store, of_query)
        newest.append(max(taken))
    return min(newest)


def _no_place(job: Job, reference: str, passed: Sequence[PassedOver]) -> NotFoundError:
    said = " ".join(f"{one.location}: {one.why}" for one in dict.fromkeys(passed))
    return NotFoundError(
        f"Neither the repository of {job.name} nor a replica of it has whole what {reference} means of each "
        f"query: {said}",
        code="no-good-savepoint",
        hint="`streambank verify --all -r LOCATION` shows what is wrong with each. `streambank repair` "
        "brings a place what another one has.",
    )


@dataclass(frozen=True, slots=True)
class ChosenTogether:
    """A savepoint of each query of a job.

    Attributes:
        queries: The savepoint of each, by the query's name.
        moment: For `latest-good` the newest moment that each query reaches with one that verifies; the
            savepoints that are closest to it may be older. Else when the oldest of them was taken.
    """

    queries: Mapping[str, Chosen]
    moment: datetime


def choose_together(
    request: TogetherRequest, *, pace: Pace = DEFAULT_PACE, record: bool = False
) -> ChosenTogether:
    """A savepoint of each query of a job.

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
    job = request.job
    found: dict[str, Chosen] = {}
    sites = Sites(request.control or job.records()).all()
    asked = _parse(job, request.reference)
    _check_each_named(job, request.savepoints)
    for name in job.queries:
        of_query = job.savepoint_name(name)
        with hinting_refresh(job):
            found[name] = choose(
                request.repository,
                request.savepoints.get(name, request.reference),
                of_query,
                record=record,
                by=request.by,
                pace=pace,
                left=left_after(sites, name),
                level="full" if request.whole else "quick",
                beside=_beside(job, name),
            )
    moment = min(one.manifest.taken_at for one in found.values())
    if asked.kind == LATEST_GOOD and not request.savepoints:
        for name, newest in found.items():
            found[name] = _closest(
                request,
                job.savepoint_name(name),
                newest,
                moment,
                left=left_after(sites, name),
                pace=pace,
                record=record,
            )
    return ChosenTogether(found, moment)


def _closest(
    request: TogetherRequest,
    of_query: str,
    newest: Chosen,
    moment: datetime,
    *,
    left: dict[str, int],
    pace: Pace,
    record: bool,
) -> Chosen:
    """The savepoint of a query that was taken closest to a moment and verifies; or the newest one."""

    def distance(taken_at: datetime) -> float:
        return abs((taken_at - moment).total_seconds())

    repository = request.repository
    there = {
        one.savepoint: one.taken_at
        for one in repository.candidates(of_query)
        if one.taken_at is not None and not why_left(left, one.checkpoint, one.batch)
    }
    damaged: list[Skipped] = []
    for savepoint in sorted(there, key=lambda one: distance(there[one])):
        if distance(there[savepoint]) >= distance(newest.manifest.taken_at):
            break
        report = verify(repository, of_query, savepoint, "full", pace=pace, record=record, by=request.by)
        if report.restorable:
            manifest, said = repository.load(of_query, savepoint), unrecorded(report)
            return replace(newest, manifest=manifest, skipped=(*newest.skipped, *damaged), warnings=said)
        problem = next(one for one in report.findings if one.severity == "error")
        damaged.append(Skipped(savepoint, f"{problem.file}: {problem.cause}"))
    return replace(newest, skipped=(*newest.skipped, *damaged))
