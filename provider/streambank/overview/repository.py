"""The part `repository`: how large it is and grows, what expires next, what is damaged, and its replicas."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from streambank.core.errors import StreambankError
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from streambank.overview.look import Look
from streambank.overview.saved import Saved, newest_of_replica
from streambank.overview.savepoints import too_old_at
from streambank.repository.repository import Repository
from streambank.storage import open_store

FILES = 20_000
"""So many files are counted; a repository with more is at least so large."""
DAMAGED = 100
_GROWTH = timedelta(days=7)
_FOLDERS = ("packs", "objects")


def repository_part(look: Look) -> dict[str, Any]:
    """The content of the part.

    A repository that cannot be read is its `error`, and the replicas are shown all the same: they are what a
    restore can then use.
    """
    job = look.job
    try:
        repository, saved = look.repository(), look.saved()
        found = {
            "location": job.repository,
            "savepoints": saved.count,
            **({"bytes": 0, "objects": 0, "partial": False} if repository is None else _stored(repository)),
            "new_bytes_per_day": _new_bytes_per_day(saved, look.now),
            "next_expiry": _next_expiry(job, saved),
            "damage": [
                {"savepoint": one.summary.savepoint, "query": one.query, "what": one.damage}
                for one in saved.newest
                if one.damage is not None
            ][:DAMAGED],
        }
    except StreambankError as error:
        found, saved = {"location": job.repository, "error": look.error(error)}, None
    return {**found, "replicas": [_replica(look, location, saved) for location in job.replicate.to]}


def _stored(repository: Repository) -> dict[str, Any]:
    every = (info for folder in _FOLDERS for info in repository.store.list(folder))
    sizes = [info.size_bytes for info in islice(every, FILES + 1)]
    return {"bytes": sum(sizes[:FILES]), "objects": len(sizes[:FILES]), "partial": len(sizes) > FILES}


def _new_bytes_per_day(saved: Saved, now: datetime) -> int | None:
    """Bytes a day that the job's savepoints of a week have added; None where they span less than an hour."""
    recent = [one for one in saved.newest if one.summary.taken_at and now - one.summary.taken_at < _GROWTH]
    times = [one.taken_s for one in recent]
    span_s = max(times) - min(times) if times else 0.0
    if span_s < 3600:
        return None
    oldest = min(recent, key=lambda one: one.taken_s)  # what it added was new before the span began
    added = sum(one.summary.new_bytes for one in recent) - oldest.summary.new_bytes
    return round(added * 86_400 / span_s)


def _next_expiry(job: Job, saved: Saved) -> dict[str, Any] | None:
    """What the next expire drops; if that is nothing, the first savepoint that will be too old."""
    if job.retention is None:
        return None
    due = [one for one in saved.newest if one.decision is not None and not one.decision.keep]
    if due:
        return _expiry(None, len(due), sum(one.summary.bytes for one in due), at_least=not saved.is_whole)
    retention = job.retention
    ends = [(at, one) for one in saved.newest if (at := too_old_at(one, retention)) is not None]
    if not ends or not saved.is_whole:
        return None
    first, one = min(ends, key=lambda end: end[0])
    return _expiry(to_json_time(first), 1, one.summary.bytes, at_least=False)


def _expiry(at: str | None, count: int, size_bytes: int, *, at_least: bool) -> dict[str, Any]:
    return {"at": at, "count": count, "bytes": size_bytes, "at_least": at_least}


def _replica(look: Look, location: str, saved: Saved | None) -> dict[str, Any]:
    job = look.job
    standby = (job.primary or job).standby
    named = "standby" if standby is not None and standby.repository == location else location
    row: dict[str, Any] = {"name": named, "location": location}
    row |= dict.fromkeys(("newest", "behind", "error"))
    try:
        names = {query: job.savepoint_name(query) for query in job.queries}
        newest, there = newest_of_replica(open_store(location), names)
    except StreambankError as error:
        return {**row, "error": look.error(error)}
    row["behind"] = None if saved is None else len(saved.ids - there)
    if newest is not None:
        summary = newest.summary
        row["newest"] = {"savepoint": summary.savepoint, "query": newest.query, "taken_at": summary.taken_at}
    return row
