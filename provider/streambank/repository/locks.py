"""Locks of savepoints: until a date nobody deletes what one is made of, whatever credentials he has.

They rest on S3 Object Lock (storage/s3/lock.py). A savepoint's manifest is locked last, so while it is locked
all that it names is locked at least as long: packs and objects, those that it shares with earlier savepoints
among them, its signatures, and the repository's header. The index is not: packs say what is in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from streambank.core.choices import LockMode
from streambank.core.errors import NotFoundError, RefusedError, StorageError
from streambank.core.units import utc_now
from streambank.repository.objects.objects import Objects
from streambank.storage.store import Locking, Store
from streambank.storage.threads import at_once, each


@dataclass(frozen=True, slots=True)
class LockPolicy:
    """For how long each savepoint is locked.

    Attributes:
        for_s: Seconds from the moment at which it is saved; the lock ends at a midnight in UTC after that, so
            that what many savepoints of a day share is locked once.
        mode: `governance`, which credentials with a right of its own can end, or `compliance`, which nobody
            can end.
    """

    for_s: float
    mode: LockMode = "governance"

    def until(self, now: datetime | None = None) -> datetime:
        """When the lock of a savepoint ends that is saved now."""
        day = ((now or utc_now()) + timedelta(seconds=self.for_s)).astimezone(UTC).date()
        return datetime.combine(day + timedelta(days=1), time(), UTC)


def require_locks(store: Store) -> Locking:
    """The store, as one whose files can be locked.

    Raises:
        RefusedError: They cannot (code `no-object-lock`).
        StorageError: The service does not say.
    """
    if isinstance(store, Locking) and store.takes_locks():
        return store
    raise RefusedError(
        f"Savepoints in {store.uri} cannot be locked: it is in no S3 bucket with Object Lock.",
        code="no-object-lock",
        hint="Make the bucket with Object Lock, or switch it on there; or take `lock` out of the jobs file.",
    )


def lock_objects(store: Store, objects: Objects, digests: Iterable[str], policy: LockPolicy) -> None:
    """Lock the packs and files in which some objects lie.

    Args:
        store: The repository's root.
        objects: Its objects.
        digests: Those that a savepoint names.
        policy: For how long.

    Raises:
        IntegrityError: One is not there (code `object-missing`).
        RefusedError: They cannot be locked (code `no-object-lock`).
        StorageError: The service refuses.
    """
    wanted = list(digests)
    files = objects.look_up(wanted)
    keys = {objects.locate(digest, file=files.get(digest)).key for digest in wanted}
    lock_keys(store, sorted(keys), policy)


def lock_keys(store: Store, keys: Iterable[str], policy: LockPolicy) -> None:
    """Lock some files of a repository.

    Raises:
        NotFoundError, RefusedError, StorageError: As `lock_objects`.
    """
    locking, until = require_locks(store), policy.until()
    for _ in each(lambda key: locking.lock(key, until, policy.mode), list(keys), at_once(store)):
        pass


def locked_until(store: Store, key: str) -> datetime | None:
    """When the lock of a file ends; None where it is not locked, not any more, or not there.

    So too where these credentials may not see locks: who may not see them has not made them.

    Raises:
        StorageError: The service does not answer.
    """
    if not isinstance(store, Locking):
        return None
    try:
        until = store.locked_until(key) if store.takes_locks() else None
    except NotFoundError:
        return None
    except StorageError as error:
        if error.code != "no-permission":
            raise
        return None
    return until if until is not None and until > utc_now() else None
