"""Everything that doctor says of a query or a job: each family of findings, one after the other.

What a family cannot look at, it says (`SkippedCheck`); where looking fails, that is said too, and the others
go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import TypeVar

from streambank.checkpoint.position import is_batch
from streambank.cleaning.left_directories import left_directories
from streambank.control.control import JobControl
from streambank.core.errors import ConflictError, StorageError, StreambankError
from streambank.core.finding import Finding
from streambank.core.names import MAIN
from streambank.core.shape import JsonObject
from streambank.core.signing import VARIABLE
from streambank.core.units import utc_now
from streambank.declaration.declaration import Declarations, Job
from streambank.declaration.kafka import FACT, kafka_sources
from streambank.doctor.checks import (
    checkpoint,
    clocks,
    damage,
    heap,
    kept,
    left,
    liveness,
    locations,
    releases,
    rocksdb,
    rows,
    signatures,
    sites,
    snapshots,
    sources,
    state_growth,
    state_rows,
)
from streambank.doctor.spark_conf import conf_of
from streambank.doctor.subject import (
    CheckResult,
    Query,
    SkippedCheck,
    gathered,
    look_at_checkpoint,
    look_at_job,
)
from streambank.driver.environment import driver_environment
from streambank.driver.launchers.disks import TEMPORARY, DiskLocation, disks_of, disks_of_job
from streambank.driver.preflight import checkpoint_lost, declared_query, records_lost, savepoints_lost
from streambank.driver.spec import spec_of
from streambank.inputs.folders import folders_of_live
from streambank.job.alive import beside_a_driver, job_life
from streambank.job.status import site_status
from streambank.kafka.recording import KIND
from streambank.kafka.settings import Brokers
from streambank.repository.catalog import newest_good
from streambank.sinks.bounded import BoundedGuard
from streambank.sinks.declared import of_query
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.of_query import QuerySinks, sinks_of_query
from streambank.sinks.table import TableStanding
from streambank.sinks.unguarded import sink_from_description
from streambank.sla.history.point import Point
from streambank.sla.skew.traffic import hot_key_facts
from streambank.storage import normalize_location, open_store
from streambank.storage.local.mounts import mount_of
from streambank.storage.store import FileInfo, Store

T = TypeVar("T")
_DATED = 20
"""So many of the newest savepoints and events are looked at for a time that has not come."""


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine, as far as findings rest on it; tests give another one."""

    mount_of: locations.MountOf = mount_of
    memory_bytes: int | None = field(default_factory=locations.machine_bytes)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    clock: Callable[[], datetime] = utc_now


@dataclass(frozen=True, slots=True)
class Diagnosis(JsonObject):
    """What was found of one query."""

    job: str | None
    query: str
    checkpoint: str
    findings: tuple[Finding, ...]


def diagnose_checkpoint(
    location: str,
    *,
    sinks: Mapping[str, Store] | None = None,
    repository: str | None = None,
    name: str | None = None,
    machine: Machine | None = None,
    spark: str | None = None,
) -> Diagnosis:
    """Look at a query that no jobs file declares.

    Args:
        sinks: Output directories of its file sinks, by the names to report them by.
        name: How they are called there; the directory's name when left out.
        spark: Also say what a Spark of this version would not go on with.

    Raises:
        NotFoundError: There is no checkpoint.
    """
    here = machine or Machine()
    query = look_at_checkpoint(location, here.clock(), repository=repository, name=name)
    seen = [*_families(query, sinks or {}, here), *_other_release(query, spark)]
    return Diagnosis(None, MAIN, query.checkpoint.uri, tuple(gathered(seen)))


def diagnose_job(
    job: Job,
    query: str | None = None,
    *,
    jobs: Declarations | None = None,
    machine: Machine | None = None,
    spark: str | None = None,
) -> tuple[Diagnosis, ...]:
    """Look at a declared job, query by query.

    Args:
        jobs: The jobs file, to see what it shares with those of other owners.
        spark: Also say what a Spark of this version would not go on with.

    Raises:
        StorageError, ConflictError: The environment failed; what cannot be read for good is a finding.
    """
    here = machine or Machine()
    names = (query,) if query is not None else tuple(job.queries)
    first, *others = (_of_job(job, name, here, spark) for name in names)
    return (replace(first, findings=(*_of_life(job, here, jobs), *first.findings)), *others)


def _of_life(job: Job, machine: Machine, jobs: Declarations | None) -> list[Finding]:
    """Of the job as a whole: said once, with its first query."""
    now = machine.clock()
    try:
        records = job.records()
        life = job_life(records, now, queries=job.queries, start_s=job.start.timeout_s)
        safe = locations.check_authentication(conf_of(job))
        repository = open_store(job.repository)
        apart = locations.check_records_apart(job.name, records.store, repository)
        key_file = machine.environment.get(VARIABLE)
        signed = signatures.check_signatures(job.name, repository, records.signer.keys, key_file)
        at_sites = sites.check_sites(job.name, site_status(job, records))
        owners = () if jobs is None else locations.check_owners(job, jobs)
        alive = liveness.check_life(job.name, life, now)
        return gathered([*alive, *at_sites, *apart, *owners, *signed, *safe])
    except (ConflictError, StorageError):
        raise
    except StreambankError as error:
        return [Finding(error.code, "error", "", error.message, "Whether it runs is not known.", error.hint)]


def _of_job(job: Job, name: str, machine: Machine, spark: str | None) -> Diagnosis:
    location = job.queries[name]
    try:
        records = job.records()
        asked, generation = declared_query(job, name, records), records.generation(name)
        lost = records_lost(asked)
        if lost is not None:
            raise lost
        location = generation.location if generation is not None else location
        gone = checkpoint_lost(asked, generation)
        if gone is not None and records.generation(name) == generation:  # else a restore came between
            view, found = records.lease.view(), _lost_checkpoint(gone, location)
            if view is not None and not view.free:
                found = replace(found, hint=beside_a_driver(found.hint))
            return Diagnosis(job.name, name, location, (found,))
        savepoints = savepoints_lost(asked)
        query = look_at_job(job, name, machine.clock())
    except (ConflictError, StorageError):
        raise
    except StreambankError as error:
        found = Finding(error.code, "error", location, error.message, "It cannot be checked.", error.hint)
        return Diagnosis(job.name, name, location, (found,))
    first = [] if savepoints is None else [_lost_savepoints(savepoints, job.repository)]
    if query is None:
        nothing = SkippedCheck(
            "the checkpoint, the history and the savepoints",
            f"Query {name} of job {job.name} has no checkpoint yet: {location} is empty.",
            "Start the job, and ask again.",
        )
        seen = [
            *first,
            nothing,
            *locations.check_location(location, machine.mount_of),
            *_guarded("free space", lambda: locations.check_space(disks_of_job(job, job.records()), 0)),
            *_places(job, location, machine),
        ]
        return Diagnosis(job.name, name, location, tuple(gathered(seen)))
    directories = left_directories(job, name, now=machine.clock())
    seen = [
        *first,
        *_families(query, {}, machine),
        *left.check_left(directories),
        *_other_release(query, spark),
    ]
    return Diagnosis(job.name, name, query.checkpoint.uri, tuple(gathered(seen)))


def _lost_checkpoint(error: StreambankError, location: str) -> Finding:
    return Finding(
        "checkpoint-lost",
        "error",
        location,
        error.message,
        "The query cannot go on from there, and no start lets it begin from nothing.",
        error.hint,
    )


def _lost_savepoints(error: StreambankError, repository: str) -> Finding:
    return Finding(
        "repository-lost",
        "error",
        repository,
        error.message,
        "The job has no savepoint to go back to, and none is taken until this is repaired.",
        error.hint,
    )


def _families(query: Query, sinks: Mapping[str, Store], machine: Machine) -> Iterator[CheckResult]:
    listing, closure, now = query.planner.index.listing, query.closure, machine.clock()
    all_sinks = {**_file_sinks(query), **sinks}
    saved = query.savepoints or ()
    found: list[CheckResult] = [
        *checkpoint.check_inputs(query.checkpoint, query.inspection, listing, all_sinks, now, saved),
        *_guarded("damage of the checkpoint", lambda: damage.check_damage(query)),
    ]
    yield from _beside_a_driver(found) if query.is_driven else found
    yield from _guarded("clocks", lambda: _clocks(query, listing, machine))
    yield from locations.check_location(query.checkpoint.uri, machine.mount_of)
    yield from _guarded("free space", lambda: _space(query, listing.bytes))
    outputs = [sink.uri for sink in all_sinks.values()]
    yield from _guarded(
        "places",
        lambda: locations.check_apart_from_data(folders_of_live(query.checkpoint, outputs), _own(query)),
    )
    yield from _storage(query, machine)
    if closure is not None:
        named = (query.checkpoint.uri, *((*query.job.args, *query.job.spark.values()) if query.job else ()))
        yield from _guarded(
            "sources", lambda: sources.check_replay(closure, query.planner, query.oldest, named=named)
        )
        brokers = Brokers(query.job.kafka if query.job is not None else None)
        yield from _guarded("kafka", lambda: sources.check_kafka(query.oldest, brokers, now))
        yield from sources.check_repeats(closure.sources, kafka_sources(query.facts, brokers))
    yield from sources.check_sinks((kind, path) for path, kind in _unguarded_sinks(query).items())
    yield from _guarded("tables", lambda: sources.check_tables(_tables(query)))
    yield from _guarded("files of tables", lambda: sources.check_table_files(_lost(query)))
    yield from sources.check_asked(query.savepoints[0] if query.savepoints else None)
    if query.job is not None:
        yield from sources.check_application(Path(query.job.application))
    if closure is not None and closure.operators:
        yield from _state(query, machine)


def _own(query: Query) -> dict[str, str]:
    found = {"checkpoint": query.checkpoint.uri}
    if query.repository is not None:
        found["repository"] = normalize_location(query.repository)
    if query.control is not None:
        found["control location"] = query.control.store.uri
    if query.job is None:
        return found
    job = query.job
    for number, replica in enumerate(job.replicate.to, 1):
        found[f"replica {number}"] = normalize_location(replica)
    for what, place in (("scratch of drills", job.drill.scratch), ("staged state", job.state.work)):
        if place is not None:
            found[what] = place
    for copy in job.copies.values():
        found[f"copy {copy.name}"] = copy.checkpoint
    return found


def _beside_a_driver(found: Iterable[CheckResult]) -> Iterator[CheckResult]:
    for result in found:
        yield replace(result, hint=beside_a_driver(result.hint)) if isinstance(result, Finding) else result


def _space(query: Query, savepoint_bytes: int) -> Iterator[Finding]:
    if query.job is not None and query.control is not None:
        disks = disks_of_job(query.job, query.control)
    else:
        places = [DiskLocation("checkpoint", query.checkpoint.uri), DiskLocation(TEMPORARY, gettempdir())]
        places += [DiskLocation("repository", query.repository)] if query.repository is not None else []
        disks = disks_of(place for place in places if place.is_there)
    yield from locations.check_space(disks, savepoint_bytes, _grows_by(query.points))


def _grows_by(points: Sequence[Point]) -> float:
    """How much the state has grown, in bytes an hour, over the last day for which that is known."""
    sized = [(point.at, point.values["state_bytes"]) for point in points if "state_bytes" in point.values]
    if len(sized) < 2:
        return 0.0
    (last, size) = sized[-1]
    first, was = next((at, value) for at, value in sized if last - at <= timedelta(days=1))
    hours = (last - first).total_seconds() / 3600
    return max(0.0, (size - was) / hours) if hours >= 1 else 0.0


def _other_release(query: Query, spark: str | None) -> Iterator[CheckResult]:
    return iter(()) if spark is None else releases.check_release(query, spark)


def _state(query: Query, machine: Machine) -> Iterator[CheckResult]:
    closure = query.closure
    if closure is None:
        return
    index, conf, reported = query.planner.index, query.conf, query.operators
    declared = conf.declared if conf is not None else {}
    bounded = "whether the state is bounded"
    kept_columns = [*_guarded(bounded, lambda: state_growth.columns_of(closure, query.planner))]
    yield from (one for one in kept_columns if isinstance(one, SkippedCheck))
    columns = [one for one in kept_columns if not isinstance(one, SkippedCheck)]
    yield from state_growth.check_bounded(columns, query.points)
    yield from rows.check_nested(columns, reported)
    yield from _guarded(
        "rows of the state",
        lambda: state_rows.check_state_rows(query.checkpoint, closure, query.planner, columns),
    )
    yield from rows.check_skew(closure, query.checkpoint.uri)
    yield from _guarded("hot keys", lambda: _hot_keys(query))
    yield from kept.check_kept_settings(query.name, closure, declared)
    yield from heap.check_heap(closure, reported, conf)
    yield from rocksdb.check_changelog(closure, index, query.points)
    yield from rocksdb.check_memory(closure, reported, conf, machine.memory_bytes)
    yield from snapshots.check_lag(closure, _batch_period_s(index.listing), declared)
    yield from snapshots.check_checksums(closure, index.listing)
    yield from snapshots.check_restarts(closure, query.points, query.now, managed=bool(query.records))
    if closure.spark.provider == "rocksdb":
        environment = machine.environment
        if query.job is not None:
            environment = driver_environment(environment, extra=query.job.env)
        yield from locations.check_local_dir(conf, environment, _ran_here(query), machine.mount_of)


def _hot_keys(query: Query) -> Iterator[CheckResult]:
    if query.control is None:
        return rows.check_hot_keys(None)
    keys, why = hot_key_facts(query.control, query.query, query.now)
    declared = query.job is not None and query.job.hot_keys is not None
    without = _launched_without_hot_keys(query.control) if declared else ""
    return rows.check_hot_keys(keys, why, declared=declared, without=without)


def _launched_without_hot_keys(control: JobControl) -> str:
    """The launch of the driver that runs, where it samples no hot keys; else empty."""
    view = control.lease.view()
    holder = view.holder if view is not None and view.state == "live" else None
    launch_id = "" if holder is None else str(holder.details.get("launch_id") or "")
    launch = spec_of(control, launch_id) if launch_id else None
    return launch_id if launch is not None and launch.hot_keys is None else ""


def _clocks(query: Query, listing: Mapping[str, FileInfo], machine: Machine) -> Iterator[CheckResult]:
    yield from clocks.check_files(listing, machine.clock())
    yield from clocks.check_planned(query.planner, query.inspection.last_committed_batch)
    yield from clocks.check_driver(query.records[-1] if query.records else None, machine.clock())
    yield from clocks.check_service(query.checkpoint, machine.clock)
    if query.repository is not None:
        newest = newest_good(open_store(query.repository), query.name, _DATED)
        yield from clocks.check_taken(newest, machine.clock())
    if query.control is not None:
        events = [record.data for record in query.control.events(newest=_DATED)]
        yield from clocks.check_happened(events, machine.clock())


def _storage(query: Query, machine: Machine) -> Iterator[CheckResult]:
    location = query.checkpoint.uri
    yield from locations.check_rules("checkpoint", query.checkpoint)
    leased = query.control is not None and query.control.lease.view() is not None
    began = query.inspection.last_planned_batch is not None
    yield from locations.check_fence(location, declared=query.job is not None, leased=leased, began=began)
    if query.job is not None:
        yield from _places(query.job, location, machine)
    elif query.repository is not None:
        yield from _repository(location, query.repository, (), machine)
    else:
        yield SkippedCheck(
            "savepoints and their repository",
            "Where the query's savepoints are is not declared.",
            "Name the repository: -r LOCATION, with --job NAME if they are not called like the directory.",
        )


def _places(job: Job, location: str, machine: Machine) -> Iterator[CheckResult]:
    yield from _repository(location, job.repository, job.replicate.to, machine)


def _repository(
    location: str, repository: str, replicas: Iterable[str], machine: Machine
) -> Iterator[CheckResult]:
    uri = normalize_location(repository)
    yield from locations.check_openness(normalize_location(location), uri)
    yield from locations.check_one_disk(normalize_location(location), uri, tuple(replicas), machine.mount_of)
    store = open_store(uri)
    yield from locations.check_rules("repository", store)
    yield from clocks.check_service(store, machine.clock)


def _file_sinks(query: Query) -> dict[str, Store]:
    description = query.facts.get("sink")
    if not isinstance(description, str):
        return {}
    sink = sink_from_description(description)
    return {sink.path: open_store(sink.path)} if isinstance(sink, FileSinkCapture) else {}


def _sinks(query: Query) -> QuerySinks:
    description, query_id = query.facts.get("sink"), query.facts.get("query_id")
    if query_id is None and query.savepoints:
        query_id = query.savepoints[0].query_id
    declared = of_query(query.job.sinks, query.query) if query.job is not None else ()
    return sinks_of_query(
        description if isinstance(description, str) else None,
        query_id if isinstance(query_id, str) else None,
        declared,
    )


def _unguarded_sinks(query: Query) -> dict[str, str]:
    """Sinks that no restore can judge, by path; Kafka's can be asked, and say themselves what they got."""
    found = _sinks(query)
    plain = {sink.path: sink.kind for sink in found.plain}
    told = query.facts.get(FACT)
    if isinstance(told, Mapping) and told.get("sink") is not None:
        return plain
    if found.named is not None:
        return plain if found.named.keeps_files else {**plain, found.named.path: found.named.kind}
    if found.plain or found.tables:
        return plain
    newest = query.savepoints[0].sinks if query.savepoints else ()
    return {
        str(sink.get("path")): str(sink.get("kind"))
        for sink in newest
        if sink.get("guarded") is not True and sink.get("kind") != KIND
    }


def _tables(query: Query) -> Iterator[TableStanding]:
    newest = query.savepoints[0] if query.savepoints else None
    if newest is None:
        return
    kept = {(sink.get("kind"), sink.get("path")): sink for sink in newest.sinks}
    for table in _sinks(query).tables:
        yield table.stand(newest.batch, kept.get((table.kind, table.path)))


def _lost(query: Query) -> Iterator[tuple[str, list[str]]]:
    """The tables that it writes to, each with its data files that are gone."""
    for table in _sinks(query).tables:
        if isinstance(table, BoundedGuard):
            yield table.path, table.lost()


def _ran_here(query: Query) -> bool:
    """Whether the last driver ran on this machine; one that never ran would be started here."""
    view = query.control.lease.view() if query.control is not None else None
    if view is None or view.holder is None or query.control is None:
        return True
    return query.control.here.sees(view.holder.host)


def _batch_period_s(listing: Mapping[str, FileInfo]) -> float | None:
    """The middle of the times between two commits, so that a pause does not count; None for too few."""
    stamped = sorted(
        (int(name), info.mtime_ns)
        for path, info in listing.items()
        if path.startswith("commits/") and is_batch(name := path.removeprefix("commits/"))
    )
    steps = [
        (after[1] - before[1]) / 1e9
        for before, after in pairwise(stamped)
        if after[0] == before[0] + 1 and 0 < before[1] < after[1]
    ]
    return median(steps) if steps else None


def _guarded(what: str, look: Callable[[], Iterable[T]]) -> Iterator[T | SkippedCheck]:
    """What a look gives; where it fails half way, what it gave so far, and why it ended."""
    try:
        yield from look()
    except StreambankError as error:
        yield SkippedCheck(what, error.message, error.hint)
