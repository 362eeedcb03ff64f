"""Marks: small records beside a savepoint that say what happened to it later: pinned, unpinned, verified.

A manifest never changes. Each mark is a new sealed file `marks/<job>/<savepoint>/<kind>-<number>.json`, made
by an exclusive create, so that two writers never overwrite each other; of one kind the highest number counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streambank.core.errors import (
    ConflictError,
    FormatError,
    IntegrityError,
    NotFoundError,
    StreambankError,
)
from streambank.core.shape import decode
from streambank.core.units import to_json_time, utc_now
from streambank.repository.coverage import Coverage
from streambank.repository.manifest import nothing
from streambank.repository.sealed import damaged, decode_record, encode_record
from streambank.storage.names import near
from streambank.storage.store import Store, read_record

PIN = "pin"
VERIFIED = "verified"
RESTORED = "restored"
REHEARSAL = "rehearsal"
_NAME = re.compile(r"([a-z]+)-(\d{10})\.json")
_TRIES = 100
_OWN_FIELDS = frozenset(
    {"format", "digest", "kind", "number", "job", "savepoint", "at", "by", "record_digest"}
)


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark.

    Attributes:
        kind: `pin` (with the field `pinned`), `verified`, `restored` or `rehearsal` (with `passed`); more may
            come.
        number: Of its kind, from 1.
        by: Who: user, host, dag_id, ...
    """

    kind: str
    number: int
    at: datetime
    by: Mapping[str, Any] = field(default_factory=nothing)
    fields: Mapping[str, Any] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True)
class Verification:
    """One verification of a savepoint.

    Attributes:
        at: When it ended, in UTC.
        level: `quick`, `full`, `sampled`.
        ok: Whether it found no damage, and none that an earlier one found by hashing still stands.
        files: How many files were looked at.
        bytes: How many bytes were read.
        coverage: What has been hashed up to then, and when.
    """

    at: datetime
    level: str
    ok: bool
    findings: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    by: Mapping[str, Any] = field(default_factory=nothing)
    coverage: Coverage = field(default_factory=Coverage)


def marks_prefix(job: str, savepoint: str) -> str:
    """Where the marks of a savepoint lie."""
    return f"marks/{job}/{savepoint}"


def split_mark_name(name: str) -> tuple[str, int] | None:
    """Kind and number of a mark's file name; None where it is none."""
    match = _NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def add_mark(
    store: Store,
    digest_name: str,
    job: str,
    savepoint: str,
    kind: str,
    *,
    by: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
    at: datetime | None = None,
) -> Mark:
    """Write the next mark of a kind.

    Args:
        at: When, of a mark that is copied from another repository; now when left out.

    Raises:
        ConflictError: Others wrote marks all the time (code `too-many-writers`).
    """
    prefix = marks_prefix(job, savepoint)
    for _ in range(_TRIES):
        names = (split_mark_name(name) for name in store.names(prefix))
        number = max(near(found[1] for found in names if found and found[0] == kind), default=0) + 1
        mark = Mark(kind, number, at or utc_now(), dict(by or {}), dict(fields or {}))
        record = {
            "kind": kind,
            "number": number,
            "job": job,
            "savepoint": savepoint,
            "at": to_json_time(mark.at),
            "by": mark.by,
            **mark.fields,
        }
        try:
            store.write(
                f"{prefix}/{kind}-{number:010d}.json", encode_record(record, digest_name), exclusive=True
            )
        except ConflictError:
            continue  # somebody else took the number
        return mark
    raise ConflictError(
        f"No {kind} mark could be written for the savepoint {savepoint} of {job}.",
        code="too-many-writers",
        hint="Try again.",
    )


def read_mark(store: Store, job: str, savepoint: str, name: str) -> Mark:
    """One mark by its file name.

    Raises:
        NotFoundError: There is none.
        IntegrityError: It is not what was written, or belongs to something else (code `record-damaged`).
        FormatError: A newer Streambank wrote it.
    """
    what = f"mark {name} of the savepoint {savepoint} of {job}"
    record = decode_record(read_record(store, f"{marks_prefix(job, savepoint)}/{name}"), what)
    place = (record.get("kind"), record.get("number"), record.get("job"), record.get("savepoint"))
    named = split_mark_name(name)
    if named is None or place != (*named, job, savepoint):
        raise damaged(what, "it is the mark of another savepoint, or of another kind")
    fields = {key: value for key, value in record.items() if key not in _OWN_FIELDS}
    return decode(Mark, {**record, "fields": fields}, what, refuse=damaged)


def latest(names: Iterable[str], kind: str) -> str | None:
    """The file name of the newest mark of a kind; none whose number no history leads to."""
    numbers = near(found[1] for found in map(split_mark_name, names) if found and found[0] == kind)
    return f"{kind}-{max(numbers):010d}.json" if numbers else None


def is_pinned(mark: Mark | None) -> bool:
    """Whether the newest pin mark holds the savepoint."""
    return mark is not None and mark.fields.get("pinned") is True


def to_verification(mark: Mark) -> Verification:
    """What a verified mark says."""
    known = {
        name: mark.fields[name] for name in ("findings", "files", "bytes", "seconds") if name in mark.fields
    }
    return Verification(
        at=mark.at,
        level=str(mark.fields.get("level", "")),
        ok=mark.fields.get("ok") is True,
        by=mark.by,
        coverage=coverage_of(mark),
        **known,
    )


def coverage_of(mark: Mark) -> Coverage:
    """What had been hashed, and when, by the time of a verified mark."""
    if "coverage" not in mark.fields and mark.fields.get("level") == "full":  # it was not written always
        return Coverage.whole(mark.at, mark.fields.get("ok") is True)
    return Coverage.from_list(mark.fields.get("coverage", ()))


UNREADABLE = (IntegrityError, FormatError)
"""What a mark that cannot be read raises; a pin that cannot be read counts as a pin."""


class Marks:
    """The marks of one savepoint, listed or not.

    Args:
        names: Their file names; looked for where left out.
    """

    def __init__(self, store: Store, job: str, savepoint: str, names: Iterable[str] | None = None) -> None:
        self._store = store
        self._which = job, savepoint
        self.names = list(store.names(marks_prefix(job, savepoint)) if names is None else names)

    def has(self, kind: str) -> bool:
        """Whether there is one of a kind."""
        return latest(self.names, kind) is not None

    def newest(self, kind: str) -> Mark | None:
        """The newest one of a kind; None for none.

        Raises:
            NotFoundError: It is gone since it was looked for.
            IntegrityError, FormatError: It cannot be read.
        """
        name = latest(self.names, kind)
        return None if name is None else read_mark(self._store, *self._which, name)

    def verification(self) -> Verification | None:
        """The last verification; None where it was never verified. Raises as `newest`."""
        mark = self.newest(VERIFIED)
        return None if mark is None else to_verification(mark)

    def readable_verification(self) -> Verification | None:
        """The last verification; None, too, where that cannot be read: it says nothing, or is gone."""
        try:
            return self.verification()
        except (NotFoundError, *UNREADABLE):
            return None

    def may_be_pinned(self) -> bool:
        """Whether it is pinned, as far as anybody can tell."""
        try:
            return is_pinned(self.newest(PIN))
        except UNREADABLE:
            return True

    def rehearsal(self) -> tuple[bool, datetime | None]:
        """Whether no rehearsal has passed and no job went on from it, and when the newest mark was made."""
        restored = self.has(RESTORED)
        try:
            mark = self.newest(REHEARSAL)
        except NotFoundError:
            return False, None  # the savepoint has expired meanwhile
        except UNREADABLE:
            return not restored, None
        if mark is None:
            return False, None
        return not restored and mark.fields.get("passed") is not True, mark.at

    def read_all(self) -> tuple[list[Mark], list[tuple[str, StreambankError]]]:
        """All that can be read, and by their keys what is wrong with the others."""
        marks: list[Mark] = []
        damages: list[tuple[str, StreambankError]] = []
        for name in self.names:
            if split_mark_name(name) is None:
                continue
            try:
                marks.append(read_mark(self._store, *self._which, name))
            except UNREADABLE as error:
                damages.append((f"{marks_prefix(*self._which)}/{name}", error))
        return marks, damages
