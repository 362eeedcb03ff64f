"""Hold marks: while somebody reads a savepoint, it stays listed, and what it names stays where it is.

A hold is a small sealed file beside the manifest, `marks/<job>/<savepoint>/hold-<32 hex digits>.json`, made
by an exclusive create under a name that is never used twice. It counts for `HOLD_S` by the clock of the
storage and ends by itself, so one whose holder was killed only delays. docs/formats/repository.md has the
rules.

`Holds` writes a mark before the first byte is read, renews it meanwhile, and ends it afterwards. Whoever
holds looks at the repository again after the mark is written, and only then at the manifest and at where its
objects lie. So a sweep that has not seen the mark has nothing to delete that the holder counts on.
Where no mark can be written, in a repository that can only be read for example, reading goes on without one:
that is said once, and what is read may be swept a grace after it was expired.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any

from streambank.core.errors import InputError, NotFoundError, StreambankError
from streambank.core.names import QueryRef, check_name
from streambank.core.shape import HIDDEN, TENTHS, JsonObject, decode, encode
from streambank.core.units import to_json_time, utc_now
from streambank.repository.catalog import manifest_key, no_such_savepoint
from streambank.repository.marks import UNREADABLE, marks_prefix
from streambank.repository.repository import Repository
from streambank.repository.sealed import damaged, decode_record, encode_record
from streambank.repository.trash import BootTime
from streambank.storage.store import FileInfo, Store, read_record

HOLD = "hold"
HOLD_S = 3600.0
"""How long a hold counts unless it is renewed."""
MAX_HOLD_S = 86400.0
"""No hold counts longer than this, whatever it says; one that cannot be read counts as long."""
_NAME = re.compile(r"hold-([0-9a-f]{32})\.json")


def is_hold(key: str) -> bool:
    """Whether a file of a repository is a hold."""
    return key.startswith("marks/") and _NAME.fullmatch(key.rpartition("/")[2]) is not None


@dataclass(frozen=True, slots=True)
class Hold(JsonObject):
    """One hold mark.

    Attributes:
        purpose: What the holder does: `restore`, `replicate` or `verify`; empty where it cannot be read.
        left_s: How many seconds it still counts; it has ended where that is not positive.
    """

    job: str
    savepoint: str
    key: Annotated[str, HIDDEN]
    purpose: str
    by: Mapping[str, Any]
    left_s: Annotated[float, TENTHS]

    @property
    def which(self) -> tuple[str, str]:
        """Job and id of the savepoint."""
        return self.job, self.savepoint

    @property
    def counts(self) -> bool:
        """Whether it has not ended."""
        return self.left_s > 0

    @property
    def holder(self) -> str:
        """Who holds, for people: `restore by ann on etl-1`."""
        who = f" by {self.by['user']}" if self.by.get("user") else ""
        where = f" on {self.by['host']}" if self.by.get("host") else ""
        return f"{self.purpose or 'somebody'}{who}{where}"


@dataclass(frozen=True, slots=True)
class _HoldRecord:
    """What the holder wrote."""

    at: datetime
    by: Mapping[str, Any]
    purpose: str
    hold_s: float
    boot: BootTime


def hold_key(job: str, savepoint: str) -> str:
    """Where a new hold mark of a savepoint is to lie; never the same twice."""
    return f"{marks_prefix(job, savepoint)}/{HOLD}-{uuid.uuid4().hex}.json"


def add_hold(store: Store, digest_name: str, key: str, purpose: str, by: Mapping[str, Any]) -> None:
    """Write a hold mark, which counts from now on and ends by itself, or when the file is deleted."""
    job, savepoint, hold_id = _named(key) or ("", "", "")
    now = utc_now()
    record = {
        "kind": HOLD,
        "id": hold_id,
        "job": job,
        "savepoint": savepoint,
        "at": to_json_time(now),
        "by": dict(by),
        "purpose": purpose,
        "hold_s": HOLD_S,
        "until": to_json_time(now + timedelta(seconds=HOLD_S)),
        "boot": encode(BootTime.now()),
    }
    store.write(key, encode_record(record, digest_name), exclusive=True)


def holds(store: Store, now_ns: int, below: str = "marks") -> list[Hold]:
    """Every hold mark, ended ones among them.

    Args:
        now_ns: The time by the clock of the storage; of one that stamps no files, by this machine's.
        below: Where to look: `marks`, or what `marks_prefix` says of one savepoint.
    """
    found = (_hold(store, info, now_ns) for info in store.list(below))
    return [hold for hold in found if hold is not None]


def held(store: Store, job: str, savepoint: str, now_ns: int) -> Hold | None:
    """The hold on a savepoint that counts longest; None where there is none."""
    counting = [hold for hold in holds(store, now_ns, marks_prefix(job, savepoint)) if hold.counts]
    return max(counting, key=lambda hold: hold.left_s, default=None)


def _hold(store: Store, info: FileInfo, now_ns: int) -> Hold | None:
    named = _named(info.path)
    if named is None:
        return None
    job, savepoint, _ = named
    try:
        record = _read(store, info.path, named)
    except NotFoundError:
        # Ended in this moment, or this machine slept and it was renewed: the next look tells.
        return Hold(job, savepoint, info.path, "", {}, HOLD_S)
    except UNREADABLE:
        left_s = MAX_HOLD_S - (now_ns - info.mtime_ns) / 1e9
        return Hold(job, savepoint, info.path, "", {}, left_s)
    written_ns = info.mtime_ns or int(record.at.timestamp() * 1e9)
    left_s = min(record.hold_s, MAX_HOLD_S) - record.boot.age_s(written_ns, now_ns)
    return Hold(job, savepoint, info.path, record.purpose, record.by, left_s)


def _read(store: Store, key: str, named: tuple[str, str, str]) -> _HoldRecord:
    """What a hold mark says.

    Raises:
        NotFoundError: It is gone.
        IntegrityError, FormatError: It cannot be understood.
    """
    job, savepoint, hold_id = named
    what = f"mark {key.rpartition('/')[2]} of the savepoint {savepoint} of {job}"
    record = decode_record(read_record(store, key), what)
    place = tuple(record.get(name) for name in ("kind", "job", "savepoint", "id"))
    if place != (HOLD, job, savepoint, hold_id):
        raise damaged(what, "it is the mark of another savepoint, or of another kind")
    return decode(_HoldRecord, record, what, refuse=damaged)


def _named(key: str) -> tuple[str, str, str] | None:
    """Job, savepoint and id of a hold mark, by where it lies; None for any other file."""
    place, _, name = key.removeprefix("marks/").rpartition("/")
    job, _, savepoint = place.rpartition("/")
    match = _NAME.fullmatch(name)
    try:
        QueryRef.parse(job)
        check_name(savepoint, "savepoint")
    except InputError:
        return None
    return (job, savepoint, match[1]) if match else None


RENEW_S = HOLD_S / 6
"""So often a hold is renewed: some renewals may fail before it ends."""
_FOR_GOOD = ("no-permission", "read-only", "no-exclusive-create")
"""Codes of errors after which nothing was written, and that the next savepoint would meet, too."""
_NOT_HELD = "The savepoint {} is read without a hold, so a sweep may delete some of it once it is expired"
_NOT_RENEWED = "The hold on the savepoint {} could not be renewed at least once"
_NOT_ENDED = "The hold on the savepoint {} could not be ended; it ends by itself within an hour"
_KEPT = 2
"""How many of its marks a holder leaves: who lists them while they are renewed sees at least one."""


@dataclass(eq=False)
class Holds:
    """Holds savepoints of one repository for one piece of work.

    Args:
        purpose: What the work is: `restore`, `replicate` or `verify`.

    Attributes:
        warnings: What a person should know: why savepoints were not held, or not all the time.
    """

    repository: Repository
    purpose: str
    by: Mapping[str, Any] | None = None
    _: KW_ONLY
    renew_s: float = RENEW_S
    warnings: list[str] = field(default_factory=list)
    _able = True

    @contextmanager
    def held(self, job: str, savepoint: str) -> Iterator[HoldMarks]:
        """Hold a savepoint for a `with` block; its marks are renewed in a separate thread.

        Raises:
            NotFoundError: It is not listed any more (code `no-such-savepoint`).
        """
        keeper = HoldMarks(self.repository, self.purpose, self.by or {}, job, savepoint)
        if self._able:
            self._warn(keeper.renew(), _NOT_HELD.format(savepoint))
        ended = threading.Event()
        thread = threading.Thread(
            target=self._keep, args=(keeper, ended), name=f"hold-{savepoint}", daemon=True
        )
        try:
            self.repository.objects.refresh()
            if not self.repository.store.exists(manifest_key(job, savepoint)):
                raise no_such_savepoint(job, savepoint)
            if keeper.keys:
                thread.start()
            yield keeper
        finally:
            ended.set()
            if thread.ident is not None:
                thread.join()
            self._warn(keeper.release(), _NOT_ENDED.format(savepoint))

    def _keep(self, keeper: HoldMarks, ended: threading.Event) -> None:
        while not ended.wait(self.renew_s):
            self._warn(keeper.renew(), _NOT_RENEWED.format(keeper.savepoint))

    def _warn(self, error: StreambankError | None, what: str) -> None:
        """Say something once, whose cause may name another file each time."""
        if error is None:
            return
        self._able = self._able and error.code not in _FOR_GOOD
        if not any(text.startswith(what) for text in self.warnings):
            self.warnings.append(f"{what}: {error.message}")


@dataclass(eq=False)
class HoldMarks:
    """The marks of one hold.

    Attributes:
        keys: Where the marks lie, those included of which nobody knows whether they were written.
    """

    repository: Repository
    purpose: str
    by: Mapping[str, Any]
    job: str
    savepoint: str
    keys: list[str] = field(default_factory=list)

    def renew(self) -> StreambankError | None:
        """Write a mark that counts from now, and delete those that are older than the last one."""
        store, digest_name = self.repository.store, self.repository.digest_name
        key = hold_key(self.job, self.savepoint)
        try:
            add_hold(store, digest_name, key, self.purpose, self.by)
            self.keys.append(key)
            while len(self.keys) > _KEPT:
                store.delete(self.keys[0])
                del self.keys[0]
        except StreambankError as error:
            if key not in self.keys and error.code not in _FOR_GOOD:
                self.keys.append(key)  # it may be there all the same
            return error
        return None

    def release(self) -> StreambankError | None:
        """End the hold; a mark that cannot be deleted ends by itself."""
        try:
            while self.keys:
                self.repository.store.delete(self.keys[-1])
                del self.keys[-1]
        except StreambankError as error:
            return error
        return None
