"""Savepoints of all queries of a job that belong together, and the nearest place that has all of them.

What is meant by belonging together is in recovery/together.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from streambank.control.control import JobControl
from streambank.core.errors import InputError, NotFoundError
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from streambank.recovery.choosing.nearest import (
    NEAREST,
    PASSED_OVER,
    Places,
    ReachedRepository,
    choose_nearest,
    whole_at,
)
from streambank.recovery.choosing.older import BY_AGE
from streambank.recovery.choosing.resolve import Chosen, choose, first_whole, hinting_refresh
from streambank.repository.catalog import LATEST_GOOD, none_of
from streambank.repository.references import Reference, parse_reference
from streambank.repository.repository import Repository
from streambank.sites.forks import QueryLines
from streambank.work.executor import DEFAULT_PACE, Pace


@dataclass(frozen=True, slots=True)
class ChosenTogether:
    """A savepoint of each query of a job.

    Attributes:
        moment: For `latest-good` the newest moment that each query reaches with one that verifies; the
            savepoints that are closest to it may be older. Else when the oldest of them was taken.
    """

    queries: Mapping[str, Chosen]
    moment: datetime


def choose_together(
    job: Job,
    repository: Repository,
    reference: str = LATEST_GOOD,
    *,
    control: JobControl | None = None,
    record: bool = False,
    lines: Mapping[str, QueryLines] | None = None,
    savepoints: Mapping[str, str] | None = None,
    whole: bool = False,
    by: Mapping[str, str] | None = None,
    pace: Pace = DEFAULT_PACE,
) -> ChosenTogether:
    """A savepoint of each query of a job.

    Of `latest-good` the newest one that every query reaches back to is the moment, and each query's savepoint
    that is closest to it is chosen; each byte of it is hashed.

    Args:
        reference: `latest-good`, or whatever names a savepoint of each query, such as a time.
        lines: Which savepoints are of the line of each query; what the job's records say when left out.

    Raises:
        InputError: The reference is of one query (code `names-one-query`).
        NotFoundError, IntegrityError, InputError: See `choosing.resolve.choose`.
    """
    asked, named = _parse(job, reference), savepoints or {}
    check_each_named(job, named)
    found: dict[str, Chosen] = {}
    if lines is None:
        records = control or job.records()
        lines = {name: QueryLines.of(records, name) for name in job.queries}
    for name in job.queries:
        with hinting_refresh(job):
            found[name] = choose(
                repository,
                named.get(name, reference),
                job.savepoint_name(name),
                record=record,
                by=by,
                pace=pace,
                lines=lines[name],
                level="full" if whole else "quick",
                beside=_beside(job, name),
            )
    moment = min(one.manifest.taken_at for one in found.values())
    if asked.kind == LATEST_GOOD and not named:
        for name, newest in found.items():
            found[name] = _closest(
                repository,
                job.savepoint_name(name),
                newest,
                moment,
                lines=lines[name],
                pace=pace,
                record=record,
                by=by,
            )
    return ChosenTogether(found, moment)


def _closest(
    repository: Repository,
    of_query: str,
    newest: Chosen,
    moment: datetime,
    *,
    lines: QueryLines,
    pace: Pace,
    record: bool,
    by: Mapping[str, str] | None,
) -> Chosen:
    """The savepoint of a query that was taken closest to a moment and verifies; or the newest one."""

    def distance(taken_at: datetime) -> float:
        return abs((taken_at - moment).total_seconds())

    candidates = repository.candidates(of_query)
    lines = lines.knowing(candidates)
    there = {
        one.savepoint: one.taken_at
        for one in candidates
        if one.taken_at is not None and not lines.why_not(one)
    }
    closer = [one for one in there if distance(there[one]) < distance(newest.manifest.taken_at)]
    closer.sort(key=lambda one: distance(there[one]))
    found, damaged = first_whole(repository, of_query, closer, record=record, by=by, pace=pace)
    whole = found or newest
    return replace(
        newest,
        manifest=whole.manifest,
        skipped=(*newest.skipped, *damaged),
        warnings=whole.warnings,
    )


def from_place(
    job: Job,
    place: str | None,
    reference: str,
    *,
    control: JobControl,
    target: str,
    record: bool,
    query: str | None = None,
    savepoints: Mapping[str, str] | None = None,
    by: Mapping[str, str] | None = None,
    pace: Pace = DEFAULT_PACE,
) -> tuple[Repository, Mapping[str, Chosen] | None]:
    """Where the savepoints of queries come from, and what `nearest` has chosen there.

    The nearest place is the cheapest one that has the savepoint of every query undamaged; which savepoints
    are meant does not depend on that. Of `latest-good` it is the newest moment that any place reaches with
    all queries; see nearest.py.

    Args:
        place: The repository or a replica, or `nearest`; None for the job's repository.
        reference: `latest-good`, or whatever names a savepoint of each query.

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
    named, locations = savepoints or {}, (job.repository, *job.replicate.to)
    if query is None:
        check_each_named(job, named)
    if query is not None or len(job.queries) == 1:
        name = query or next(iter(job.queries))
        with hinting_refresh(job):
            repository, only = choose_nearest(
                locations,
                named.get(name, reference),
                job.savepoint_name(name),
                target=target,
                record=record,
                open_place=job.open_place,
                by=by,
                pace=pace,
                lines=QueryLines.of(control, name),
            )
        return repository, {name: only}
    asked = _parse(job, reference)
    lines = {name: QueryLines.of(control, name) for name in job.queries}
    places = Places(locations, job.name, target, job.open_place)
    lines = {name: one.knowing(places.heads(job.savepoint_name(name))) for name, one in lines.items()}
    if asked.kind == LATEST_GOOD and not named:
        choose_at = partial(
            choose_together, job, reference=reference, record=record, lines=lines, by=by, pace=pace
        )
        return _newest_moment(job, reference, places, lines, choose_at)
    meant = {
        name: places.meant_by(named.get(name, reference), job.savepoint_name(name), lines[name])
        for name in job.queries
    }
    somewhere: set[str] = set()
    for at in places.there:
        found: dict[str, Chosen] = {}
        for name, one in meant.items():
            try:
                found[name] = whole_at(at, one, record=record, by=by, pace=pace)
            except PASSED_OVER as error:
                places.pass_over(at.location, error.message)
        if len(found) == len(meant):
            passed = tuple(places.passed)
            return at.repository, {name: replace(one, passed_over=passed) for name, one in found.items()}
        somewhere |= found.keys()
    nowhere = _no_place(job, reference, places)
    damaged = next((name for name in meant if name not in somewhere), None)
    if damaged is None or asked.kind not in BY_AGE or named:
        raise nowhere
    beside = _beside(job, damaged)
    raise places.name_older(nowhere, meant[damaged], asked.said, lines[damaged], pace, beside=beside)


def _newest_moment(
    job: Job,
    reference: str,
    places: Places,
    lines: Mapping[str, QueryLines],
    choose_at: Callable[[Repository], ChosenTogether],
) -> tuple[Repository, Mapping[str, Chosen]]:
    """The place with the newest moment that all queries reach; the nearest one of those with the same.

    A place is read only where its manifests promise a newer moment than what was found whole.
    """
    promised: list[tuple[datetime, ReachedRepository]] = []
    for place in places.there:
        try:
            promised.append((_promised(job, place.repository, lines), place))
        except PASSED_OVER as error:
            places.pass_over(place.location, error.message)
    promised.sort(key=lambda one: one[0], reverse=True)
    best: tuple[ReachedRepository, ChosenTogether] | None = None
    for moment, place in promised:
        if best is not None and best[1].moment >= moment:
            places.pass_over(place.location, f"It has all queries only up to {to_json_time(moment)}.")
            continue
        try:
            chosen = choose_at(place.repository)
        except PASSED_OVER as error:
            places.pass_over(place.location, error.message)
            continue
        if best is None or chosen.moment > best[1].moment:
            best = place, chosen
    if best is None:
        raise _no_place(job, reference, places)
    at, found = best
    passed = tuple(places.passed)
    return at.repository, {name: replace(one, passed_over=passed) for name, one in found.queries.items()}


def _promised(job: Job, repository: Repository, lines: Mapping[str, QueryLines]) -> datetime:
    """A moment beyond which not all queries have a savepoint there; what is damaged is found out later."""
    newest = []
    for name in job.queries:
        of_query = job.savepoint_name(name)
        candidates = repository.candidates(of_query)
        own = [one for one in candidates if not lines[name].why_not(one)]
        taken = [one.taken_at for one in own if one.taken_at is not None]
        if not taken:
            raise none_of(repository.store, of_query)
        newest.append(max(taken))
    return min(newest)


def _no_place(job: Job, reference: str, places: Places) -> NotFoundError:
    return NotFoundError(
        f"Neither the repository of {job.name} nor a replica of it has whole what {reference} means of each "
        f"query: {places.said()}",
        code="no-good-savepoint",
        hint="`streambank verify --all -r LOCATION` shows what is wrong with each. `streambank repair` "
        "brings a place what another one has.",
    )


def _parse(job: Job, reference: str) -> Reference:
    asked = parse_reference(reference)
    if len(job.queries) > 1 and (asked.place or asked.kind in ("id", "batch")):
        raise InputError(
            f"{reference} is a savepoint of one query, and job {job.name} has several.",
            code="names-one-query",
            hint="Use latest-good, latest, a name or a time; or restore that query alone.",
        )
    return asked


def check_each_named(job: Job, savepoints: Mapping[str, str]) -> None:
    """Make sure that savepoints that are named by their ids are of all queries of a job, or that none is.

    Raises:
        InputError: They are of others (code `names-one-query`).
    """
    if savepoints and set(savepoints) != set(job.queries):
        raise InputError(
            f"The queries of {job.name} are {', '.join(job.queries)}, and savepoints are named of "
            f"{', '.join(savepoints)}.",
            code="names-one-query",
            hint="Plan the restore again: another query was declared, or one is not declared any more.",
        )


def _beside(job: Job, query: str) -> list[str] | None:
    """The other queries of a job, each as `job/query`; None where there is no other."""
    return [job.savepoint_name(name) for name in job.queries if name != query] or None
