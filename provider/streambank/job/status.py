"""How a job is doing: what is meant to be, what is, who works on it. Looks, never waits, never writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streambank.checkpoint.position import Batches, batches_of
from streambank.control.claims import ClaimView
from streambank.control.control import RECENT_EVENTS, Desired, JobControl
from streambank.control.marker import Marker, read_marker
from streambank.control.progress import ProgressRecord, last_progress
from streambank.core.errors import FormatError, InputError, RefusedError, StorageError
from streambank.core.names import PRIMARY, other_of
from streambank.core.shape import JsonObject
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Handle, Launcher
from streambank.driver.launchers.choose import launcher_for, placed
from streambank.driver.location import check_launched_here, launched_handle
from streambank.driver.preflight import (
    CHECKPOINT_LOST,
    REPOSITORY_LOST,
    checkpoint_lost,
    declared_query,
    records_lost,
    unused_checkpoint,
)
from streambank.driver.spec import is_waiting, launch_key, read_launch
from streambank.job.health import Health, judge_health
from streambank.job.states import JobState
from streambank.sites.records import Sites, fenced_at

if TYPE_CHECKING:
    from streambank.job.alive import Life

_LOST: Mapping[str, JobState] = {REPOSITORY_LOST: "repository-lost", CHECKPOINT_LOST: "checkpoint-lost"}
_NEWEST = 20
"""Among so many of the newest events it is always sought how a driver ended that never held the lease."""
Progress = Callable[[str], ProgressRecord | None]
"""Gives the newest record of progress of a query."""
_NOWHERE = Handle("", (), None)
_ENDINGS = 10
"""Among so many of the newest events it is sought what ended the newest driver."""
_DRIVERS = 10
"""How many drivers are looked at to say since when the job is down."""


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query of a job.

    Attributes:
        checkpoint: Its current generation's location.
        sink: Its sink, in Spark's words.
        watermark: Its event-time watermark, ISO-8601, as of the last progress record.
        spark_version: The Spark that it last ran on; None before its first start.
        hot_keys: The keys with the most traffic, as of the last progress record, with its time
            (`ProgressRecord.traffic`); None where none are sampled.
        note: What is odd about its checkpoint: the declared one has no effect, or is another job's.
    """

    checkpoint: str
    generation: int | None
    from_savepoint: str | None
    batch: int | None
    planned_batch: int | None
    query_id: str | None
    sink: str | None
    watermark: str | None
    progress_at: str | None
    spark_version: str | None = None
    hot_keys: Mapping[str, Any] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """Whether somebody keeps a job running.

    Attributes:
        expected: Whether somebody is expected to: a job that is only started by hand is not watched.
        watched: Whether a watcher gives signs, and could act.
        why: Why nothing would restart the job although that is expected; empty where something would.
    """

    expected: bool
    watched: bool
    by: str | None
    seen_at: str | None
    why: str


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """Where a job with a standby runs, by the records of one of its sites.

    Attributes:
        active: The site that may run the job; None while a fail-over is under way.
        number: The number of the newest record; 0 before the first.
        unfenced: The site that could not be reached at the fail-over, and has not been since; None for none.
    """

    site: str
    active: str | None
    number: int
    since: str | None
    why: str
    unfenced: str | None


@dataclass(frozen=True, slots=True)
class JobStatus(JsonObject):
    """A job at a glance. Times are ISO-8601.

    Attributes:
        state: `never-started`; `repository-lost` (its checkpoint's marker says that it ran, and its records
            say nothing of that); `checkpoint-lost` (a query has worked in a checkpoint that is gone, and no
            driver lives); `starting` (a driver comes up); `running`; `stopping`; `stopped` (its last
            driver ended well, or somebody saw to it); `failed` (its driver died, or ended with an error);
            `unknown` (a driver on another host that cannot be judged at a glance, or the last one never held
            the lease and too many events came after it).
        desired: `running`, `stopped`, or None where nobody ever said.
        since: When it took the lease.
        beat_at: Its last heartbeat, by its clock.
        beat_age_s: How old that is by this clock: for people, since clocks may differ.
        launch_id: The newest launch that is known of.
        log: That driver's log: a path on its host, or a web address.
        submission: What its cluster calls it; None for a driver on the machine that launched it.
        operation_state: `live`, `dead` or `unknown`.
        batch: Newest committed batch, of several queries the oldest such.
        health: Whether it gets on, by what its driver said last; None while no driver has the lease.
        down_since: Since when no driver lives that does any work, although the job is meant to run; None
            where one does, or none is meant to.
        watch: Whether somebody would start another driver; None where nobody looked.
        code: That an upgrade chose other code than the job declares for its next driver; empty where the
            declared code counts.
        site: Where it runs; None for a job that has only one site.
    """

    job: str
    state: JobState
    why: str
    desired: str | None = None
    desired_by: Mapping[str, str] = field(default_factory=dict)
    desired_why: str = ""
    desired_at: str | None = None
    epoch: int | None = None
    host: str | None = None
    pid: int | None = None
    jvm_pid: int | None = None
    since: str | None = None
    beat_at: str | None = None
    beat_age_s: float | None = None
    launch_id: str | None = None
    log: str | None = None
    submission: str | None = None
    tracking: str | None = None
    operation: str | None = None
    operation_by: Mapping[str, str] = field(default_factory=dict)
    operation_state: str | None = None
    batch: int | None = None
    queries: Mapping[str, QueryStatus] = field(default_factory=dict)
    health: Health | None = None
    down_since: str | None = None
    down_why: str = ""
    watch: WatchStatus | None = None
    code: str = ""
    site: SiteStatus | None = None

    @property
    def driver(self) -> Handle | None:
        """The newest driver, as its launcher knows it; None where there was none."""
        if self.launch_id is None:
            return None
        return Handle(self.launch_id, (), self.log, self.submission, self.tracking, self.job)


def job_status(
    job: Job,
    *,
    control: JobControl | None = None,
    launcher: Launcher | None = None,
    follow: bool = True,
    progress: Progress | None = None,
) -> JobStatus:
    """Look at a job.

    Args:
        follow: Also say where its driver is (the cluster that may have brought it back elsewhere is asked),
            what its queries have recorded, and who watches it. Who looks again and again, and only at how the
            job is and how far its batches are, leaves that out.
        progress: Gives the newest record of progress of a query, for who reads it anyway.

    Raises:
        FormatError: A record that decides is damaged (code `damaged-record`).
    """
    records = control or job.records()
    view = records.lease.view()
    state, why, launch_id = _state(job, records, view, launcher)
    if view is None or view.free:
        # Not beside a driver that lives: whoever watches one looks again and again.
        lost = _lost(job, records)
        state, why = (_LOST[lost.code], lost.message) if lost is not None else (state, why)
    held = view is not None and not view.free
    driver = _driver(job, records, launch_id, launcher, held) if follow else _NOWHERE
    if state == "failed" and follow and launch_id is not None:
        cause = _cause(job, records, driver, launch_id, launcher)
        why = why if cause is None else f"{why}: {cause.rstrip('.')}"
    desired = records.desired()
    epoch = view.epoch if view else None
    said = None if not follow else progress or partial(last_progress, records.store)
    queries = {name: _query(job, records, name, epoch, said) for name in job.queries}
    batches = [one.batch for one in queries.values()]
    pids = {one.role: one.pid for one in view.holder.processes} if view and view.holder else {}
    work = records.operation_lock.view()
    busy = work if work is not None and work.state != "ended" else None
    beat_at = view.beat_at if view else None
    life = _life(job, records, view, desired) if follow else None
    beat_age_s = round((utc_now() - beat_at).total_seconds(), 1) if beat_at else None
    return JobStatus(
        job=job.name,
        state=state,
        why=why,
        desired=desired.state if desired else None,
        desired_by=desired.by if desired else {},
        desired_why=desired.why if desired else "",
        desired_at=to_json_time(desired.at) if desired else None,
        epoch=epoch,
        host=view.holder.host.host if view and view.holder else None,
        pid=pids.get("python"),
        jvm_pid=pids.get("jvm"),
        since=to_json_time(view.since) if view and view.since else None,
        beat_at=to_json_time(beat_at) if beat_at else None,
        beat_age_s=beat_age_s,
        launch_id=launch_id,
        log=driver.log,
        submission=driver.submission,
        tracking=driver.tracking,
        operation=str(busy.holder.details.get("operation")) if busy and busy.holder else None,
        operation_by=busy.holder.details.get("by", {}) if busy and busy.holder else {},
        operation_state=busy.state if busy else None,
        batch=min((one for one in batches if one is not None), default=None) if None not in batches else None,
        queries=queries,
        health=_health(job, view, beat_age_s, queries) if view and state in ("running", "stopping") else None,
        down_since=to_json_time(life.down_since) if life is not None and life.down_since else None,
        down_why=life.down_why if life is not None else "",
        watch=_watch(life) if life is not None else None,
        code=_chosen(job, records) if follow else "",
        site=site_status(job, records),
    )


def site_status(job: Job, records: JobControl) -> SiteStatus | None:
    """Where a job with a standby runs; None for one that has only one site. The other site is not asked.

    Args:
        job: The job, at one of its sites.

    Raises:
        FormatError: The record that decides is damaged (code `damaged-record`).
    """
    if job.other_site is None:
        return None
    newest = Sites(records).newest()
    if newest is None:
        return SiteStatus(job.site, PRIMARY, 0, None, "there was no fail-over", None)
    missed = newest.unfenced and fenced_at(records, newest) is None
    return SiteStatus(
        job.site,
        newest.active,
        newest.number,
        to_json_time(newest.at),
        newest.describe(),
        other_of(newest.site) if missed else None,
    )


def _life(job: Job, records: JobControl, view: ClaimView | None, desired: Desired | None) -> Life:
    """At a glance: no heartbeat is watched for a while, and the newest drivers alone are looked at."""
    from streambank.job.alive import job_life  # a DAG file that is parsed needs none of it

    return job_life(
        records,
        utc_now(),
        queries=job.queries,
        settle=False,
        newest=_DRIVERS,
        start_s=job.start.timeout_s,
        failures=False,
        view=view,
        desired=desired,
    )


def _chosen(job: Job, records: JobControl) -> str:
    from streambank.code.chosen import newest_choice  # nor of this
    from streambank.code.code import Code

    chosen = newest_choice(records)
    return chosen.words if chosen is not None and chosen.counts(Code.declared(job)) else ""


def _watch(life: Life) -> WatchStatus:
    newest = life.watcher
    return WatchStatus(
        life.expected,
        life.watched,
        newest.who if newest is not None else None,
        to_json_time(newest.seen_at) if newest is not None else None,
        life.unwatched_why,
    )


def _lost(job: Job, records: JobControl) -> RefusedError | None:
    """What is gone that the job has had: its records, or the checkpoint of one of its queries."""
    queries = [declared_query(job, name, records) for name in job.queries]
    lost = [
        *map(records_lost, queries),
        *(checkpoint_lost(query, records.generation(query.name)) for query in queries),
    ]
    return next((one for one in lost if one is not None and one.code in _LOST), None)


def _health(
    job: Job, view: ClaimView, beat_age_s: float | None, queries: Mapping[str, QueryStatus]
) -> Health:
    """What can be told at a glance: whether a heartbeat has stopped shows only to who keeps looking."""
    ttl_s = view.holder.ttl_s if view.holder else 0.0
    said = "" if beat_age_s is None else f"by this clock its driver has said nothing for {beat_age_s:,.0f} s"
    if view.frozen:
        return Health("unhealthy", f"its driver is frozen: {view.frozen}{said and f'; {said}'}")
    if beat_age_s is not None and beat_age_s > ttl_s:
        return Health("unknown", said)
    health = judge_health(job.health, job.queries, view.status)
    of = None if health.query is None else queries.get(health.query)
    last = None if of is None else of.progress_at
    if last is None or view.since is None or last >= to_json_time(view.since):
        return health
    return replace(health, why=f"{health.why}; its last batch before was recorded at {last}")


def _state(
    job: Job, records: JobControl, view: ClaimView | None, launcher: Launcher | None
) -> tuple[JobState, str, str | None]:
    """State, why, and the newest launch."""
    launch_id = view.launch_id if view else None
    purpose = view.holder.details.get("purpose") if view and view.holder else None
    if view is not None and not view.free:
        if purpose not in ("run", None):
            return "stopped", f"a {purpose} holds the lease: {view.why}", launch_id
        if view.state == "unknown":
            return "unknown", view.why, launch_id
        stopping = view.status.get("state") == "stopping"
        return ("stopping" if stopping else "running"), view.why, launch_id
    been = records.lease.recent_launches()
    try:
        found = (launcher or launcher_for(job)).find(records)
        check_launched_here(placed(job), records, view)
        upcoming = [
            handle
            for handle in found
            if handle.launch_id not in been and not is_waiting(records, handle.launch_id)
        ]
    except (InputError, StorageError, RefusedError) as error:
        state, why, launch_id = _ended(records, view, been, launch_id)
        if records.lease.doubt(view) is not None and (
            job.launch.is_registered or isinstance(error, RefusedError)
        ):
            # Only the place where it was launched can tell, and that was not asked.
            return "unknown", f"its heartbeat has stopped, and it may still run: {error.message}", launch_id
        return state, f"{why}; it is not known whether a driver is starting: {error.message}", launch_id
    if upcoming:
        return "starting", "there is a driver that does not hold the lease yet", upcoming[0].launch_id
    return _ended(records, view, been, launch_id)


def _ended(
    records: JobControl, view: ClaimView | None, been: Collection[str], launch_id: str | None
) -> tuple[JobState, str, str | None]:
    """The same where no driver is there."""
    kinds = ("driver-died", "launched", "stopped")
    last = records.last_event(*kinds, newest=_NEWEST)
    # Else the lease says how the newest driver ended, and its events may be many.
    unleased = _unleased(records, been) if last is None else []
    if unleased:
        last = records.last_event(*kinds, newest=RECENT_EVENTS)
    if last is not None and last["kind"] == "driver-died" and last.get("launch_id") not in been:
        return "failed", "its driver ended before it took the lease", last.get("launch_id")
    if unleased and last is None and len(records.event_records.numbers()) > RECENT_EVENTS:
        lost = next((one for one in unleased if not is_waiting(records, one)), None)
        if lost is not None:
            silent = f"the newest {RECENT_EVENTS:,} events do not say how it ended"
            return "unknown", f"its newest driver never took the lease, and {silent}", lost
    if view is None:
        return "never-started", "its lease was never held", None
    purpose = view.holder.details.get("purpose") if view.holder else None
    if purpose not in ("run", None):
        return "stopped", f"no driver runs since a {purpose} had the lease: {view.why}", launch_id
    exit_code = view.end.get("exit_code")
    if view.state == "dead":
        return "failed", f"its driver died: {view.why}", launch_id
    if exit_code not in (None, 0):
        return "failed", f"its driver ended with exit code {exit_code}", launch_id
    if view.end.get("how") == "released":
        return "stopped", "its driver ended without an error", launch_id
    if view.state == "ended" and "how" not in view.end:
        return "failed", f"how its driver ended is not known: {view.why}", launch_id
    return "stopped", f"its driver runs no more: {view.why}", launch_id


def _unleased(records: JobControl, been: Collection[str]) -> list[str]:
    """The launches since the newest one that held the lease, by when their specs were written.

    A spec whose store does not say when counts as written at the same time as the others.
    """
    specs = records.store.list("launches")
    infos = {info.path.rpartition("/")[2].removesuffix(".json"): info for info in specs}
    newest_ns = max((info.mtime_ns for one, info in infos.items() if one in been), default=0)
    return [one for one, info in infos.items() if one not in been and info.mtime_ns >= newest_ns]


def _driver(
    job: Job, records: JobControl, launch_id: str | None, launcher: Launcher | None, follow: bool
) -> Handle:
    """Where a driver is; its cluster is asked only where that may have brought it back elsewhere."""
    if launch_id is None or not records.store.exists(launch_key(launch_id)):
        return _NOWHERE
    spec = read_launch(records, launch_id)
    known = launched_handle(records, launch_id, log=spec.log)
    if spec.supervised and follow:
        from streambank.driver.location import look_for_driver

        # Where the cluster cannot be asked, what was known before is better than nothing.
        with contextlib.suppress(InputError, StorageError):
            return look_for_driver(launcher or launcher_for(job), records, known, spec)[0]
    return known


def _cause(
    job: Job, records: JobControl, driver: Handle, launch_id: str, launcher: Launcher | None
) -> str | None:
    """What ended a driver: the innermost error in its log, or in what it recorded."""
    from streambank.driver.failure import SEARCHED_LINES, driver_failure  # a DAG file needs none of it

    lines: list[str] = []
    with contextlib.suppress(InputError, StorageError):  # its log is elsewhere, or gone
        lines = (launcher or launcher_for(job)).log_lines(driver, SEARCHED_LINES) if driver.log else []
    failure = driver_failure(records, launch_id, lines, newest=_ENDINGS)
    # Without an exception, the end of a log says nothing of why it ends there.
    return None if failure is None or not failure.known else failure.sentence


def _query(
    job: Job, records: JobControl, name: str, epoch: int | None, progress: Progress | None
) -> QueryStatus:
    """A query; without `progress` what its driver has recorded of it is left out."""
    generation = records.generation(name)
    location = generation.location if generation else job.queries[name]
    note = unused_checkpoint(job.queries[name], generation)
    owner = _owner(location) if generation is None else None
    batches = batches_of(location)
    if owner is not None and owner.has_worked and owner.job != job.name:
        batches, note = Batches(None, None), f"The checkpoint {location} belongs to job {owner.called}."
    facts = {} if progress is None else records.query_facts(name) or {}
    last = None if progress is None else progress(name)
    event_time = last.progress.get("eventTime") if last else None
    return QueryStatus(
        checkpoint=location,
        generation=generation.number if generation else None,
        from_savepoint=generation.from_savepoint if generation else None,
        batch=batches.committed,
        planned_batch=batches.planned,
        query_id=facts.get("query_id"),
        sink=facts.get("sink"),
        watermark=event_time.get("watermark") if isinstance(event_time, dict) else None,
        progress_at=to_json_time(last.at) if last else None,
        spark_version=facts.get("spark_version"),
        hot_keys=last.traffic(epoch) if last else None,
        note=note,
    )


def _owner(location: str) -> Marker | None:
    try:
        return read_marker(location)
    except FormatError:
        return None  # a start says so
