"""A job's or a checkpoint's SLA as it is now: what cannot be looked at is a verdict, too.

Progress records do not tell the size of a checkpoint directory: it takes a listing, so it is looked at only
where an objective asks, and put to the newest batch of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.listing import list_checkpoint
from streambank.control.control import JobControl
from streambank.core.errors import NotFoundError, RefusedError, StreambankError
from streambank.core.names import MAIN, QueryRef
from streambank.core.shape import HIDDEN, encode
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.sla import SlaPolicy
from streambank.driver.preflight import checkpoint_lost, declared_query, records_lost, savepoints_lost
from streambank.job.alive import Life, beside_a_driver, job_life
from streambank.kafka.settings import Brokers
from streambank.sla.history.history import Records, passed_through
from streambank.sla.history.hour_files import HourFiles
from streambank.sla.history.hours import Windows, hourly_history
from streambank.sla.history.point import History, Point
from streambank.sla.history.unmanaged import directory_sizes, measure_checkpoint
from streambank.sla.judge.facts import Facts, look_up
from streambank.sla.judge.judge import UnreadableHistory, judge
from streambank.sla.judge.reported import Looking, Subject
from streambank.sla.judge.savepoints import NewestSavepoints, newest_savepoints
from streambank.sla.judge.spread import Spread, skews_of
from streambank.sla.objectives import Objective, objectives
from streambank.sla.skew.report import SkewReport
from streambank.sla.verdict import Level, Verdict, worst
from streambank.storage import normalize_location, open_store

_NOW = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Assessment:
    """All verdicts on a job, or a checkpoint.

    Attributes:
        job: The job's name, or what the checkpoint was called.
        verdicts: Of each query first that on its history, then one for each objective.
        life: Whether the job runs and is watched; None for a checkpoint, and where that could not be seen.
    """

    job: str
    at: datetime
    verdicts: tuple[Verdict, ...]
    life: Annotated[Life | None, HIDDEN] = None

    @property
    def level(self) -> Level:
        """The worst of what is not muted."""
        return worst(verdict for verdict in self.verdicts if verdict.mute is None)

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {
            "level": self.level,
            "up": self.life.up if self.life is not None else None,
            "watched": self.life.watched if self.life is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Material:
    """What a query is judged by."""

    history: History | UnreadableHistory
    facts: Facts


def assess_job(
    job: Job, *, query: str | None = None, now: datetime | None = None, skew: bool = True
) -> Assessment:
    """Judge what a declared job promises.

    Nothing is raised for what cannot be read: that is the verdict `history` of its query.

    Args:
        query: Only this query, by its name, `main` for the only one; None for all.
        now: The moment; the time by this machine's clock when left out. Only then, or close to it, are hours
            of the history kept for the next time.

    Raises:
        InputError: It has no such query (code `no-such-query`).
    """
    at = now or utc_now()
    names = job.queries_named(query)
    life, brokers = look_at_life(job, at), Brokers(job.kafka)
    verdicts = tuple(
        verdict
        for name in names
        for found in [job_material(job, name, at, skew=skew, life=life, brokers=brokers)]
        for verdict in judge(job.name, found.history, job.sla, at, found.facts)
    )
    return Assessment(job.name, at, verdicts, life if isinstance(life, Life) else None)


def look_at_life(job: Job, now: datetime) -> Life | UnreadableHistory:
    """Whether a job runs and is watched, or why that cannot be seen."""
    try:
        return job_life(job.records(), now, queries=job.queries, start_s=job.start.timeout_s)
    except StreambankError as error:
        return UnreadableHistory(MAIN, error.message)


def assess_checkpoint(
    location: str,
    *,
    history: str | None = None,
    repository: str | None = None,
    name: str | None = None,
    policy: SlaPolicy | None = None,
    now: datetime | None = None,
    skew: bool = True,
) -> Assessment:
    """Judge a query by its checkpoint, and by its progress records where there are some.

    Nothing is raised for what cannot be read: that is the verdict `history`.

    Args:
        history: Its progress records: a folder of them, or one file.
        repository: Where its savepoints are, for their age.
        name: What it is called, there and in verdicts: `job`, or `job/query`; the directory's name when left
            out.

    Raises:
        InputError: `name` is no name (code `bad-name`), or the location is none (`bad-location`).
    """
    at = now or utc_now()
    found = checkpoint_material(
        location, at, history=history, repository=repository, name=name, policy=policy, skew=skew
    )
    job = called(location, name)
    return Assessment(job, at, judge(job, found.history, policy, at, found.facts))


def called(location: str, name: str | None) -> str:
    """What a checkpoint that nobody declares is called as a job: `name`, or as its directory.

    Raises:
        InputError: `name` is no name (code `bad-name`), or the location is none (`bad-location`).
    """
    return QueryRef.parse(name).job if name is not None else _last_part(location)


def job_material(
    job: Job,
    query: str,
    now: datetime,
    *,
    history: str | None = None,
    skew: bool = True,
    life: Life | UnreadableHistory | None = None,
    brokers: Brokers | None = None,
    with_skew: Callable[[SkewReport], object] = lambda report: None,
) -> Material:
    """What a query of a job is judged by; points are read while they are gone through.

    Args:
        history: Other progress records than its own: a folder of them, or one file.
        life: Whether the job runs, where the caller has looked: of all its queries it is the same.
        brokers: Who is asked of its Kafka, where the caller judges several queries: all of them together
            wait for a cluster no longer than one does.
    """
    wanted, looking = objectives(job.sla), Looking()
    life = look_at_life(job, now) if life is None else life
    if isinstance(life, UnreadableHistory):
        looking.unreadable.append(f"Whether it runs: {life.why}")
    location = job.queries[query]
    found: History | UnreadableHistory
    try:
        control = job.records()
    except StreambankError as error:
        return Material(UnreadableHistory(query, error.message), Facts())
    try:
        asked = declared_query(job, query, control)
        lost = records_lost(asked) or savepoints_lost(asked)
        if lost is not None:
            return Material(_unreadable(query, lost), Facts())
        generation = control.generation(query)
        location = generation.location if generation is not None else location
        gone = checkpoint_lost(asked, generation)
        if gone is not None and control.generation(query) == generation:  # else a restore came between
            found, skew = _unreadable(query, gone), False
            if isinstance(life, Life) and life.up:
                found = replace(found, advice=beside_a_driver(found.advice))
        elif history is None:
            found = _job_history(control, query, wanted, now, location)
        else:
            found = _named_history(history, query, wanted, now)
    except StreambankError as error:
        found = UnreadableHistory(query, error.message)
    if isinstance(found, History):
        whole = found
        found = looking.at("Its checkpoint", lambda: with_directory(whole, location, wanted)) or whole
    subject = Subject(
        job,
        query,
        control,
        location,
        now,
        skew=skew,
        life=life if isinstance(life, Life) else None,
        brokers=brokers or Brokers(job.kafka),
        with_skew=with_skew,
        looking=looking,
    )
    return Material(found, look_up(subject, wanted))


def _unreadable(query: str, lost: RefusedError) -> UnreadableHistory:
    """The history of a query that has lost what a start needs: the same code and hint as the start's."""
    return UnreadableHistory(query, f"{lost.message} [{lost.code}]", lost.hint)


def checkpoint_material(
    location: str,
    now: datetime,
    *,
    history: str | None = None,
    repository: str | None = None,
    name: str | None = None,
    policy: SlaPolicy | None = None,
    skew: bool = True,
) -> Material:
    """What a query without a declaration is judged by; the arguments are those of `assess_checkpoint`."""
    uri = normalize_location(location)
    query = QueryRef.parse(name).name if name is not None else MAIN
    wanted = objectives(policy)
    found: History | UnreadableHistory
    try:
        if history is not None:
            found = with_directory(_named_history(history, query, wanted, now), uri, wanted)
        elif set(open_store(uri).names()).isdisjoint(("metadata", "offsets", "commits")):
            found = UnreadableHistory(query, f"There is no checkpoint at {uri}.")
        else:
            found = replace(_measured(uri), query=query)
    except StreambankError as error:
        found = UnreadableHistory(query, error.message)
    looking, by_name = Looking(), {objective.name: objective for objective in wanted}
    known: dict[str, Any] = {}
    if repository is not None and "savepoint_age" in by_name:
        called = name if name is not None else _last_part(location)
        savepoints = looking.at("Its savepoints", lambda: newest_savepoints(repository, called))
        known["savepoint_age"] = None if savepoints is None else NewestSavepoints(savepoints)
    if skew and "partition_skew" in by_name and not isinstance(found, UnreadableHistory):
        objective = by_name["partition_skew"]
        skews = looking.at("Its state", lambda: skews_of(uri, objective, now, begun=history is not None))
        known["partition_skew"] = Spread(skews)
    return Material(found, Facts(known, unreadable=tuple(looking.unreadable)))


def _job_history(
    control: JobControl, query: str | None, wanted: Sequence[Objective], now: datetime, location: str
) -> History:
    """By the runner's records; where there are none yet, by the checkpoint that may be there all the same."""
    records = Records.of_query(control.store, query)
    if not records.keys:
        return replace(_measured(location), query=records.query)
    keep = abs(now - utc_now()) < _NOW
    files = HourFiles(control.store, query)
    return hourly_history(records, _windows(wanted, now), files, keep=keep)


def _named_history(location: str, query: str, wanted: Sequence[Objective], now: datetime) -> History:
    return hourly_history(replace(Records.at(location), query=query), _windows(wanted, now))


def _windows(wanted: Sequence[Objective], now: datetime) -> Windows:
    longest = {
        kind: max(
            (objective.window_s or 0.0 for objective in wanted if objective.promise.kind == kind), default=0.0
        )
        for kind in ("window", "trend")
    }
    return Windows(now, longest["window"], longest["trend"])


def _measured(location: str) -> History:
    try:
        return measure_checkpoint(open_store(location)).history
    except NotFoundError as error:
        if error.code != "no-committed-batch":
            raise
        return History(MAIN)


def _last_part(location: str) -> str:
    return normalize_location(location).rstrip("/").rpartition("/")[2]


def with_directory(history: History, location: str, wanted: Sequence[Objective]) -> History:
    """A history whose newest batch tells the size of the checkpoint directory, where wanted."""
    if not any(objective.name == "checkpoint_bytes" for objective in wanted):
        return history
    index = CheckpointIndex.build(list_checkpoint(open_store(location)))
    sizes = directory_sizes(index)

    def with_sizes(points: Iterable[Point]) -> Iterator[Point]:
        last: Point | None = None
        for point in points:
            if last is not None:
                yield last
            last = point
        if last is not None:
            yield replace(last, values={**last.values, **sizes})

    return passed_through(history, with_sizes)
