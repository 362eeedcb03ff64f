"""Locks of savepoints: until a date the storage itself keeps all that one is made of from being deleted.

They rest on S3 Object Lock (storage/s3/lock.py). A savepoint's manifest is locked last, so while it is locked
all that it names is locked at least as long: packs and objects, those that it shares with earlier savepoints
among them, its signatures, and the repository's header. The index is not: packs say what is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from streambank.core.choices import LockMode
from streambank.core.errors import InputError, NotFoundError, RefusedError, StorageError
from streambank.core.python310 import UTC
from streambank.core.units import utc_now
from streambank.repository.objects.objects import Objects
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
        mode: As `Lock.mode`.
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


def places(objects: Objects, digests: Iterable[str]) -> set[str]:
    """The packs and files in which some objects lie.

    Raises:
        IntegrityError: One is not there (code `object-missing`).
    """
    wanted = list(digests)
    files = objects.look_up(wanted)
    return {objects.locate(digest, file=files.get(digest)).key for digest in wanted}


def lock_keys(store: Store, keys: Collection[str], lock: Lock, on_lock: OnLock | None = None) -> None:
    """Lock some files of a repository.

    Args:
        lock: Until when.

    Raises:
        NotFoundError: One is not there.
        RefusedError: They cannot be locked (code `no-object-lock`).
    """
    locking = require_locks(store)
    done = each(lambda key: locking.lock(key, lock), sorted(keys), at_once(store))
    for number, _ in enumerate(done, start=1):
        if on_lock is not None:
            on_lock(number, len(keys))


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
