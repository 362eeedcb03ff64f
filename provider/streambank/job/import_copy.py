"""A copy of a checkpoint as a savepoint of a job, with the sinks that its records name, and an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streambank.control.control import JobControl
from streambank.core.names import QueryRef
from streambank.core.verb_options import ImportOptions
from streambank.declaration.declaration import Job
from streambank.driver.preflight import check_records, declared_query, savepoints_lost
from streambank.inputs.folders import check_new_repository
from streambank.job.savepoint import managed_take
from streambank.kafka.settings import Brokers
from streambank.repository.repository import Repository
from streambank.savepoint.import_copy import Imported, check_copy, import_copy
from streambank.savepoint.take import TakeRequest
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import open_store, same_place, service_name
from streambank.storage.store import Store
from streambank.work.executor import DEFAULT_PACE, Pace


@dataclass
class ImportRequest(ImportOptions):
    """What an import is asked for.

    Attributes:
        copy: The copy of the checkpoint, a directory or its URI.
        ref: `job`, or `job/query`.
    """

    copy: str
    repository: Store
    ref: str
    job: Job | None = None
    note: str = ""
    by: Mapping[str, str] = field(default_factory=dict)


def import_of_job(request: ImportRequest, *, pace: Pace = DEFAULT_PACE) -> Imported:
    """Make a copy of a checkpoint a savepoint, once it is verified. Only reads the copy.

    Raises:
        InputError: The copy is the checkpoint in which the query works (code `not-a-copy`).
        RefusedError: The repository or the records of the job are lost (`repository-lost`).
        StreambankError: Whatever `savepoint.import_copy.import_copy` raises.
    """
    job, asked, place = request.job, QueryRef.parse(request.ref), request.repository
    source = open_store(request.copy)
    records = job.records() if job is not None else JobControl.of_repository(place, asked.job)
    facts, current = records.query_facts(asked.query), records.generation(asked.query)
    known = None if request.new_query or facts is None else facts.get("query_id")
    check_copy(source, known, live=None if current is None else current.location)
    check_new_repository(place, source, request.file_sinks)
    refuse_lost(job, asked, place, source)
    take = TakeRequest(
        source,
        Repository.open(place, create=True, like=source.uri),
        request.ref,
        batch=request.batch,
        sinks=[FileSinkCapture(location) for location in request.file_sinks],
        note=request.note,
        pin=request.pin,
        taken_by=request.by,
        new_query=request.new_query,
    )
    if facts is not None:
        brokers = Brokers(None if job is None else job.kafka)
        managed = managed_take(take, records, asked.name, brokers, job.sinks if job is not None else ())
        take = replace(managed, sinks=take.sinks) if request.without_sinks else managed
    result = import_copy(take, pace=pace)
    if current is not None:
        records.record_event(
            "savepoint-imported",
            query=asked.name,
            savepoint=result.taken.savepoint,
            batch=result.taken.batch,
            source=result.source,
            by=dict(request.by),
            why=request.note,
        )
    return result


def refuse_lost(job: Job | None, asked: QueryRef, repository: Store, checkpoint: Store) -> None:
    """Make no repository in the place of a declared job's own, where that or the job's records are lost.

    Raises:
        RefusedError: They are (code `repository-lost`).
    """
    if job is None or asked.name not in job.queries or not same_place(job.repository, repository.uri):
        return
    query = declared_query(job, asked.name, job.records())
    beside = str(service_name(checkpoint.uri)).startswith(str(service_name(query.checkpoint)))
    if beside or same_place(checkpoint.uri, query.checkpoint):
        check_records(query)
        lost = savepoints_lost(query)
        if lost is not None:
            raise lost
