"""Replicating savepoints: the objects that the replica lacks, then the manifest, then the pin.

The order is that of a take, and so is the argument: before the manifest the replica lists nothing, after it
the savepoint is whole there. A second try finds what has arrived and moves the rest. Savepoints whose bytes
are damaged at the source are reported and left out, and the others go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from streambank.core.errors import (
    ConflictError,
    InputError,
    IntegrityError,
    NotFoundError,
    StorageError,
    StreambankError,
)
from streambank.core.json_text import is_whole_number
from streambank.core.shape import MILLIS, encode
from streambank.repository.catalog import check_place, found_damaged, listed, manifest_key, manifest_name
from streambank.repository.holds import Holds
from streambank.repository.locks import LockPolicy
from streambank.repository.manifest import Manifest, decode
from streambank.repository.marks import REHEARSAL, RESTORED, add_mark
from streambank.repository.names import names_there
from streambank.repository.objects.large import object_key
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import Repository
from streambank.savepoint.plan import check_same
from streambank.storage.store import Opener, Store, chunks
from streambank.work.check import ObjectsTask, check_objects, object_tasks
from streambank.work.damage import BAD_DISK, DAMAGE, is_damage
from streambank.work.executor import DEFAULT_PACE, Executor, Pace
from streambank.work.move import Moved, Moving
from streambank.work.pace import LOCK, UNLIMITED, Meter, Progress, RateLimit, counted

_TRIES = 3
_STORE_AGAIN = ("objects-condemned", "object-missing")
"""What listing a savepoint says where something that it counts on is about to be deleted, or was."""


def open_replica(source: Repository, store: Store, *, lock: LockPolicy | None = None) -> Repository:
    """The replica at a place; made, with the digests of the source, where there is nothing yet.

    Args:
        lock: For how long what arrives there is locked.

    Raises:
        InputError: It is the source itself, or a copy of it that was made by other means (code
            `same-repository`); it names objects by another digest (code `other-digest`); or other files are
            there.
        IntegrityError, FormatError: See `Repository.open`.
    """
    replica = Repository.open(store, create=True, digest=source.digest_name, like=source.store.uri, lock=lock)
    if replica.id == source.id:
        raise InputError(
            f"{store.uri} and {source.store.uri} are the same repository, {source.id}.",
            code="same-repository",
            hint="Name another location. A copy made by other means has the id of its original.",
        )
    if replica.digest_name != source.digest_name:
        raise InputError(
            f"{store.uri} names objects by {replica.digest_name}, and {source.store.uri} by "
            f"{source.digest_name}, so no object of one can be found in the other.",
            code="other-digest",
            hint="Replicate to an empty location: a repository created there uses the source's digests.",
        )
    return replica


def newest_first(source: Repository, job: str | None = None) -> list[tuple[str, str]]:
    """Job and id of all savepoints, the highest batch of each job first: it is wanted most."""
    return sorted(listed(source.store, job), key=lambda each: _batch(each[1]), reverse=True)


def replicate(
    source: Repository,
    replica: Repository,
    which: Sequence[tuple[str, str]],
    *,
    pace: Pace = DEFAULT_PACE,
    by: Mapping[str, Any] | None = None,
    holds: Holds | None = None,
) -> Iterator[Replicated]:
    """Bring savepoints to a replica, one after the other as this is iterated over.

    Args:
        replica: Where they shall be, too; see `open_replica`.
        which: Job and id of each, in this order.
        holds: Holds savepoints at the source while they are read; what it has to say is for the caller.

    Yields:
        What became of each.

    Raises:
        StorageError, ConflictError: Either place failed; what has arrived is used by the next try.
    """
    transfer = Transfer(source, replica, pace.who, pace.rate)
    holds = holds or Holds(source, "replicate", by)
    for job, savepoint in which:
        yield _Copy(transfer, holds, job, savepoint, pace.progress, by).run()


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What replicating to one place came to.

    Attributes:
        error: Why it ended early; what had arrived by then is used by the next try.
    """

    location: str
    error: StreambankError | None
    savepoints: tuple[Replicated, ...]
    seconds: Annotated[float, MILLIS]
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every savepoint that the source still has is whole there."""
        return self.error is None and not any(each.errors for each in self.savepoints)

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {
            "ok": self.ok,
            "moved_bytes": sum(each.moved_bytes for each in self.savepoints),
            "service_bytes": sum(each.service_bytes for each in self.savepoints),
            "there_bytes": sum(each.there_bytes for each in self.savepoints),
        }


def replicate_to(
    source: Repository,
    opener: Opener,
    location: str,
    which: Sequence[tuple[str, str]],
    *,
    pace: Pace = DEFAULT_PACE,
    by: Mapping[str, Any] | None = None,
    lock: LockPolicy | None = None,
) -> ReplicaReport:
    """Bring savepoints to the replica at a location; that it fails is part of the report.

    So of several replicas one that cannot be reached does not keep the others from what they need.

    Args:
        location: The replica, made where there is nothing yet.
        which: Job and id of each, in this order.

    Raises:
        InputError: The rate is less than 1 (code `bad-rate`).
    """
    started = time.monotonic()
    done: list[Replicated] = []
    holds = Holds(source, "replicate", by)
    error: StreambankError | None = None
    try:
        store = opener(location)
        location = store.uri
        replica = open_replica(source, store, lock=lock)
        replica.locks.require()
        for each in replicate(
            source,
            replica,
            which,
            pace=pace,
            by=by,
            holds=holds,
        ):
            done.append(each)  # so that it is in the report, whatever comes next
    except StreambankError as failure:
        error = failure
    return ReplicaReport(location, error, tuple(done), time.monotonic() - started, tuple(holds.warnings))


@dataclass(eq=False)
class _Copy:
    """The way of one savepoint."""

    transfer: Transfer
    holds: Holds
    job: str
    savepoint: str
    progress: Progress | None
    by: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        self.source, self.replica = self.transfer.source, self.transfer.target
        self.key = manifest_key(self.job, self.savepoint)
        self.started = time.monotonic()

    def run(self) -> Replicated:
        try:
            data, manifest = read_manifest(self.source, self.job, self.savepoint)
        except NotFoundError:
            return self._result("gone")
        except (*DAMAGE, StorageError) as error:
            return self._failed(error)
        there: Manifest | None
        try:
            same = self.replica.store.read(self.key) == data
            if same:  # it may have been signed since
                self.replica.signatures.add(self.job, self.savepoint, self._lacking_signatures())
            there = manifest if same else self.replica.load(self.job, self.savepoint)
            check_same(manifest, there, self.replica.store.uri)
        except NotFoundError:
            there = None
        except DAMAGE as error:
            said = error if error.code == "other-savepoint" else self._damaged_there(error)
            return self._failed(said, batch=manifest.batch)
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._bring(data, manifest, there)
            except (ConflictError, IntegrityError) as error:
                if error.code not in _STORE_AGAIN:
                    raise
                if not tries_left and isinstance(error, ConflictError):
                    raise
                if not tries_left:
                    return self._failed(error, batch=manifest.batch)
                self.transfer.look_again()  # they are stored again, under names that last
        raise AssertionError("the last try returns or raises")

    def _bring(self, data: bytes, manifest: Manifest, there: Manifest | None) -> Replicated:
        """The objects that are missing, the manifest, the pin."""
        objects = (there or manifest).objects()
        missing = self.transfer.missing(objects)
        numbers: dict[str, Any] = {
            "batch": manifest.batch,
            "there_bytes": sum(objects.values()) - sum(missing.values()),
        }
        if missing:
            meter = Meter(self.progress, "copy", len(missing), sum(missing.values()))
            try:
                with self.holds.held(self.job, self.savepoint):
                    moved = self.transfer.move(missing, meter)
            except NotFoundError as error:
                if error.code != "no-such-savepoint":
                    raise
                return self._result("gone", **numbers)  # it was deleted before it was held
            numbers |= {
                "moved_objects": moved.objects,
                "moved_bytes": moved.bytes,
                "service_bytes": moved.service_bytes,
            }
            if moved.errors:
                if not self.source.store.exists(self.key):  # it was deleted while it was read
                    return self._result("gone", **numbers)
                return self._result("failed", errors=_by_file(there or manifest, moved.errors), **numbers)
        if there is None or (self.job, self.savepoint) in self.transfer.found_damaged:
            counted_on = {digest: size for digest, size in objects.items() if digest not in missing}
            if bad := self.transfer.damaged(counted_on):
                bad = {digest: self._damaged_there(error) for digest, error in bad.items()}
                return self._result("failed", errors=_by_file(there or manifest, bad), **numbers)
        errors = self._carry_marks(manifest)  # first: a savepoint is listed with how its rehearsal went
        if there is None:
            names, on_lock = self._lacking_signatures(), counted(self.progress, LOCK)
            self.replica.adopt(manifest, data, signatures=names, on_lock=on_lock)
        elif missing:
            self.replica.lock_savepoint(there, counted(self.progress, LOCK))
        try:
            self._give_names()
            pinned, more = self._pin()
            errors += more
        except NotFoundError as error:  # it was deleted there just now
            return self._result("failed", errors=((self.key, error),), **numbers)
        state: State = "copied" if there is None else "refilled" if missing else "there"
        return self._result(state, pinned=pinned, errors=errors, **numbers)

    def _lacking_signatures(self) -> list[str]:
        return self.replica.signatures.lacking(self.source.signatures, self.job, self.savepoint)

    def _give_names(self) -> None:
        """Give the savepoint of the replica the names that it has at the source, where that can be read.

        In the replica a name may still be that of an older savepoint, which has expired at the source: the
        last one that was given it has it.
        """
        for name in self.transfer.names.get((self.job, self.savepoint), ()):
            if self.replica.give_name(self.job, self.savepoint, name, by=self.by) != self.savepoint:
                self.replica.give_name(self.job, self.savepoint, name, by=self.by, anyway=True)

    def _carry_marks(self, manifest: Manifest) -> tuple[tuple[str, StreambankError], ...]:
        """Let the replica say of changed state whether a job went on from it, and how its rehearsal went."""
        which = (self.job, self.savepoint)
        try:
            for kind in (RESTORED, REHEARSAL) if manifest.derived_from is not None else ():
                mark, there = self.source.newest_mark(*which, kind), self.replica.newest_mark(*which, kind)
                if mark is not None and (
                    there is None
                    or there.at < mark.at
                    or (there.at == mark.at and there.fields != mark.fields)
                ):
                    place = (self.replica.store, self.replica.digest_name, *which, kind)
                    add_mark(*place, by=mark.by, fields=mark.fields, at=mark.at)
        except NotFoundError:
            pass  # it has expired meanwhile
        except DAMAGE as error:
            return ((self.key, error),)
        return ()

    def _pin(self) -> tuple[bool, tuple[tuple[str, StreambankError], ...]]:
        """Pin the replica where the source is pinned; a pin mark that cannot be read counts as one."""
        errors: tuple[tuple[str, StreambankError], ...] = ()
        try:
            pinned = self.source.pinned(self.job, self.savepoint)
        except DAMAGE as error:
            pinned, errors = True, ((self.key, error),)
        if not pinned:
            return False, errors
        try:
            if self.replica.pinned(self.job, self.savepoint):
                return False, errors
        except DAMAGE as error:
            return False, (*errors, (self.key, self._damaged_there(error)))  # it counts as a pin there, too
        self.replica.pin(self.job, self.savepoint, by=self.by, note=f"pinned in {self.source.store.uri}")
        return True, errors

    def _damaged_there(self, error: StreambankError) -> StreambankError:
        here, there = self.source.store.uri, self.replica.store.uri
        return type(error)(
            f"In {there}: {error.message}",
            code=error.code,
            hint=f"Repair {there} from {here}, which takes from here what is damaged there.",
        )

    def _failed(self, error: StreambankError, batch: int | None = None) -> Replicated:
        if not is_damage(error):
            raise error
        return self._result("failed", batch=batch, errors=((self.key, error),))

    def _result(self, state: State, **fields: Any) -> Replicated:
        return Replicated(
            savepoint=self.savepoint,
            job=self.job,
            state=state,
            seconds=time.monotonic() - self.started,
            **fields,
        )


def read_manifest(repository: Repository, job: str, savepoint: str) -> tuple[bytes, Manifest]:
    """The bytes of a savepoint's manifest, checked, and what they say.

    Raises:
        NotFoundError: There is none.
        IntegrityError, FormatError: It cannot be used.
    """
    read: list[bytes] = []
    with repository.store.open(manifest_key(job, savepoint)) as reader:
        # What is damaged ends where the damage is: no more of it is held.
        manifest = decode(_kept(chunks(reader), read), manifest_name(job, savepoint))
    repository.signatures.require(job, savepoint, repository.signatures.signing(job, savepoint, read))
    return b"".join(read), check_place(manifest, job, savepoint)


def _kept(pieces: Iterable[bytes], into: list[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        into.append(piece)
        yield piece


def _batch(savepoint: str) -> tuple[int, str]:
    """What savepoints are sorted by: the batch in an id, which may have grown beyond six digits."""
    digits = savepoint.partition("-")[0].removeprefix("b")
    return (int(digits) if is_whole_number(digits) else -1), savepoint


def _by_file(
    manifest: Manifest, errors: Mapping[str, StreambankError]
) -> tuple[tuple[str, StreambankError], ...]:
    """Each error with the first file that lies in its object."""
    files: dict[str, str] = {}
    for entry in manifest.all_files():
        files.setdefault(entry.digest, entry.path)
    return tuple(sorted(((files[digest], error) for digest, error in errors.items()), key=lambda it: it[0]))


State = Literal["copied", "there", "refilled", "failed", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """What became of one savepoint.

    Attributes:
        batch: Its batch; None where its manifest cannot be read.
        state: `copied` now; `there` before; `refilled`: it was there, and objects that the replica had lost
            are back; `failed`: not whole in the replica, see `errors`; `gone` from the source meanwhile.
        service_bytes: How many of them the storage service copied itself.
        there_bytes: How many bytes of it the replica had.
        pinned: Whether the source's pin was set in the replica by this.
        errors: What is wrong, each with the first file that it is about.
    """

    savepoint: str
    job: str
    batch: int | None = None
    state: State
    moved_objects: int = 0
    moved_bytes: int = 0
    service_bytes: int = 0
    there_bytes: int = 0
    pinned: bool = False
    seconds: Annotated[float, MILLIS] = 0.0
    errors: tuple[tuple[str, StreambankError], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"errors": [{"file": file, **error.to_dict()} for file, error in self.errors]}


@dataclass(eq=False)
class Transfer:
    """Moves objects between two repositories; what it learns about them serves the next savepoint, too."""

    source: Repository
    target: Repository
    executor: Executor
    rate: RateLimit = UNLIMITED

    def __post_init__(self) -> None:
        self._known: set[str] = set()
        self._listed: dict[str, int] | None = None
        self._by_service = not self.target.store.features.links
        self._hashed: set[str] = set()

    @cached_property
    def names(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """The names that records at the source give to its savepoints, by job and id."""
        there = set(listed(self.source.store))
        return names_there(self.source.store, None, lambda *which: which in there)[0]

    def missing(self, objects: Mapping[str, int]) -> dict[str, int]:
        """Those of some objects that the target does not hold, or not with this size."""
        lacking = self._not_there({it: size for it, size in objects.items() if it not in self._known})
        if lacking:
            self.target.objects.index.check()  # takes in what others have indexed meanwhile
            lacking = self._not_there(lacking)
        self._known.update(objects.keys() - lacking.keys())
        return lacking

    def look_again(self) -> None:
        """Believe nothing that was learned: something at the target is about to be deleted.

        Copies by the service end, too, since they choose the name of an object by its digest alone.
        """
        self._known.clear()
        self._hashed.clear()
        self._listed = {}
        self._by_service = False

    @cached_property
    def found_damaged(self) -> Set[tuple[str, str]]:
        """Job and id of the savepoints at the target whose last verification there found damage."""
        return frozenset(found_damaged(self.target.store))

    def damaged(self, objects: Mapping[str, int]) -> dict[str, StreambankError]:
        """Those of some objects that the target holds and that are not what they were.

        Nothing is read where all that was verified there was found whole, as in a take.
        """
        if not self.found_damaged:
            return {}
        rest = {digest: size for digest, size in objects.items() if digest not in self._hashed}
        meter = Meter(None, "check", len(rest), sum(rest.values()))
        bad = check_objects(self.target, rest, self.executor, rate=self.rate, meter=meter, also=BAD_DISK)
        self._hashed.update(rest.keys() - bad.keys())
        return bad

    def move(self, objects: Mapping[str, int], meter: Meter) -> Moved:
        """Bring objects to the target, and index them there.

        What cannot be read at the source is in the result, and the rest goes on.

        Raises:
            StorageError, ConflictError: Either place failed as a whole.
        """
        moved = Moved()
        lock = threading.Lock()

        def done(task: ObjectsTask, outcome: Moved) -> None:
            with lock:
                moved.add(outcome)
            meter.add(task.files, task.size_bytes)

        tasks = object_tasks(self.source, objects)
        large = [task for task in tasks if task.size_bytes > SMALL_BYTES * task.files]
        with self.target.objects.writer() as writer:
            work = Moving(self.source, self.target, writer, by_service=self._by_service, rate=self.rate)
            if large and self._by_service:  # the smallest one tells whether the service does it
                first = min(large, key=lambda task: task.size_bytes)
                done(first, work.run(first))
                tasks.remove(first)
            self.executor.run(work, tasks, done)
        self._by_service = work.by_service
        self._known.update(objects.keys() - moved.errors.keys())
        return moved

    def _not_there(self, objects: Mapping[str, int]) -> dict[str, int]:
        return {it: size for it, size in objects.items() if not self._is_there(it, size)}

    def _is_there(self, digest: str, size_bytes: int) -> bool:
        if size_bytes > SMALL_BYTES:
            if self._listed is None:  # one listing instead of a request for each
                self._listed = {info.path: info.size_bytes for info in self.target.store.list("objects")}
            if self._listed.get(object_key(digest)) == size_bytes:
                return True
        return self.target.objects.has(digest, size_bytes)
