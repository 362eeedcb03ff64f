"""What is looked at to judge a query: its checkpoint, its job, its history and its savepoints, read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from datetime import datetime, timedelta

from streambank.checkpoint.closure import Closure, ClosurePlanner
from streambank.checkpoint.inspection import Inspection
from streambank.checkpoint.position import batches_in
from streambank.checkpoint.reader import CheckpointReader
from streambank.control.control import JobControl
from streambank.control.progress import ProgressRecord, read_segment
from streambank.core.errors import ConflictError
from streambank.core.finding import Finding
from streambank.core.names import MAIN, QueryRef
from streambank.declaration.declaration import Job
from streambank.doctor.spark_conf import SparkConf, conf_of
from streambank.repository.catalog import glimpse, heads, listed, none_of
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.sites.forks import newest_own
from streambank.sla.history.history import Records
from streambank.sla.history.hour_files import HourFiles
from streambank.sla.history.hours import Windows, hourly_history
from streambank.sla.history.point import Point
from streambank.sla.history.unmanaged import measure_checkpoint
from streambank.storage import open_store
from streambank.storage.store import Store

DAY = timedelta(days=1)
TREND = timedelta(days=14)
"""How far back growth is looked at."""
SINGLE_S = 1800.0
RECENT = 100
"""So many of the newest records of progress are looked at as Spark wrote them."""
SAVEPOINTS = 5
JUST_WRITTEN_S = 60.0
"""A checkpoint to which something was written so recently may have a driver."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query, as far as it can be looked at.

    Attributes:
        name: `job`, `job/query`, or how the savepoints of a checkpoint are called.
        query: The query's name among the job's records; `main` for the only one.
        savepoints: The newest good savepoints, newest first; None where nobody names a repository.
        records: The newest records of progress as Spark wrote them, oldest first.
        points: The history of two weeks, oldest first.
        facts: What the last driver learnt of it.
    """

    name: str
    checkpoint: Store
    now: datetime
    inspection: Inspection
    planner: ClosurePlanner
    job: Job | None = None
    query: str = MAIN
    control: JobControl | None = None
    repository: str | None = None
    savepoints: tuple[Manifest, ...] | None = None
    oldest: Manifest | None = None
    records: tuple[ProgressRecord, ...] = ()
    points: tuple[Point, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def closure(self) -> Closure | None:
        """The closure of its newest committed batch; None where it has none that is whole."""
        return self.inspection.closure

    @property
    def is_driven(self) -> bool:
        """Whether a driver lives, or may; of a query without records its checkpoint has to tell."""
        view = self.control.lease.view() if self.control is not None else None
        if view is not None:
            return not view.free
        before = self.inspection.last_planned_batch, self.inspection.last_committed_batch
        if (*astuple(batches_in(self.checkpoint)),) != before:
            return True
        logs = self.planner.index.offsets, self.planner.index.commits
        written_ns = max(
            (self.planner.index.listing[path].mtime_ns for log in logs for path in log.values()), default=0
        )
        return abs(self.now.timestamp() - written_ns / 1e9) < JUST_WRITTEN_S

    @property
    def conf(self) -> SparkConf | None:
        """The settings that its job declares; None where nobody declares it."""
        return None if self.job is None else conf_of(self.job)

    @property
    def operators(self) -> dict[int, list[Mapping[str, object]]]:
        """What Spark said of each stateful operator, batch by batch, oldest first."""
        found: dict[int, list[Mapping[str, object]]] = {}
        for record in self.records:
            listed = record.progress.get("stateOperators")
            for place, one in enumerate(listed if isinstance(listed, list) else ()):
                if isinstance(one, dict):
                    found.setdefault(place, []).append(one)
        return found


def look_at_checkpoint(
    location: str, now: datetime, *, repository: str | None = None, name: str | None = None
) -> Query:
    """A query of which nobody keeps records, by a `name` of its savepoints, or that of its directory.

    Raises:
        NotFoundError: There is no checkpoint.
    """
    store = open_store(location)
    inspection, planner = _inspect(store)
    called = name or store.uri.rpartition("/")[2]
    saved, oldest = (None, None) if repository is None else _savepoints(repository, called, None)
    return Query(
        called,
        store,
        now,
        inspection,
        planner,
        repository=repository,
        savepoints=saved,
        oldest=oldest,
        points=_measured(store, planner),
    )


def saved_checkpoint(repository: str, asked: QueryRef) -> str:
    """Where a query works that only its savepoints are known of.

    Its records beside the savepoints tell, where it is a managed job; else the savepoint that was taken last.

    Raises:
        NotFoundError: There is no repository, or no savepoint of it (`no-repository`, `no-such-savepoint`).
    """
    store = Repository.open(open_store(repository)).store
    generation = JobControl.of_repository(store, asked.job).generation(asked.query)
    if generation is not None:
        return generation.location
    taken = [head for head in heads(store, str(asked)) if head.job == str(asked)]
    if not taken:
        raise none_of(store, str(asked))
    return max(taken, key=lambda head: head.taken_at).checkpoint


def look_at_job(job: Job, query: str, now: datetime) -> Query | None:
    """A query of a declared job; None where its checkpoint has nothing yet."""
    control = job.records()
    generation = control.generation(query)
    store = open_store(generation.location if generation else job.queries[query])
    records = Records.of_query(control.store, query)
    first = generation is None or generation.number == 1
    if first and not records.keys and not store.names():
        return None
    inspection, planner = _inspect(store)
    name = job.savepoint_name(query)
    saved, oldest = _savepoints(job.repository, name, control)
    windows = Windows(now, SINGLE_S, TREND.total_seconds())
    points = tuple(hourly_history(records, windows, HourFiles(control.store, query), keep=False).points)
    if not records.keys:  # it never ran under Streambank
        points = _measured(store, planner)
    return Query(
        name,
        store,
        now,
        inspection,
        planner,
        job=job,
        query=query,
        control=control,
        repository=job.repository,
        savepoints=saved,
        oldest=oldest,
        records=_recent(records),
        points=points,
        facts=control.query_facts(query) or {},
    )


def _inspect(store: Store) -> tuple[Inspection, ClosurePlanner]:
    reader = CheckpointReader(store)
    inspection = reader.inspect()
    if reader.planner is None:
        raise ConflictError(
            f"The checkpoint {store.uri} moved each time it was read.",
            code="checkpoint-moved",
            hint="The query cleans up faster than it can be listed: ask again.",
        )
    return inspection, reader.planner


def _measured(store: Store, planner: ClosurePlanner) -> tuple[Point, ...]:
    if not planner.index.commits:
        return ()
    return tuple(measure_checkpoint(store, planner=planner).history.points)


def _savepoints(
    repository: str, name: str, control: JobControl | None
) -> tuple[tuple[Manifest, ...], Manifest | None]:
    store = open_store(repository)
    newest = tuple(newest_own(control, store, name, SAVEPOINTS))
    ids = [one for owner, one in listed(store, name) if owner == name]
    oldest = glimpse(store, name, ids[0]) if ids else None
    return newest, oldest


def _recent(records: Records) -> tuple[ProgressRecord, ...]:
    found: list[ProgressRecord] = []
    for key in reversed(records.keys):
        segment = read_segment(records.store, key)
        found = [*(segment.records if segment is not None else ()), *found]
        if len(found) >= RECENT:
            break
    return tuple(found[-RECENT:])


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """Something that was not looked at."""

    what: str
    why: str
    hint: str


NO_PROGRESS = (
    "There are no progress records of this query: only the runner writes them.",
    "Declare it as a job, and let Streambank start it.",
)
UNDECLARED = (
    "The query is not declared as a job, so its memory and its master are not known.",
    "Declare it in the jobs file, and say --job NAME --jobs FILE.",
)
UNCOUNTED = (
    "The declaration does not say how many executors there are.",
    "Declare spark.executor.instances, with spark.dynamicAllocation.enabled = false.",
)
"""Why something was not looked at, and what would let it be seen."""

CheckResult = Finding | SkippedCheck
"""What a check gives."""


def gathered(seen: Iterable[CheckResult]) -> list[Finding]:
    """The findings, each once, and at the end one for each reason for which something was not looked at."""
    found: dict[Finding, None] = {}
    missing: dict[tuple[str, str], list[str]] = {}
    for one in seen:
        if isinstance(one, Finding):
            found[one] = None
        else:
            missing.setdefault((one.why, one.hint), []).append(one.what)
    for (why, hint), things in missing.items():
        told = "; ".join(dict.fromkeys(things))
        found[
            Finding(
                "not-checked",
                "info",
                "",
                why,
                f"This was not checked: {told}.",
                hint,
            )
        ] = None
    return list(found)
