"""Where the sinks of a job stand against its newest savepoints: what a restore would lose or repeat now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from streambank.control.control import JobControl
from streambank.core.choices import SINK_CHOICES, SinkChoice
from streambank.core.errors import NotFoundError
from streambank.core.shape import JsonName, JsonObject
from streambank.declaration.declaration import Job
from streambank.driver.preflight import declared_query, savepoints_lost
from streambank.job.savepoint import sinks_of
from streambank.kafka.settings import Brokers
from streambank.recovery.choices import SinkChoices
from streambank.recovery.request import RestoreRequest
from streambank.recovery.sinks.sinks import refusals
from streambank.recovery.sinks.standing import sinks_at
from streambank.repository.catalog import LATEST, candidate_heads
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.sinks.declared import of_query
from streambank.storage import open_store


@dataclass(frozen=True, slots=True)
class SinksOfQuery(JsonObject):
    """The sinks of one query.

    Attributes:
        savepoint: The savepoint with which they are compared; None where there is none.
        sinks: Each sink as a plan of a restore has it; without a savepoint only kind, path and whether it is
            guarded.
        possible: The choices with which no sink speaks against a restore of that savepoint.
        mixed: Some sinks can be rolled back, and others have to be left as they are.
    """

    query: str
    savepoint: str | None
    batch: int | None
    sinks: tuple[Mapping[str, Any], ...]
    possible: Annotated[tuple[SinkChoice, ...], JsonName("possible_choices")] = ()
    mixed: bool = False


def sinks_of_job(job: Job, queries: Sequence[str], savepoint: str | None = None) -> list[SinksOfQuery]:
    """Compare the sinks of each query with a savepoint. Reads only; the job may run.

    Args:
        savepoint: The savepoint, as `streambank restore` takes it; the newest of each query when left out.

    Raises:
        StreambankError: Records or repository cannot be read, or there is no such savepoint.
    """
    return [_of_query(job, query, savepoint) for query in queries]


def _of_query(job: Job, query: str, savepoint: str | None) -> SinksOfQuery:
    records, brokers = job.records(), Brokers(job.kafka)
    ref = job.savepoint_name(query)
    repository = _repository(job, records, query)
    manifest: Manifest | None = None
    if repository is not None and (savepoint is not None or any(candidate_heads(repository.store, ref))):
        manifest = repository.load(*repository.find(savepoint or LATEST, ref))
    if repository is None or manifest is None:
        facts = records.query_facts(query) or {}
        generation = records.generation(query)
        place = open_store(generation.location if generation is not None else job.queries[query])
        named = sinks_of(facts, place, brokers, of_query(job.sinks, query))
        return SinksOfQuery(query, None, None, tuple(_named(one.kind, one.path) for one in named))
    request = RestoreRequest(
        repository,
        manifest.savepoint,
        job=ref,
        generation=records,
        checkpoint=job.queries[query],
        kafka=brokers,
        declared_sinks=job.sinks,
    )
    found = sinks_at(request, manifest)
    possible = []
    for one in SINK_CHOICES:
        choices = SinkChoices(one)
        if not refusals(found.under(choices, request.mode), choices, request.mode):
            possible.append(one)
    mixed = found.mixed() is not None
    sinks = tuple(found.to_dicts(SinkChoices()))
    return SinksOfQuery(query, manifest.savepoint, manifest.batch, sinks, tuple(possible), mixed)


def _repository(job: Job, records: JobControl, query: str) -> Repository | None:
    """That of the job; None where there is none yet, which is not the same as one that is gone."""
    try:
        return job.open_repository()
    except NotFoundError:
        if (lost := savepoints_lost(declared_query(job, query, records))) is not None:
            raise lost from None
        return None


def _named(kind: str, path: str) -> dict[str, Any]:
    return {"kind": kind, "path": path, "guarded": kind in GUARDED}


GUARDED = ("file", "delta", "iceberg", "ledger")
"""Kinds of sinks that a restore can judge and roll back."""
