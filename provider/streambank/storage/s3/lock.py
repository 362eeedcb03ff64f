"""S3 Object Lock: a version of an object that cannot be deleted before a date.

A bucket has it, with its versions, or has not. A delete then only lays a marker over the version, and a write
lays another version over it: what was locked is still there, and comes back when what covers it is removed.
In the mode `governance` credentials with `s3:BypassGovernanceRetention` can end a lock, in `compliance` none
can. Source: Amazon S3 User Guide, "Locking objects with Object Lock".
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from streambank.core.python310 import UTC
from streambank.storage.s3.client import S3Address, status_of
from streambank.storage.store import Lock

_NO_LOCK = (400, 404)
"""What services answer about an object, or a bucket, without a lock."""


def takes_locks(root: S3Address) -> bool:
    """Whether objects of a bucket can be locked."""
    known = root.service.locking
    if root.bucket not in known:
        answer = root.ask("get_object_lock_configuration", expect=(400, 404, 405, 501))
        said = answer.get("ObjectLockConfiguration") or {}
        known[root.bucket] = said.get("ObjectLockEnabled") == "Enabled"
    return known[root.bucket]


def lock_of(place: S3Address) -> Lock | None:
    """The lock of the newest version of an object, which may have ended; None where it has none.

    Raises:
        NotFoundError: There is no such object.
    """
    answer = place.call("get_object_retention", expect=_NO_LOCK)
    if status_of(answer) in _NO_LOCK:
        if str(answer.get("Error", {}).get("Code")) in ("NoSuchKey", "404"):
            place.call("head_object")  # which says that there is none in our words
        return None
    found: dict[str, Any] = answer.get("Retention") or {}
    until = found.get("RetainUntilDate")
    if until is None:
        return None
    strict = str(found.get("Mode", "")).lower() == "compliance"
    return Lock(until.astimezone(UTC), "compliance" if strict else "governance")


def lock(place: S3Address, asked: Lock) -> None:
    """Lock the newest version of an object; one that is locked for longer already stays as it is.

    Raises:
        NotFoundError: There is no such object.
    """
    now = lock_of(place)
    if now is not None and now.until <= datetime.now(UTC):
        now = None  # it has ended, and its mode with it
    wanted = asked if now is None else asked.both(now)
    if wanted != now:
        retention = {"Mode": wanted.mode.upper(), "RetainUntilDate": wanted.until}
        place.call("put_object_retention", Retention=retention)
