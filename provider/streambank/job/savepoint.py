"""Savepoints of a managed job: one of each query, with the sinks that Spark told the runner of.

Several queries of one job are several savepoints, each whole by itself. They are not of one moment: no two
queries of a driver ever are at the same point of the world.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streambank.checkpoint.reader import CheckpointReader
from streambank.code.chosen import code_that_counts
from streambank.code.code import Code
from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.marker import read_marker, renew_marker
from streambank.control.progress import last_progress
from streambank.control.records import leaving_word
from streambank.core.choices import CLOSURE_KINDS
from streambank.core.errors import FormatError, InputError, NotFoundError, StreambankError, check_choice
from streambank.core.names import MAIN
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.kafka import kafka_sink, kafka_sources
from streambank.driver.fingerprints import application_fingerprint, conf_fingerprint
from streambank.driver.outputs import left_for
from streambank.driver.preflight import (
    check_records,
    checkpoint_lost,
    declared_query,
    savepoints_lost,
    unused_checkpoint,
)
from streambank.driver.spec import spec_of
from streambank.inputs.folders import check_new_repository
from streambank.kafka.settings import Brokers
from streambank.repository.catalog import recent_heads
from streambank.repository.repository import Repository
from streambank.savepoint.lost_state import Reported
from streambank.savepoint.sinks import SinkCapture
from streambank.savepoint.take import TakeRequest, TakeResult, take
from streambank.sinks.declared import DeclaredSink, of_query
from streambank.sinks.file.capture import KIND as FILE
from streambank.sinks.file.capture import NEAR, FileSinkCapture
from streambank.sinks.file.log import list_log
from streambank.sinks.file.nearby import look_nearby, may_be_of
from streambank.sinks.of_query import sinks_of_query
from streambank.sinks.tags import TagScope
from streambank.sinks.unguarded import sink_from_description
from streambank.storage import open_store, same_place, service_name
from streambank.storage.local.modes import openness
from streambank.storage.store import Store
from streambank.work.executor import DEFAULT_PACE, Pace


@dataclass(frozen=True, slots=True)
class JobSavepoints:
    """The savepoints of one asking.

    Attributes:
        savepoints: By query (`main` where there is only one).
    """

    job: str
    savepoints: Mapping[str, TakeResult]

    def to_dict(self) -> dict[str, Any]:
        """As JSON: with one query what `take` gives for it, else `queries` with one such object each."""
        if set(self.savepoints) == {MAIN}:
            return self.savepoints[MAIN].to_dict()
        return {
            "job": self.job,
            "mutually_consistent": False,
            "queries": {name: result.to_dict() for name, result in self.savepoints.items()},
        }


def savepoint_job(
    job: Job,
    *,
    by: Mapping[str, str],
    why: str = "",
    query: str | None = None,
    batch: int | None = None,
    closure: str | None = None,
    note: str = "",
    name: str | None = None,
    pin: bool = False,
    new_query: bool = False,
    pace: Pace = DEFAULT_PACE,
    control: JobControl | None = None,
    repository: Repository | None = None,
    new_repository: bool = False,
) -> JobSavepoints:
    """Take a savepoint of each query of a job (or of one), running or stopped.

    Args:
        batch: A batch that Spark still retains; the newest committed one when left out. Only for one query.
        closure: `safe` or `minimal`; the declared one when left out.
        name: A name that is unique within the job, or each query of several.
        new_query: The query may be another one than that of the job's savepoints. On a copy it always may:
            each refresh makes another query under its name, and nothing else does, since a copy that is not
            there is neither started nor saved.
        repository: The repository; opened (and created where there is none) from the declaration when left
            out.
        new_repository: A person accepts that the repository is lost: another one is made in its place.

    Raises:
        RefusedError: The job's records, or its repository, are lost (code `repository-lost`), or its
            checkpoint is (`checkpoint-lost`).
        InputError: The job has no such query (code `no-such-query`), `batch` is asked of several
            (`which-query`), or the closure is not one of the two (`bad-choice`).
        NotFoundError: The job was never started (code `never-started`), has committed nothing yet
            (`no-committed-batch`), or there is no such batch.
        StreambankError: Whatever else `take` raises.
    """
    chosen = check_choice(job.savepoint.closure if closure is None else closure, "closure", CLOSURE_KINDS)
    records = control or job.records()
    names, runs = _queries(job, query, batch), code_that_counts(job, records)
    places = {name: place_of(job, records, name) for name in names}
    for query_name, (location, _) in places.items() if repository is None else ():
        outputs = _outputs(records, query_name)
        check_new_repository(open_store(job.repository), open_store(location), outputs)
    target = repository or open_repository(job, records, new=new_repository)
    taken = {}
    for query_name, (location, generation) in places.items():
        request = TakeRequest(
            open_store(location),
            target,
            job.savepoint_name(query_name),
            batch=batch,
            closure=chosen,
            note=note,
            name=name or "",
            pin=pin,
            taken_by={**by, **({"reason": why} if why else {})},
            new_query=new_query or job.copy is not None,
            application=application_fingerprint(Path(runs.application), _args(records, query_name, runs)),
            conf=conf_fingerprint(runs.spark),
        )
        known = managed_take(request, records, query_name, Brokers(job.kafka), job.sinks)
        taken[query_name] = take(with_found_sinks(known, [(job, query_name)]), pace=pace)
        record_taken(records, query_name, taken[query_name], generation=generation, by=by, why=why)
        if note_of := unused_checkpoint(job.queries[query_name], records.generation(query_name)):
            warned = (*taken[query_name].warnings, note_of)
            taken[query_name] = replace(taken[query_name], warnings=warned)
        _mark(job, records, query_name, target, by)
    settled = job.settle_tags(target, ensure={one.job: one.savepoint for one in taken.values()})
    warnings = tuple(warning for report in settled for warning in report.warnings)
    if warnings:
        last = next(reversed(taken))
        taken[last] = replace(taken[last], warnings=(*taken[last].warnings, *warnings))
    return JobSavepoints(job.name, taken)


def managed_take(
    request: TakeRequest,
    records: JobControl,
    query: str,
    brokers: Brokers,
    declared: Sequence[DeclaredSink] = (),
) -> TakeRequest:
    """The same request with what a job's records know of the query: sinks, sources, Spark and the lease.

    Args:
        request: What is asked; sinks that it names itself come first, and are not named twice.
        declared: What the job declares of its sinks.
    """
    facts = _current_facts(records, query, request.checkpoint)
    named = {sink.path for sink in request.sinks}
    tags = TagScope(request.repository.id, request.job)
    known = sinks_of(facts, request.checkpoint, brokers, of_query(declared, query), tags)
    moved = _begun_outputs(records, query, facts, request)
    known = [sink for sink in known if left_for(sink.path, moved) is None]
    generation = records.generation(query)
    here = generation is not None and same_place(generation.location, request.checkpoint.uri)
    begun = [new for new in dict.fromkeys(moved.values()) if list_log(open_store(new))]
    known += [FileSinkCapture(new) for new in begun if not any(same_place(one.path, new) for one in known)]
    return replace(
        request,
        sinks=[*request.sinks, *(sink for sink in known if sink.path not in named)],
        sources=kafka_sources(facts, brokers),
        taken_by={**request.taken_by, "records": records.store.uri},
        lease_epoch=lambda: _epoch(records),
        spark_version=facts.get("spark_version"),
        reported=reported_state(records, query),
        restored_from=generation.from_savepoint if generation is not None and here else None,
    )


def _args(records: JobControl, query: str, runs: Code) -> Sequence[str]:
    """With which arguments the last driver of a query was launched: a start may have given it its own.

    Args:
        runs: The code that counts, whose arguments they are where nothing is known of the launch.
    """
    launch_id = (records.query_facts(query) or {}).get("launch_id")
    try:
        launch = None if launch_id is None else spec_of(records, str(launch_id))
    except FormatError:
        return runs.args  # of another version
    return runs.args if launch is None else launch.args


def _current_facts(records: JobControl, query: str, checkpoint: Store) -> Mapping[str, Any]:
    """What the last driver learnt of a query; nothing where it ran another query, in another generation.

    A refresh or a fork makes another query, whose outputs are not those of the query before it.
    """
    facts, generation = records.query_facts(query) or {}, records.generation(query)
    known, ran_in = facts.get("query_id"), facts.get("generation")
    if known is None or generation is None or ran_in in (None, generation.number):
        return facts
    return facts if CheckpointReader(checkpoint).query_id() == known else {}


def _begun_outputs(
    records: JobControl, query: str, facts: Mapping[str, Any], request: TakeRequest
) -> Mapping[str, str]:
    """The outputs that a restore or a refresh has begun for a generation in which no driver has worked yet.

    Spark has described none of them to a driver, and what it described before is of outputs that the query
    has left. A batch has one savepoint, so the one that is taken before the first start must know them. Where
    that is the one that was restored, and is still listed, it is there already, and says what was true of it.

    Args:
        facts: What its last driver learnt of it, if that is still true.
        request: What is saved, and where it goes.

    Returns:
        The output directories that the query has left, each with the new one; empty where a driver has worked
        in the generation, another checkpoint than that of the generation is saved, or its savepoint is there.
    """
    generation = records.generation(query)
    if generation is None or facts.get("generation") == generation.number:
        return {}
    if not same_place(generation.location, request.checkpoint.uri) or _is_listed(generation, request):
        return {}
    return generation.new_sinks


def _is_listed(generation: Generation, request: TakeRequest) -> bool:
    """Whether what a generation was restored from, as the same query, is a savepoint of the repository."""
    if not generation.new_sinks or generation.from_savepoint is None:
        return False
    try:
        restored = request.repository.load(request.job, generation.from_savepoint)
    except NotFoundError:
        return False
    return restored.query_id == CheckpointReader(request.checkpoint).query_id()


def reported_state(records: JobControl, query: str) -> Reported | None:
    """What the last driver of a query said of its state; None where it said nothing yet."""
    last = last_progress(records.store, query)
    if last is None:
        return None
    operators, query_id = last.progress.get("stateOperators"), last.progress.get("id")
    if not isinstance(operators, list) or not isinstance(query_id, str):
        return None
    return Reported(query_id, last.batch, len(operators))


def open_repository(job: Job, records: JobControl, *, new: bool = False) -> Repository:
    """The repository of a job; made where there is none, but not in the place of one that is gone.

    Args:
        new: A person accepts that it is gone.

    Raises:
        RefusedError: It is gone (code `repository-lost`): an empty mount point, say.
    """
    for name in () if new else job.queries:
        lost = savepoints_lost(declared_query(job, name, records))
        if lost is not None:
            raise lost
    return job.open_repository(create=True, like=_closest(job, records))


def _outputs(records: JobControl, query: str) -> list[str]:
    sink = (records.query_facts(query) or {}).get("sink")
    found = sink_from_description(sink) if isinstance(sink, str) else None
    return [found.path] if found is not None and found.kind == FILE else []


def _closest(job: Job, records: JobControl) -> str:
    """The checkpoint of the job that the fewest users may look into."""
    places = [place_of(job, records, name)[0] for name in job.queries]
    known = {place: found.mode for place in places if (found := openness(place)) is not None}
    return min(known, key=lambda place: (known[place].bit_count(), known[place]), default=places[0])


def _mark(job: Job, records: JobControl, name: str, repository: Repository, by: Mapping[str, str]) -> None:
    """Let the marker know of the repository; a job that is older than markers gets one here.

    So does one that was never started, or nobody would miss its savepoints where their disk is gone.
    """
    query = declared_query(job, name, records)
    generation, facts = records.generation(query.name), query.facts
    if generation is None:
        generation = Generation(1, query.checkpoint, None, utc_now(), by)
    if generation.number == 1 and facts.get("query_id") is None:
        facts = {}
    elif facts.get("query_id") is None or facts.get("generation") != generation.number:
        return  # no driver of Streambank has worked there yet
    why = renew_marker(
        query.checkpoint,
        job=job.name,
        query=name,
        generation=generation,
        control=records,
        by=by,
        repository=job.repository,
        repository_id=repository.id,
        facts=facts,
        unchanged=False,
    )
    if why is not None:
        records.record_event("marker-not-written", query=name, by=dict(by), why=why)


def record_taken(
    records: JobControl,
    query: str,
    result: TakeResult,
    *,
    generation: int,
    by: Mapping[str, str],
    why: str = "",
) -> None:
    """Leave behind that a savepoint of a job was taken: the same event, whoever took it.

    Raises:
        StorageError: It could not be recorded (code `report-not-written`).
    """
    with leaving_word(
        f"Savepoint {result.savepoint} is taken and listed, but not recorded as an event of its job",
        "Use it as any other. To have it in the job's history, take it again: that copies nothing.",
    ):
        records.record_event(
            "savepoint-taken",
            query=query,
            savepoint=result.savepoint,
            batch=result.batch,
            generation=generation,
            already_there=result.already_there,
            by=dict(by),
            why=why,
        )


def place_of(job: Job, records: JobControl, name: str) -> tuple[str, int]:
    """Where a query works, and in which generation.

    Raises:
        RefusedError: The job's records are lost (code `repository-lost`), or its checkpoint is
            (`checkpoint-lost`).
        NotFoundError: It has committed nothing (codes `never-started`, `no-committed-batch`): said in the
            job's own words, before a repository is made.
    """
    query = declared_query(job, name, records)
    check_records(query)
    generation = records.generation(name)
    location = generation.location if generation is not None else job.queries[name]
    number = generation.number if generation is not None else 1
    place = open_store(location)
    if place.names("commits"):
        return location, number
    called = job.savepoint_name(name)
    if generation is None:
        raise NotFoundError(
            f"Job {called} was never started: there is nothing at {location}.",
            code="never-started",
            hint=f"Start it first: `streambank job start {job.name}`.",
        )
    lost = checkpoint_lost(query, generation)
    if lost is not None:
        raise lost
    raise NotFoundError(
        f"Job {called} has not committed a batch yet: there is none at {location}.",
        code="no-committed-batch",
        hint=f"Wait for its first batch; `streambank job status {job.name}` tells how it is doing.",
    )


def _queries(job: Job, query: str | None, batch: int | None) -> tuple[str, ...]:
    names = job.queries_named(query)
    if batch is not None and len(names) > 1:
        raise InputError(
            f"Job {job.name} has several queries, so a batch number alone is ambiguous.",
            code="which-query",
            hint="Name one query.",
        )
    return names


def _epoch(control: JobControl) -> str | None:
    numbers = control.lease.claims.records.numbers()
    return str(numbers[-1]) if numbers else None


def with_found_sinks(request: TakeRequest, owners: Sequence[tuple[Job, str]] = ()) -> TakeRequest:
    """The same request; where it names no sink, with those that were found, or what may be one.

    Args:
        owners: Declared jobs whose checkpoint it is, each with the name of the query.
    """
    if request.sinks or request.derived_from is not None:
        return request
    query_id = CheckpointReader(request.checkpoint).query_id()
    found = _of_owners(request, query_id, owners) or _of_marker(request, query_id)
    if found := found or _of_last_savepoint(request, query_id):
        return replace(request, sinks=found, sinks_found=True)
    near = look_nearby(request.checkpoint.uri)
    if near.sink is not None:
        return replace(request, sinks=[FileSinkCapture(near.sink, found=NEAR)], sinks_found=True)
    return replace(request, sink_candidates=near.candidates)


def _of_owners(request: TakeRequest, query_id: str, owners: Sequence[tuple[Job, str]]) -> list[SinkCapture]:
    for job, query in owners:
        facts = job.records().query_facts(query) or {}
        known = facts if facts.get("query_id") == query_id else {"query_id": query_id}
        declared = of_query(job.sinks, query)
        if found := sinks_of(known, request.checkpoint, Brokers(job.kafka), declared):
            return found
    return []


def _of_marker(request: TakeRequest, query_id: str) -> list[SinkCapture]:
    """What a driver of Streambank said that ran the query here, though the job's records are not at hand."""
    try:
        marker = read_marker(request.checkpoint.uri)
    except StreambankError:
        return []
    if marker is None or marker.query_id != query_id or not marker.sink:
        return []
    if marker.sink_path is None:
        sink = sink_from_description(marker.sink)
        return [] if sink.kind == FILE or marker.sink == "FileSink" else [sink]
    return _usable(marker.sink_path, "by the marker beside the checkpoint", request)


def _of_last_savepoint(request: TakeRequest, query_id: str) -> list[SinkCapture]:
    """The file sinks of the newest savepoint of the same query here, if one of the last few names any."""
    for head in recent_heads(request.repository.store, request.job):
        if head.query_id != query_id or not same_place(head.checkpoint, request.checkpoint.uri):
            continue
        if head.sinks:
            by = f"by savepoint {head.savepoint}"
            return [
                sink
                for one in head.sinks
                if one.get("kind") == FILE and one.get("guarded") is True
                for sink in _usable(str(one.get("path")), NEAR if one.get("found") == NEAR else by, request)
            ]
    return []


def _usable(location: str, found: str, request: TakeRequest) -> list[SinkCapture]:
    """A file sink, if its log is as far as the query: whether it can be saved, the take finds out."""
    try:
        committed = CheckpointReader(request.checkpoint).last_committed() or 0
        sink = FileSinkCapture(location, found=found)
        newest = max((name.batch for name in list_log(open_store(location))), default=-1)
    except StreambankError:
        return []
    return [sink] if newest >= committed and may_be_of(location, request.checkpoint.uri) else []


def owners_of(jobs: Iterable[Job], checkpoint: str) -> list[tuple[Job, str]]:
    """The declared jobs in whose checkpoint a query works, or would, each with the name of the query."""
    found = []
    for job in jobs:
        for query, declared in job.queries.items():
            beside = str(service_name(checkpoint)).startswith(str(service_name(declared)))
            if not (beside or same_place(checkpoint, declared)):
                continue  # generations lie beside the declared checkpoint: records of others are not asked
            if same_place(checkpoint, job.records().checkpoint(query, declared)):
                found.append((job, query))
    return found


def sinks_of(
    facts: Mapping[str, Any],
    checkpoint: Store,
    brokers: Brokers,
    declared: Sequence[DeclaredSink] = (),
    tags: TagScope | None = None,
) -> list[SinkCapture]:
    """The sinks of a query: as Spark described them to its last driver, and as its job declares them.

    Args:
        tags: Of which savepoints the tags are that a savepoint leaves in Iceberg; None to leave none.
    """
    sink, query_id = facts.get("sink"), facts.get("query_id")
    found = sinks_of_query(str(sink) if sink else None, str(query_id) if query_id else None, declared, tags)
    # A file sink is one whatever else is told: runners before took one with "kafka" in its path for Kafka's.
    if (found.named is None or not found.named.keeps_files) and (
        kafka := kafka_sink(facts, checkpoint, brokers)
    ) is not None:
        found = replace(found, named=kafka)
    return found.captures()
