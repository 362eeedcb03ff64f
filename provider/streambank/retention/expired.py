"""Expired savepoints: manifests that were moved aside, and can be listed again until a sweep removes them.

Each time a savepoint is expired its manifest is copied, byte for byte, to a name that is never used twice:
`expired/<job>/<savepoint>/<32 hex digits>.json`. Only a sweep deletes such a copy, after the grace. So of any
processes that expire and bring back the same savepoint at once none can delete what another one relies on.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from streambank.core.errors import FormatError, InputError, IntegrityError, NotFoundError, StreambankError
from streambank.core.names import QueryRef, check_name
from streambank.core.python310 import UTC
from streambank.core.units import to_json_time
from streambank.repository.catalog import (
    EXPIRED,
    check_place,
    listed,
    manifest_key,
    manifest_name,
    no_such_savepoint,
    read_head,
)
from streambank.repository.manifest import Manifest, decode, decode_head
from streambank.repository.marks import PIN, Marks, latest, marks_prefix
from streambank.repository.repository import Repository
from streambank.storage.store import Store, chunks

UNUSABLE = (IntegrityError, FormatError, InputError)
"""What a manifest raises that cannot be used."""
_NAME = re.compile(r"[0-9a-f]{32}\.json")


@dataclass(frozen=True, slots=True)
class Expired:
    """One copy of an expired savepoint's manifest.

    Attributes:
        expired_ns: When it was made, by the clock of the storage, in nanoseconds since the epoch.
    """

    job: str
    savepoint: str
    key: str
    expired_ns: int
    size_bytes: int

    @property
    def which(self) -> tuple[str, str]:
        """Job and id."""
        return self.job, self.savepoint

    def to_dict(self) -> dict[str, Any]:
        """What identifies it, as JSON."""
        return {"job": self.job, "savepoint": self.savepoint}


def set_aside(repository: Repository, job: str, savepoint: str) -> Expired:
    """Copy a listed savepoint's manifest to where it can be brought back from; it stays listed.

    Raises:
        NotFoundError: It is not listed any more (code `no-such-savepoint`).
        IntegrityError, FormatError: It cannot be used, so it is not touched.
    """
    store, source = repository.store, manifest_key(job, savepoint)
    read_head(store, job, savepoint)
    key = f"{EXPIRED}/{job}/{savepoint}/{uuid.uuid4().hex}.json"
    try:
        with store.open(source) as reader:
            store.write(key, chunks(reader), exclusive=True)
    except NotFoundError as error:
        raise no_such_savepoint(job, savepoint) from error
    try:
        with store.open(key) as reader:
            check_place(decode_head(chunks(reader), manifest_name(job, savepoint)), job, savepoint)
    except UNUSABLE:
        store.delete(key)
        raise
    info = store.stat(key)
    return Expired(job, savepoint, key, info.mtime_ns, info.size_bytes)


def expired_savepoints(store: Store) -> list[Expired]:
    """Every copy, the oldest first; several of one savepoint where it was expired more than once."""
    found = []
    for info in store.list(EXPIRED):
        place, _, name = info.path.removeprefix(EXPIRED + "/").rpartition("/")
        job, _, savepoint = place.rpartition("/")
        if _NAME.fullmatch(name) and _is_named(job, savepoint):
            found.append(Expired(job, savepoint, info.path, info.mtime_ns, info.size_bytes))
    return sorted(found, key=lambda each: (each.expired_ns, each.key))


def load(store: Store, copy: Expired, *, files: bool = True) -> Manifest:
    """The manifest in a copy, checked; without `files` only its seal is.

    Raises:
        NotFoundError: A sweep has removed it.
        IntegrityError, FormatError: It cannot be used.
    """
    with store.open(copy.key) as reader:
        read = decode if files else decode_head
        manifest = read(chunks(reader), manifest_name(copy.job, copy.savepoint))
    return check_place(manifest, copy.job, copy.savepoint)


def load_newest(store: Store, which: tuple[str, str]) -> Manifest:
    """The manifest in the newest copy of an expired savepoint that can be used.

    Raises:
        NotFoundError: A sweep has removed them all (code `not-expired`).
        IntegrityError, FormatError: None can be used.
    """
    failure: StreambankError | None = None
    for copy in reversed(expired_savepoints(store)):
        if copy.which == which:
            try:
                return load(store, copy)
            except NotFoundError:
                continue  # a sweep has removed it just now
            except UNUSABLE as error:
                failure = failure or error
    raise failure or _not_expired(store, "/".join(which))


def remove(store: Store, copy: Expired, others: bool) -> None:
    """Remove a copy, and with the last one the marks of its savepoint, unless that is listed again.

    The newest pin mark stays, so that no pin mark ever gets a number, and so a name, for the second time.

    Args:
        others: Whether there are other copies of the same savepoint.
    """
    if not others and not store.exists(manifest_key(copy.job, copy.savepoint)):
        prefix = marks_prefix(copy.job, copy.savepoint)
        names = store.names(prefix)
        newest_pin = latest(names, PIN)
        for name in names:
            if name != newest_pin:
                store.delete(f"{prefix}/{name}")
    store.delete(copy.key)


def find(store: Store, reference: str, job: str | None = None) -> Expired:
    """The newest copy of the expired savepoint that a person means; as `catalog.find` for listed ones.

    Raises:
        NotFoundError: None of that name is kept (code `not-expired`).
        InputError: Several begin so (code `ambiguous`).
    """
    place, _, start = reference.rpartition("/")
    check_name(start, "savepoint")
    wanted = place or job
    newest = {
        copy.which: copy
        for copy in expired_savepoints(store)
        if copy.savepoint.startswith(start)
        and (wanted is None or copy.job == wanted or copy.job.startswith(wanted + "/"))
    }
    exact = [which for which in newest if which[1] == start]
    chosen = exact or sorted(newest)
    if not chosen:
        raise _not_expired(store, reference, job)
    if len(chosen) > 1:
        raise InputError(
            f"{reference} may be {' or '.join('/'.join(which) for which in chosen)}.",
            code="ambiguous",
            hint="Give more of the id, or job/id.",
        )
    return newest[chosen[0]]


def unlisted(store: Store, copies: list[Expired]) -> list[Expired]:
    """Those whose savepoint is not listed: the newest copy of each."""
    there = set(listed(store))
    return list({copy.which: copy for copy in copies if copy.which not in there}.values())


def _not_expired(store: Store, reference: str, job: str | None = None) -> NotFoundError:
    return NotFoundError(
        f"No expired savepoint {reference}{f' of {job}' if job else ''} is kept in {store.uri}.",
        code="not-expired",
        hint="It was swept for good, or never expired: `streambank list` shows what is there, "
        "`streambank list --expired` what can be brought back.",
    )


def _is_named(job: str, savepoint: str) -> bool:
    try:
        QueryRef.parse(job)
        check_name(savepoint, "savepoint")
    except StreambankError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ExpiredSummary:
    """One expired savepoint as a listing shows it.

    Attributes:
        expired_at: When it was expired, by the clock of the storage, in UTC.
        until: Until then no sweep with the grace that was asked for removes it; None as long as it is pinned.
        manifest: What it is, without its files; None where the copy of its manifest cannot be used.
        error: Why not: it cannot be brought back then.
    """

    savepoint: str
    job: str
    expired_at: datetime
    until: datetime | None
    manifest: Manifest | None
    error: StreambankError | None = None

    def to_dict(self) -> dict[str, Any]:
        known = self.manifest
        return {
            "savepoint": self.savepoint,
            "job": self.job,
            "batch": known.batch if known else None,
            "taken_at": to_json_time(known.taken_at) if known else None,
            "bytes": known.bytes if known else None,
            "files": known.file_count if known else None,
            "note": known.note if known else None,
            "expired_at": to_json_time(self.expired_at),
            "until": to_json_time(self.until) if self.until else None,
            "error": self.error.message if self.error else None,
        }


def expired_summaries(store: Store, grace_s: float, job: str | None = None) -> list[ExpiredSummary]:
    """Every savepoint that is not listed and can be brought back, by job and then by batch.

    Args:
        grace_s: The grace of the sweeps that come.
        job: Only this one: for `job` its queries too, for `job/query` that query.
    """
    found = []
    for copy in unlisted(store, expired_savepoints(store)):
        if job is not None and copy.job != job and not copy.job.startswith(f"{job}/"):
            continue
        manifest: Manifest | None = None
        error: StreambankError | None = None
        try:
            manifest = load(store, copy, files=False)
        except NotFoundError:
            continue  # a sweep was faster
        except UNUSABLE as unusable:
            error = unusable
        at = datetime.fromtimestamp(copy.expired_ns / 1e9, UTC)
        until = None if Marks(store, *copy.which).may_be_pinned() else at + timedelta(seconds=grace_s)
        found.append(ExpiredSummary(copy.savepoint, copy.job, at, until, manifest, error))
    return sorted(found, key=lambda each: (each.job, each.savepoint))
