"""Condemned files: objects and packs that a sweep is going to delete, which nobody may count on any more.

A sweep says in a sealed record `condemned/<id>.json` what it will delete, and deletes it in a later run, when
the record is at least `MIN_GRACE_S` old by the clock of the storage. Whoever is about to list a savepoint
reads these records last of all, counts on nothing that they name, and lists it within `COMMIT_WINDOW_S`.
So either it has seen the record and stored those bytes elsewhere, or the sweep, when it comes to delete, sees
the savepoint. A condemned file is never acquitted, and its name is not used again while the record is there.
docs/formats/repository.md has the whole argument, with a table of races.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streambank.core.errors import ConflictError, IntegrityError, NotFoundError
from streambank.core.shape import decode, encode
from streambank.core.units import to_json_time, utc_now
from streambank.repository.sealed import damaged, decode_record, encode_record
from streambank.storage.store import Store, read_record

FOLDER = "condemned"
MIN_GRACE_S = 3600.0
"""The shortest grace a sweep may be given: far above every window below."""
COMMIT_WINDOW_S = 900.0
"""So long after its last look at the condemned files may somebody list a savepoint."""
_RECORD, _DONE = ".json", ".done"


def boot_clock_s() -> float:
    """Seconds since this machine was started, its sleep included; only differences mean something."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def boot_id() -> str:
    """What tells one start of one machine from all others; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class BootTime:
    """A moment by a clock that nobody can set.

    Attributes:
        id: What tells that start of that machine from all others; empty where it is not known.
        s: Seconds since then, by `boot_clock_s`.
    """

    id: str
    s: float

    @classmethod
    def now(cls) -> BootTime:
        """This moment, on this machine."""
        return cls(boot_id(), boot_clock_s())

    def age_s(self, written_ns: int, now_ns: int) -> float:
        """How old a file is that was written at this moment.

        By the clock of the storage; where this machine wrote it since it was started, its own clock is asked
        as well, and the shorter time counts.

        Args:
            written_ns: When the storage says that it was written.
            now_ns: The time by the clock of the storage.
        """
        age_s = (now_ns - written_ns) / 1e9
        return min(age_s, boot_clock_s() - self.s) if self.id and self.id == boot_id() else age_s


_UNKNOWN_START = BootTime("", 0.0)


@dataclass(frozen=True, slots=True)
class PendingDeleteRecord:
    """What one sweep condemned at once.

    Attributes:
        id: Random, never used twice.
        condemned_ns: When, by the clock of the storage, in nanoseconds since the epoch.
        boot: When, by the clock of the machine that wrote it.
        done_ns: When all of them were deleted, by the same clock; None as long as they are not.
        error: Why its keys cannot be known; such a record has none, and nobody can act on it any more.
    """

    id: str
    keys: tuple[str, ...]
    condemned_ns: int
    boot: BootTime = _UNKNOWN_START
    done_ns: int | None = None
    error: IntegrityError | None = None

    def age_s(self, now_ns: int) -> float:
        """How long its files are condemned."""
        return self.boot.age_s(self.condemned_ns, now_ns)


class PendingDeletes:
    """The condemned files of a repository as they were last looked at. Safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._read: dict[str, tuple[str, ...]] = {}
        self._keys: frozenset[str] = frozenset()
        self._is_read = False

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __bool__(self) -> bool:
        return bool(self._keys)

    def look_once(self) -> None:
        """Look, unless anybody in this process has looked."""
        if not self._is_read:
            self.refresh()

    def refresh(self) -> None:
        """Look again. A record that is damaged condemns nothing: no sweep can act on it either.

        It is read again each time, since it may be the reading that failed.

        Raises:
            FormatError: A newer Streambank wrote one (code `unknown-format`).
        """
        with self._lock:
            present = [name.removesuffix(_RECORD) for name in _names(self._store) if name.endswith(_RECORD)]
            known = {each: self._read[each] for each in present if each in self._read}
            for each in present:
                if each not in known:
                    try:
                        known[each] = _read(self._store, each).keys
                    except (NotFoundError, IntegrityError):
                        continue  # what it named was deleted long ago, or nobody can tell what it names
            self._read, self._is_read = known, True
            self._keys = frozenset(key for keys in known.values() for key in keys)


def condemn(
    store: Store, digest_name: str, keys: Sequence[str], by: Mapping[str, Any]
) -> PendingDeleteRecord:
    """Leave a record that these objects and packs are going to be deleted."""
    record_id = uuid.uuid4().hex
    fields = {
        "kind": "condemned",
        "id": record_id,
        "at": to_json_time(utc_now()),
        "by": dict(by),
        "boot": encode(BootTime.now()),
        "keys": list(keys),
    }
    key = f"{FOLDER}/{record_id}{_RECORD}"
    store.write(key, encode_record(fields, digest_name), exclusive=True)
    return PendingDeleteRecord(record_id, tuple(keys), store.stat(key).mtime_ns)


def condemned_records(store: Store) -> list[PendingDeleteRecord]:
    """Every record, the oldest first.

    Raises:
        FormatError: A newer Streambank wrote one (code `unknown-format`).
    """
    found = {info.path.rpartition("/")[2]: info for info in store.list(FOLDER)}
    records = []
    for name, info in found.items():
        if not name.endswith(_RECORD):
            continue
        record_id = name.removesuffix(_RECORD)
        done = found.get(record_id + _DONE)
        done_ns = done.mtime_ns if done else None
        try:
            said = _read(store, record_id)
        except NotFoundError:
            continue
        except IntegrityError as error:
            records.append(PendingDeleteRecord(record_id, (), info.mtime_ns, done_ns=done_ns, error=error))
            continue
        records.append(PendingDeleteRecord(record_id, said.keys, info.mtime_ns, said.boot, done_ns))
    return sorted(records, key=lambda record: (record.condemned_ns, record.id))


def is_there(store: Store, record: PendingDeleteRecord) -> bool:
    """Whether a record still is there; its keys may only be deleted while it is."""
    return store.exists(f"{FOLDER}/{record.id}{_RECORD}")


def mark_done(store: Store, digest_name: str, record: PendingDeleteRecord) -> None:
    """Say that all files of a record are deleted; two sweeps may both say so."""
    data = encode_record({"kind": "condemned-done", "id": record.id}, digest_name)
    try:
        store.write(f"{FOLDER}/{record.id}{_DONE}", data, exclusive=True)
    except ConflictError as error:
        if error.code != "exists":
            raise


def forget(store: Store, record: PendingDeleteRecord) -> None:
    """Remove a record, so that its names may be used again."""
    store.delete(f"{FOLDER}/{record.id}{_RECORD}")
    store.delete(f"{FOLDER}/{record.id}{_DONE}")


def forget_orphans(store: Store) -> None:
    """Remove what a crash in the middle of `forget` has left."""
    names = set(_names(store))
    for name in names:
        if name.endswith(_DONE) and name.removesuffix(_DONE) + _RECORD not in names:
            store.delete(f"{FOLDER}/{name}")


def _names(store: Store) -> Sequence[str]:
    return store.names(FOLDER)


@dataclass(frozen=True, slots=True)
class _Condemned:
    """What a record says."""

    keys: tuple[str, ...]
    boot: BootTime


def _read(store: Store, record_id: str) -> _Condemned:
    what = f"record {FOLDER}/{record_id}{_RECORD} of files to be deleted"
    fields = decode_record(read_record(store, f"{FOLDER}/{record_id}{_RECORD}"), what)
    if fields.get("kind") != "condemned" or fields.get("id") != record_id:
        raise damaged(what, "it is not such a record")
    return decode(_Condemned, fields, what, refuse=damaged)
