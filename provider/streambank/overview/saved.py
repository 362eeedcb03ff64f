"""The newest savepoints of a job, read at a glance however many there are.

A repository may hold ten thousand savepoints of a job, with a manifest of megabytes each. Of all of them only
the names are listed; of the newest ones the beginning of the manifest is read, and their marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from streambank.core.errors import StreambankError
from streambank.declaration.declaration import Job
from streambank.repository.catalog import (
    SavepointSummary,
    newest_ids,
    read_glance,
    savepoint_files,
    summary_of,
)
from streambank.repository.holds import held, is_hold
from streambank.repository.manifest import Manifest
from streambank.repository.marks import (
    UNREADABLE,
    VERIFIED,
    Verification,
    marks_prefix,
    read_mark,
    split_mark_name,
    to_verification,
)
from streambank.repository.names import listed_names, names_there
from streambank.repository.repository import Repository
from streambank.retention.policy import RetentionDecision, decide
from streambank.sites.forks import others_among
from streambank.storage.store import Store
from streambank.storage.threads import at_once, each

MOST = 200
"""So many savepoints of a job are read."""
LEAST = 20
"""Of each query so many are, however many queries the job has."""
_NAMES = 500
"""So many records of names are read; of a job with more, savepoints show the names they were taken with."""
_VERIFICATIONS = 3


@dataclass(frozen=True, slots=True)
class SavedOne:
    """One savepoint.

    Attributes:
        head: Its manifest without the files; None if it cannot be read.
        verifications: Its newest verifications, newest first.
        is_held: Whether an operation reads it just now.
        decision: What the declared retention makes of it; None where none is declared.
        is_other: Whether it is known to be of another line than the job's.
    """

    query: str
    summary: SavepointSummary
    head: Manifest | None
    verifications: tuple[Verification, ...] = ()
    is_held: bool = False
    decision: RetentionDecision | None = None
    is_other: bool = False

    @property
    def taken_s(self) -> float:
        """When it was taken, as seconds since 1970; 0 if that cannot be read."""
        return self.summary.taken_at.timestamp() if self.summary.taken_at else 0.0

    @property
    def damage(self) -> str | None:
        """What is wrong with it, in a sentence; None where nothing is known."""
        if self.summary.error is not None:
            return self.summary.error.message
        if self.summary.verified_ok is False:
            return f"Its last verification ({self.summary.verified_level}) found damage."
        return next((error.message for error in self.summary.mark_errors), None)


@dataclass(frozen=True, slots=True)
class Saved:
    """The savepoints of a job.

    Attributes:
        newest: The newest ones of all its queries, newest first; those that cannot be read come last.
        ids: All that there are, by the name of the job or query in the repository, and id.
    """

    newest: tuple[SavedOne, ...] = ()
    count: int = 0
    ids: frozenset[tuple[str, str]] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether `newest` are all."""
        return self.count <= len(self.newest)


def newest_saved(job: Job, repository: Repository, now: datetime) -> Saved:
    """The newest savepoints of the queries that a job declares."""
    store = repository.store
    ids: set[tuple[str, str]] = set()
    chosen: list[tuple[str, str, str]] = []
    share = max(LEAST, MOST // len(job.queries))
    for query in job.queries:
        name = job.savepoint_name(query)
        there = savepoint_files(store, name)
        ids.update((name, savepoint) for savepoint in there)
        newest = newest_ids(there, share) if all(info.mtime_ns > 0 for info in there.values()) else there
        chosen += [(query, name, savepoint) for savepoint in newest]
    given, recorded = _names(store, job, ids)
    seen = [
        one
        for one in each(
            lambda which: _one(repository, *which, given.get(which[1:], ()), recorded, now),
            chosen,
            at_once(store),
        )
        if one is not None
    ]
    seen.sort(key=lambda one: (one.taken_s, one.summary.batch or 0), reverse=True)
    most = max(MOST, LEAST * len(job.queries))
    return Saved(tuple(_decided(job, _told_apart(job, seen[:most]), now)), len(ids), frozenset(ids))


def _names(
    store: Store, job: Job, ids: set[tuple[str, str]]
) -> tuple[Mapping[tuple[str, str], tuple[str, ...]], frozenset[tuple[str, str]]]:
    records = list(listed_names(store, job.name))
    if len(records) > _NAMES:
        return {}, frozenset()
    return names_there(store, job.name, lambda *which: which in ids)


def _one(
    repository: Repository,
    query: str,
    name: str,
    savepoint: str,
    given: tuple[str, ...],
    recorded: frozenset[tuple[str, str]],
    now: datetime,
) -> SavedOne | None:
    """One savepoint; None where it was deleted since it was listed."""
    store = repository.store
    heads: list[Manifest] = []

    def read(store: Store, job: str, savepoint: str) -> Manifest:
        heads.append(read_glance(store, job, savepoint))
        return heads[0]

    marks = store.names(marks_prefix(name, savepoint))
    summary = summary_of(store, name, savepoint, marks, given, recorded, read)
    if summary is None:
        return None
    prefix = marks_prefix(name, savepoint)
    holds = any(is_hold(f"{prefix}/{mark}") for mark in marks)
    hold = held(store, name, savepoint, int(now.timestamp() * 1e9)) if holds else None
    head = next(iter(heads), None)
    return SavedOne(query, summary, head, _verifications(store, name, savepoint, marks), hold is not None)


def _verifications(store: Store, name: str, savepoint: str, marks: Sequence[str]) -> tuple[Verification, ...]:
    numbered = [
        (split[1], mark) for mark in marks if (split := split_mark_name(mark)) and split[0] == VERIFIED
    ]
    found: list[Verification] = []
    for _, mark in sorted(numbered, reverse=True)[:_VERIFICATIONS]:
        try:
            found.append(to_verification(read_mark(store, name, savepoint, mark)))
        except (LookupError, *UNREADABLE):
            continue  # swept, or damaged, which the summary says
    return tuple(found)


def _told_apart(job: Job, seen: list[SavedOne]) -> list[SavedOne]:
    """The same with which are of another line; records are read only where some may be."""
    others: set[tuple[str, str]] = set()
    for query in job.queries:
        name = job.savepoint_name(query)
        there = [one.summary for one in seen if one.query == query]
        if job.other_site is not None or len({one.query_id for one in there if one.query_id}) > 1:
            with suppress(StreambankError):  # the records that cannot be read are said elsewhere
                others |= {(name, savepoint) for savepoint in others_among(job.records(), name, there)}
    return [replace(one, is_other=(one.summary.job, one.summary.savepoint) in others) for one in seen]


def _decided(job: Job, seen: list[SavedOne], now: datetime) -> list[SavedOne]:
    """The same with what retention makes of each. Its rules count from the newest, whatever is older."""
    if job.retention is None:
        return seen
    others = {(one.summary.job, one.summary.savepoint) for one in seen if one.is_other}
    decisions = {
        (one.summary.job, one.summary.savepoint): one
        for one in decide((one.summary for one in seen), job.retention, now, others=others)
    }
    return [replace(one, decision=decisions.get((one.summary.job, one.summary.savepoint))) for one in seen]


def newest_of_replica(store: Store, names: Mapping[str, str]) -> tuple[SavedOne | None, set[tuple[str, str]]]:
    """The newest savepoint of some queries in a replica, and which ones there are.

    Args:
        names: How the repository calls each query, by the query's name.
    """
    repository = Repository.open(store)
    ids: set[tuple[str, str]] = set()
    newest: list[SavedOne] = []
    for query, name in names.items():
        there = savepoint_files(store, name)
        ids.update((name, savepoint) for savepoint in there)
        for savepoint in newest_ids(there, 2):
            try:
                head = read_glance(repository.store, name, savepoint)
            except StreambankError:
                continue  # damaged: the replica's own verification says it
            summary = SavepointSummary(
                savepoint=savepoint, job=name, batch=head.batch, taken_at=head.taken_at, bytes=head.bytes
            )
            newest.append(SavedOne(query, summary, head))
    return max(newest, key=lambda one: one.taken_s, default=None), ids
