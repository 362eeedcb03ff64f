"""Where a key may be: the savepoints of a query in all its places, and the directories of live checkpoints.

It loads without pyspark, which a task of Airflow may not have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from streambank.core.errors import NotFoundError, StreambankError
from streambank.core.names import QueryRef
from streambank.core.python310 import UTC
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.repository.catalog import SavepointSummary, manifest_key
from streambank.repository.holds import holds
from streambank.repository.repository import Repository
from streambank.retention.expired import expired_summaries
from streambank.storage import open_store

EXPIRED_WHY = (
    "it is expired, and was not searched: undelete brings it back, and its bytes are there until sweeps have "
    "deleted them"
)


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """A savepoint that may hold a key, or a repository that cannot be read.

    Attributes:
        savepoint: Its id; None for the whole repository.
        identity: The same for savepoints that are the same to the byte.
        expired: Whether it was expired, and is listed no more.
    """

    location: str
    job: str
    savepoint: str | None = None
    repository: Repository | None = None
    batch: int | None = None
    taken_at: datetime | None = None
    pinned: bool = False
    held: str | None = None
    identity: str = ""
    why_unknown: str | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Live:
    """A directory in which a query's checkpoint lives, or has lived.

    Attributes:
        generation: Its number; None where only savepoints tell of the directory.
        current: Whether it is the one that counts; None where that is not known.
        empty: Its storage answers, and has nothing there.
    """

    location: str
    generation: int | None
    current: bool | None
    empty: bool = False

    def to_dict(self) -> dict[str, Any]:
        why = "unknown: it may hold the key until the job runs from the new savepoint and this is deleted"
        if self.empty:
            why = "no: there is nothing in this place (if it is a disk that was unmounted, look there)"
        return {
            "location": self.location,
            "generation": self.generation,
            "current": self.current,
            "found": why,
        }


def places(repository: Repository, replicas: Sequence[str], job: str) -> list[KeyPlace]:
    """All savepoints of `job` or `job/query`, by that name alone, the newest first in each place."""
    found = list(_of(repository, job))
    for location in replicas:
        try:
            replica = Repository.open(open_store(location))
            if replica.id != repository.id:
                found += _of(replica, job)
        except StreambankError as error:
            found.append(KeyPlace(location, job, why_unknown=error.message))
    return found


def _of(repository: Repository, job: str) -> Iterator[KeyPlace]:
    store = repository.store
    now_ns = int(utc_now().timestamp() * 1e9)
    held = {hold.which: hold.holder for hold in holds(store, now_ns) if hold.counts}
    for one in sorted(repository.manifests(job), key=_age, reverse=True):
        if one.job == job:
            yield KeyPlace(
                store.uri,
                job,
                one.savepoint,
                repository,
                one.batch,
                one.taken_at,
                one.pinned,
                held.get((job, one.savepoint)),
                identity(repository, job, one.savepoint),
                None if one.error is None else one.error.message,
            )
    for gone in expired_summaries(store, 0.0, job):
        if gone.job == job:
            known = gone.manifest
            yield KeyPlace(
                store.uri,
                job,
                gone.savepoint,
                repository,
                known.batch if known else None,
                known.taken_at if known else None,
                gone.until is None,
                why_unknown=EXPIRED_WHY,
                expired=True,
            )


def _age(summary: SavepointSummary) -> datetime:
    return summary.taken_at or datetime.min.replace(tzinfo=UTC)


def identity(repository: Repository, job: str, savepoint: str) -> str:
    """What two savepoints have in common that are the same to the byte; empty where it is gone."""
    try:
        data = repository.store.read(manifest_key(job, savepoint))
    except NotFoundError:
        return ""
    return hashlib.sha256(data).hexdigest()


def live_places(repository: Repository, job: str, declared: Job | None) -> list[Live]:
    """The directories of a query: its generations where it is declared, and those that savepoints name."""
    found: dict[str, Live] = {}
    if declared is not None:
        query = QueryRef.parse(job).name
        if (first := declared.queries.get(query)) is not None:
            found[first] = Live(first, 1, True)
        generations = declared.records().generations(query).all()
        for each in generations:
            found[each.location] = Live(each.location, each.number, each is generations[-1])
        if generations and first is not None and first not in {each.location for each in generations}:
            found[first] = Live(first, 1, False)
    for one in repository.manifests(job):
        if one.job == job and one.checkpoint:
            found.setdefault(one.checkpoint, Live(one.checkpoint, None, None))
    return [replace(each, empty=_is_empty(each.location)) for each in found.values()]


def _is_empty(location: str) -> bool:
    try:
        return not open_store(location).names()
    except StreambankError:  # what cannot be read may hold the key
        return False
