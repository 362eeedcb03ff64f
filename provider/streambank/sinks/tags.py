"""Tags that keep the snapshots of savepoints in an Iceberg table, for as long as the savepoints are there.

A tag says itself of which savepoint it is: its name holds the job, the batch, the snapshot, and a digest of
repository and job. So nothing else has to be remembered: each take and each expire of savepoints of the job
compares the tags with what is listed, and removes those whose savepoint is gone from the repository and from
each declared replica. That covers a catalog that was away, a take that failed after it had tagged, and a run
that died. Where a replica cannot be read, its savepoints count as there.

A take tags before its savepoint is listed, and another run may remove that tag in between. So each looks once
more after its own step: the run puts a tag back whose savepoint is listed by then, and the take makes sure of
its tag once its savepoint is listed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streambank.core.errors import (
    ConflictError,
    FormatError,
    IntegrityError,
    NotFoundError,
    RefusedError,
    StreambankError,
)
from streambank.core.json_text import is_whole_number
from streambank.core.shape import JsonObject
from streambank.repository.catalog import listed, read_head
from streambank.repository.repository import Repository
from streambank.sinks.iceberg_catalog import IcebergTable
from streambank.storage import open_store
from streambank.storage.store import Store

PREFIX = "streambank_"
_UNSAFE = re.compile(r"[^a-z0-9]+")
_FOR_EVER_MS = (1 << 63) - 1
"""The age that a tag may reach: the table's own `history.expire.max-ref-age-ms` does not count for it."""
_MOST_JOB_LETTERS = 40
_TRIES = 4


@dataclass(frozen=True, slots=True)
class TagScope:
    """Of which savepoints tags are: those of a job in the repository of an id."""

    repository: str
    job: str

    @property
    def _digest(self) -> str:
        return hashlib.sha256(f"{self.repository}\n{self.job}".encode()).hexdigest()[:12]

    def name(self, batch: int, snapshot: int) -> str:
        """The tag of a savepoint: small letters, digits and `_`."""
        job = _UNSAFE.sub("_", self.job.lower())[:_MOST_JOB_LETTERS]
        return f"{PREFIX}{job}_b{batch}_{self._digest}_{snapshot}"

    def batch(self, tag: str) -> int | None:
        """The batch of a savepoint of this scope; None for any other tag."""
        found = re.fullmatch(rf"{PREFIX}.*_b(\d+)_{self._digest}_\d+", tag)
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class TagReport(JsonObject):
    """What became of the tags in one table; the next take or expire tries again what it warns of."""

    table: str
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def add_tag(place: IcebergTable, name: str, snapshot: int) -> bool:
    """Tag a snapshot, if it is there; whether that changed anything.

    Raises:
        RefusedError: The table or the snapshot is gone (code `sink-not-known`).
        StreambankError: See `IcebergTable.opened`.
    """
    for attempt in range(_TRIES):
        try:
            with place.opened() as table:
                if table is None or table.snapshot_by_id(snapshot) is None:
                    raise RefusedError(
                        f"The Iceberg table {place.path} no longer has snapshot {snapshot}.",
                        code="sink-not-known",
                        hint="Expire snapshots of the table only when they are older than a take lasts.",
                    )
                there = table.refs().get(name)
                if there is not None and there.snapshot_id == snapshot:
                    return False
                table.manage_snapshots().create_tag(snapshot, name, max_ref_age_ms=_FOR_EVER_MS).commit()
                return True
        except ConflictError:  # a writer committed meanwhile: the tag has nothing to do with that
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _remove(place: IcebergTable, names: Iterable[str]) -> list[str]:
    for attempt in range(_TRIES):
        try:
            with place.opened() as table:
                there = sorted(set(names) & (set() if table is None else set(table.refs())))
                if table is None or not there:
                    return []
                changes = table.manage_snapshots()
                for name in there:
                    changes = changes.remove_tag(name)
                changes.commit()
                return there
        except ConflictError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def settle_tags(
    place: IcebergTable,
    job: str,
    repository: Repository,
    replicas: Sequence[str] = (),
    *,
    ensure: Iterable[str] = (),
) -> TagReport:
    """Remove the tags whose savepoints are gone, and make sure of those of some that are listed.

    Never raises: what cannot be done now, the next call does.
    """
    scope = TagScope(repository.id, job)
    removed: list[str] = []
    added: list[str] = []
    warnings: list[str] = []
    try:
        tags = _tags(place, scope)  # before the savepoints are listed: a take tags first
        stale, unread = _stale(tags, scope, repository.store, replicas)
        warnings += unread
        removed = _remove(place, stale) if stale else []
        for name in sorted(_there(removed, scope, repository.store, read=True)):
            removed.remove(name)
            add_tag(place, name, tags[name])
        for name, snapshot in _recorded(repository.store, job, place.path, ensure):
            if name not in tags and add_tag(place, name, snapshot):
                added.append(name)
    except StreambankError as error:
        warnings.append(
            f"The tags of savepoints in the Iceberg table {place.path} were not all brought up to date, "
            f"which the next savepoint or expire of {job} does: {error.message}"
        )
    return TagReport(place.path, tuple(removed), tuple(added), tuple(warnings))


def _tags(place: IcebergTable, scope: TagScope) -> dict[str, int]:
    with place.opened() as table:
        refs = {} if table is None else table.refs()
    return {name: ref.snapshot_id for name, ref in refs.items() if scope.batch(name) is not None}


def _stale(
    tags: Mapping[str, int], scope: TagScope, repository: Store, replicas: Sequence[str]
) -> tuple[list[str], list[str]]:
    left = set(tags) - _there(tags, scope, repository)
    for location in replicas if left else ():
        try:
            replica = Repository.open(open_store(location))  # an empty mount point is none
            left -= _there(left, scope, replica.store, read=True)
        except StreambankError as error:
            why = f"Tags in Iceberg stay, since the replica {location} cannot be read: {error.message}"
            return [], [why]
    return sorted(left), []


def _there(tags: Iterable[str], scope: TagScope, store: Store, *, read: bool = False) -> set[str]:
    """Those whose savepoint is listed somewhere.

    A savepoint's id begins with its batch; only where several tags are of one batch, as after a rollback,
    what its savepoints keep is read. One that cannot be read keeps all tags of its batch.

    Args:
        read: Read it anyway: these are not all tags.
    """
    by_batch: dict[int | None, set[str]] = {}
    for name in tags:
        by_batch.setdefault(scope.batch(name), set()).add(name)
    found: set[str] = set()
    for of_job, savepoint in listed(store, scope.job) if by_batch else ():
        names = by_batch.get(_batch(savepoint), set())
        if of_job == scope.job and not names <= found:
            alone = len(names) == 1 and not read
            found |= names if alone else names & _kept(store, of_job, savepoint, names)
    return found


def _kept(store: Store, job: str, savepoint: str, names: set[str]) -> set[str]:
    """The tags that a savepoint keeps; all of `names` where it cannot be read."""
    try:
        return {str(sink.get("tag")) for sink in read_head(store, job, savepoint).sinks}
    except NotFoundError:
        return set()  # it was expired since it was listed
    except (IntegrityError, FormatError):
        return names


def _batch(savepoint: str) -> int | None:
    digits = savepoint.partition("-")[0].removeprefix("b")
    return int(digits) if is_whole_number(digits) else None


def _recorded(store: Store, job: str, table: str, savepoints: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The tags that savepoints keep of a table, with their snapshots."""
    for savepoint in savepoints:
        for sink in read_head(store, job, savepoint).sinks:
            name, snapshot = sink.get("tag"), str(sink.get("snapshot"))
            if sink.get("path") == table and isinstance(name, str) and is_whole_number(snapshot):
                yield name, int(snapshot)
