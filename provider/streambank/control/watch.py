"""Who keeps a job running, and when that watcher last gave a sign of life.

```
watch/0000000003.json          who watches: the newest number does, every earlier one has been replaced
watch/0000000003.beat.json     its last sign, and when the next one is due; replaced by its watcher only
watch/0000000003.end.json      how it ended: stopped, finished, replaced, gave-up, failed
watch/0000000003.idle.json     why it could not act although it gives signs: its DAG is paused
```

A watcher is not a driver: it starts another driver where one is gone, and starting is safe whoever does it.
So nothing here is a lock. Of two watchers the newer one acts: the older one finds that the newest record is
not its own, before it acts and with each sign, and does nothing more. It ends once it has seen that the newer
one gives signs. A newest record without signs proves no watcher: Airflow's database may have come back from a
backup that does not have that run, the run may be deleted, the records may be a copy from before. Then the
older one begins again, as the newest. A sign is written once a minute at most, into one object.

A number alone does not say who a watcher is: where the records were lost, the next one begins at 1. So each
record has an `id` of a moment and a random number, and so has all that accompanies it: what a watcher from
before the loss still writes under the same number is not read as a word of the next one. A watcher whose
record is gone begins again, unless another one began after it. Records of the version before have no `id`,
and their watchers go on without one.

`desired` in a sign is the number of the record in `desired/` that the watcher has seen. A job is expected to
be watched where a watcher has seen what is meant to be now. One that was only ever started by hand is not.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from streambank.control.records import JsonDict, Record, RecordStream, decode_json, encode_json
from streambank.core.errors import FormatError, NotFoundError
from streambank.core.json_text import is_whole_number
from streambank.core.units import from_json_time, to_json_time, utc_now
from streambank.storage.store import Store, read_record

SIGN_EVERY_S = 60.0
"""How often a watcher gives a sign."""
LATE_S = 120.0
"""A sign that is overdue by so much is missing: two more could have come."""

WatchEnd = Literal["stopped", "finished", "replaced", "gave-up", "failed"]


@dataclass(frozen=True, slots=True)
class Watcher:
    """Which watcher somebody is: what `begin` gave, and what each later call wants.

    Attributes:
        identity: What its record says beside that; None for a watcher that the version before has begun.
    """

    number: int
    identity: str | None = None

    @property
    def began_ms(self) -> int | None:
        """When it began, in milliseconds of the epoch, by its own clock; None if that is not known."""
        began, _, rest = (self.identity or "").partition("-")
        return int(began) if rest and began.isascii() and is_whole_number(began) else None


@dataclass(frozen=True, slots=True)
class WatchView:
    """The newest watcher.

    Attributes:
        by: Who it is: for one in Airflow `dag_id`, `run_id`, `task_id`.
        next_s: So many seconds after that its next sign is due.
        doing: What it does meanwhile: `watching`, `pausing` before a start, `starting`.
        desired: The number of the record of what is meant to be that it has seen; None where there was none.
        end: How it ended: `how`, `why`, `at`; empty while it did not.
        idle: Why it could not start a driver although it gives signs, and `at`: since when; empty where it
            could.
        identity: What tells it from another one with its number; None for one of the version before.
    """

    number: int
    by: Mapping[str, str]
    since: datetime
    seen_at: datetime
    next_s: float
    doing: str
    desired: int | None
    end: Mapping[str, Any] = field(default_factory=dict)
    idle: Mapping[str, Any] = field(default_factory=dict)
    identity: str | None = None

    @property
    def watcher(self) -> Watcher:
        """Which watcher it is."""
        return Watcher(self.number, self.identity)

    @property
    def due_at(self) -> datetime:
        """When its next sign is due."""
        return self.seen_at + timedelta(seconds=self.next_s)

    def acts(self, now: datetime) -> bool:
        """Whether it gives signs, and could act: it has not ended, and is not silent."""
        return not self.end and not self.idle and not self.is_silent(now)

    def is_silent(self, now: datetime) -> bool:
        """Whether signs are missing: the next one is long overdue."""
        return (now - self.due_at).total_seconds() > LATE_S

    @property
    def gave_up(self) -> bool:
        """Whether it has given the job up: then no older one goes on with it."""
        return self.end.get("how") == "gave-up"

    @property
    def who(self) -> str:
        """Its name for people: `run manual__2026-11-23 of flights.run`."""
        if self.by.get("dag_id"):
            return f"run {self.by.get('run_id', '?')} of {self.by['dag_id']}"
        return f"{self.by.get('user', 'somebody')} on {self.by.get('host', 'some host')}"

    @property
    def last_word(self) -> str:
        """How it ended, or when it gave its last sign, as a sentence."""
        if not self.end:
            return f"Its watcher, {self.who}, has given no sign since {to_json_time(self.seen_at)}."
        how, why = str(self.end.get("how")), str(self.end.get("why") or "")
        said = f": {why.rstrip('.')}" if why else ""
        return f"Its watcher, {self.who}, ended ({how}{said})."


@dataclass(frozen=True, slots=True)
class WatcherState:
    """How a watcher stands; it is the one that acts where nothing here is said.

    Attributes:
        other: The watcher that has the newest record instead, and may act, or has given up; None where none
            does.
        lost: Whether no watcher acts: its record is gone and none began after it, or the newest one is
            another watcher's that has ended or is silent.
        why: In that second case what became of that one, as a sentence.
        process: Which process left the last sign of this watcher; None for none, or one that does not say.
    """

    other: WatchView | None = None
    lost: bool = False
    why: str = ""
    process: str | None = field(default=None, compare=False)

    @property
    def replaced_by(self) -> str | None:
        """Who has the newest record instead, for people."""
        return None if self.other is None else self.other.who


_LOOKS = 3
"""How often a file beside a record is read that cannot be understood."""


class Watches:
    """The watchers of one job."""

    def __init__(self, store: Store) -> None:
        self.records = RecordStream(store, "watch")

    def view(self) -> WatchView | None:
        """The newest watcher; None where the job never had one.

        Raises:
            FormatError: Its record is damaged (code `damaged-record`).
        """
        record = self.records.latest()
        if record is None:
            return None
        data, watcher = record.data, _watcher(record)
        try:
            since = from_json_time(str(data["at"]))
            sign = self._companion(watcher, ".beat")
            desired = sign.get("desired", data.get("desired"))
            return WatchView(
                record.number,
                data.get("by") or {},
                since,
                from_json_time(str(sign["at"])) if "at" in sign else since,
                float(sign.get("next_s") or data.get("next_s") or SIGN_EVERY_S),
                str(sign.get("doing", "watching")),
                int(desired) if desired is not None else None,
                self._companion(watcher, ".end"),
                idle if (idle := self._companion(watcher, ".idle")).get("why") else {},
                watcher.identity,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"The record {record.where} cannot be read: {error!r}.",
                code="damaged-record",
                hint="Look at it, and move it away: the next watcher writes another one.",
            ) from error

    def begin(self, *, by: Mapping[str, str], desired: int | None) -> Watcher:
        """Become the newest watcher; which one, to give signs with."""
        identity, data = _begun(by, desired)
        return Watcher(self.records.append(data), identity)

    def begin_again(
        self,
        watcher: Watcher,
        *,
        by: Mapping[str, str],
        desired: int | None,
        gone: Watcher | None = None,
    ) -> Watcher | None:
        """As `begin`, for a watcher where none acts; None where one does, or another one was faster.

        Args:
            gone: The newest watcher, which makes room although its record does not say why: the caller has
                seen for long that it gives no signs, or it is the caller's own, and another process has it.
        """
        last = max((*self.records.numbers(), self.records.pruned_up_to()))
        standing = self.standing(watcher)
        newest = watcher if standing.other is None else standing.other.watcher
        if not (standing.lost or (gone is not None and newest == gone)):
            return None
        identity, data = _begun(by, desired)
        return Watcher(last + 1, identity) if self.records.create(last + 1, data) else None

    def sign(
        self,
        watcher: Watcher,
        *,
        desired: int | None,
        next_s: float = SIGN_EVERY_S,
        doing: str = "watching",
        process: str | None = None,
    ) -> WatcherState:
        """Give a sign, if the watcher still is the one that acts.

        Args:
            process: Which process gives it, in which many are given.

        Returns:
            How it stands. Where another one acts, or none does, no sign was left.
        """
        standing = self.standing(watcher)
        if standing == WatcherState():
            data = {"at": to_json_time(utc_now()), "next_s": next_s, "doing": doing, "desired": desired}
            said = _of(watcher, data if process is None else {**data, "process": process})
            self.records.replace(watcher.number, said, suffix=".beat", shorter=said)
        return standing

    def standing(self, watcher: Watcher) -> WatcherState:
        """Whether a watcher still is the one that acts: the newest record is its own.

        Its record is lost where the newest one has a lower number and is of a watcher that began before it:
        records that were put back from a copy, or one that was moved away.

        Raises:
            FormatError: The newest record is damaged (code `damaged-record`).
        """
        newest = self.records.latest()
        if newest is None:
            return WatcherState(lost=True)
        if _watcher(newest) == watcher:
            return WatcherState(process=self._companion(watcher, ".beat").get("process"))
        view = self.view()
        if view is None:
            return WatcherState(lost=True)
        began, other = watcher.began_ms, view.watcher.began_ms or view.since.timestamp() * 1000
        if began is not None and view.number < watcher.number and other < began:
            return WatcherState(lost=True)
        if (view.end or view.is_silent(utc_now())) and not view.gave_up:
            return WatcherState(lost=True, why=view.last_word)
        return WatcherState(view)

    def end(self, watcher: Watcher, how: WatchEnd, why: str = "") -> bool:
        """Record that a watcher has ended; False where that is recorded, or its own record is lost."""
        if not self._is_recorded(watcher):
            return False
        data = {"at": to_json_time(utc_now()), "how": how, "why": why}
        if self.records.create(watcher.number, _of(watcher, data), suffix=".end"):
            return True
        if self._companion(watcher, ".end"):
            return False
        self._write(watcher, ".end", data)  # in place of that of another one, whose record is lost
        return True

    def note_idle(self, view: WatchView, why: str | None) -> None:
        """Leave behind that a watcher could not act, or (None) that it could; only a change is written."""
        if (why or "") != str(view.idle.get("why") or "") and self._is_recorded(view.watcher):
            self._write(view.watcher, ".idle", {"at": to_json_time(utc_now()), "why": why})

    def _is_recorded(self, watcher: Watcher) -> bool:
        try:
            return _identity(self.records.read(watcher.number)) == watcher.identity
        except NotFoundError:
            return False

    def _write(self, watcher: Watcher, suffix: str, data: Mapping[str, Any]) -> None:
        self.records.store.write(self.records.key(watcher.number, suffix), encode_json(_of(watcher, data)))

    def _companion(self, watcher: Watcher, suffix: str) -> JsonDict:
        """What accompanies a watcher's record; empty too where it is of another one that had the number."""
        key = self.records.key(watcher.number, suffix)
        for look in range(_LOOKS):
            try:
                data = decode_json(read_record(self.records.store, key), suffix)
                return data if data.get("id") == watcher.identity else {}
            except NotFoundError:
                return {}
            except FormatError:
                # On a full disk a sign is replaced where it lies: the next look sees the whole of it.
                if look + 1 == _LOOKS:
                    return {"how": "unreadable"} if suffix == ".end" else {}
        raise AssertionError("the last look returns")


def _begun(by: Mapping[str, str], desired: int | None) -> tuple[str, JsonDict]:
    now = utc_now()
    identity = f"{int(now.timestamp() * 1000)}-{secrets.token_hex(8)}"
    data = {"id": identity, "at": to_json_time(now), "by": dict(by), "desired": desired}
    return identity, {**data, "next_s": SIGN_EVERY_S}


def _watcher(record: Record) -> Watcher:
    return Watcher(record.number, _identity(record.data))


def _identity(data: JsonDict) -> str | None:
    """That of a watcher's record; one of the version before has none."""
    identity = data.get("id")
    return None if identity is None else str(identity)


def _of(watcher: Watcher, data: Mapping[str, Any]) -> JsonDict:
    return dict(data) if watcher.identity is None else {"id": watcher.identity, **data}
