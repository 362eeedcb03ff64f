"""Locks of savepoints: until a date the storage itself keeps all that one is made of from being deleted.

They rest on S3 Object Lock (storage/s3/lock.py). A savepoint's manifest is locked last, so while it is locked
all that it names is locked at least as long: packs and objects, those that it shares with earlier savepoints
among them, its signatures, and the repository's header. The index is not: packs say what is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import reduce

from streambank.core.choices import LockMode
from streambank.core.errors import InputError, IntegrityError, NotFoundError, RefusedError, StorageError
from streambank.core.python310 import UTC
from streambank.core.units import utc_now
from streambank.repository.catalog import manifest_key
from streambank.repository.header import HEADER_KEY
from streambank.repository.manifest import Manifest
from streambank.repository.objects.objects import Objects
from streambank.repository.signatures import FOLDER as SIGNATURES
from streambank.repository.signatures import Signatures
from streambank.storage.store import Lock, Locking, Store
from streambank.storage.threads import at_once, each

MOST_S = 36525 * 86400
"""The longest lock, in seconds."""
OnLock = Callable[[int, int], object]
"""Called with how many files of a savepoint have been locked, and how many must be."""
_NOT_TOLD = ("no-permission", "storage")
"""Codes of a service that keeps its locks from us, or does not know the question."""


@dataclass(frozen=True, slots=True)
class LockPolicy:
    """For how long each savepoint is locked.

    Attributes:
        for_s: Seconds from the moment at which it is saved; the lock ends at a midnight in UTC after that, so
            that what many savepoints of a day share is locked once.
    """

    for_s: float
    mode: LockMode = "governance"

    def __post_init__(self) -> None:
        """Refuse what no calendar can say, before anything is saved."""
        if self.for_s > MOST_S:
            raise InputError(
                "Nothing can be locked for more than a hundred years.",
                code="bad-duration",
                hint="Write for how long as `30d`.",
            )

    def from_now(self) -> Lock:
        """The lock of a savepoint that is saved now: one for all of its files, also over a midnight."""
        day = (utc_now() + timedelta(seconds=self.for_s)).astimezone(UTC).date()
        return Lock(datetime.combine(day + timedelta(days=1), time(), UTC), self.mode)


def require_locks(store: Store) -> Locking:
    """The store, as one whose files can be locked.

    Raises:
        RefusedError: They cannot (code `no-object-lock`).
    """
    if isinstance(store, Locking) and store.takes_locks():
        return store
    raise RefusedError(
        f"Savepoints in {store.uri} cannot be locked: it is in no S3 bucket with Object Lock.",
        code="no-object-lock",
        hint="Make the bucket with Object Lock, or switch it on there; or take `lock` out of the jobs file.",
    )


def visible_locks(store: Store) -> Locking | None:
    """The store as one whose locks can be asked for; None where files have none.

    So too where the service does not know the question, or these credentials may not ask it.
    """
    try:
        return store if isinstance(store, Locking) and store.takes_locks() else None
    except StorageError as error:
        if error.code not in _NOT_TOLD:
            raise
        return None


def lock_of(store: Locking, key: str) -> Lock | None:
    """The lock of a file; None where it is not locked any more, or not there."""
    try:
        lock = store.lock_of(key)
    except NotFoundError:
        return None
    except StorageError as error:
        if error.code not in _NOT_TOLD:
            raise
        return None
    return lock if lock is not None and lock.until > utc_now() else None


def locked_until(store: Locking, key: str) -> datetime | None:
    """When the lock of a file ends; None where it is not locked any more, or not there."""
    lock = lock_of(store, key)
    return lock.until if lock is not None else None


class SavepointLocks:
    """The locks of a repository's savepoints.

    Args:
        policy: For how long each that is saved is locked; None for not at all.
    """

    def __init__(self, store: Store, objects: Objects, policy: LockPolicy | None) -> None:
        self.policy = policy
        self._store = store
        self._objects = objects

    def require(self) -> None:
        """Make sure that a savepoint can be locked here, where it has to be.

        Raises:
            RefusedError: It cannot (code `no-object-lock`).
        """
        if self.policy is not None:
            require_locks(self._store)

    @contextmanager
    def around(
        self, manifest: Manifest, signatures: Signatures, *, again: bool, on_lock: OnLock | None = None
    ) -> Iterator[None]:
        """Lock all that a savepoint is made of, let its manifest be listed in the block, and lock that last.

        The lock is the policy's, and that of the savepoint that it was made from.

        Args:
            again: It has been here before, and keeps the lock that it had.

        Raises:
            IntegrityError: An object that it names is not there (code `object-missing`).
            RefusedError, StorageError: As `require`, or the service refuses.
        """
        job, savepoint = manifest.job, manifest.savepoint
        earlier = [one for one in (savepoint if again else None, manifest.derived_from) if one is not None]
        asked = [self.policy.from_now()] if self.policy is not None else []
        if earlier and (locks := visible_locks(self._store)) is not None:
            found = (lock_of(locks, manifest_key(job, one)) for one in earlier)
            asked += [lock for lock in found if lock is not None]
        if not asked:
            yield
            return
        lock = reduce(Lock.both, asked)
        signed = {f"{SIGNATURES}/{job}/{savepoint}/{name}" for name in signatures.of(job, savepoint)}
        try:
            keys = {*places(self._objects, manifest.objects()), HEADER_KEY, *signed}
            self._lock(keys, lock, on_lock)
        except NotFoundError as error:
            raise IntegrityError(
                f"A file of savepoint {savepoint} of {job} went away while it was locked: {error.message}",
                code="object-missing",
                hint="Take, or copy, it again.",
            ) from error
        yield
        self._lock([manifest_key(job, savepoint)], lock)

    def _lock(self, keys: Collection[str], lock: Lock, on_lock: OnLock | None = None) -> None:
        """Lock some files.

        Raises:
            NotFoundError: One is not there.
            RefusedError: They cannot be locked (code `no-object-lock`).
        """
        locking = require_locks(self._store)
        done = each(lambda key: locking.lock(key, lock), sorted(keys), at_once(self._store))
        for number, _ in enumerate(done, start=1):
            if on_lock is not None:
                on_lock(number, len(keys))


def places(objects: Objects, digests: Iterable[str]) -> set[str]:
    """The packs and files in which some objects lie.

    Raises:
        IntegrityError: One is not there (code `object-missing`).
    """
    wanted = list(digests)
    files = objects.look_up(wanted)
    return {objects.locate(digest, file=files.get(digest)).key for digest in wanted}
