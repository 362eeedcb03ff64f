"""Claims: one holder at a time, by epochs of exclusive create. The lease and the operation lock are claims.

```
<prefix>/0000000007.json         who holds epoch 7; created exclusively, so of many racers one wins
<prefix>/0000000007.beat.json    its heartbeat; the only file that is ever replaced, and only by its holder
<prefix>/0000000007.end.json     how it ended: released by its holder, or broken by somebody
```

Old epochs may be pruned (records.py): an epoch whose own record is gone is over.

How a holder is judged:

* It ended, or its last beat says so: the claim is free.
* Same boot and pid namespace as the observer: it lives while any of its processes exists, stopped ones
  included. The observer's own process is none of them once it has let go of the claim (by its token), and
  could not record that: it goes on for weeks where it is a service.
* Anywhere else: by its beat. A beat that moved under the observer's eyes lives; one that stood still for the
  TTL, on the *observer's* monotonic clock, is dead; before either is seen it is unknown. No two clocks are
  ever compared.
* A record that cannot be read: unknown, until a person breaks it.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from streambank.control.place import MOVED
from streambank.control.processes import HostId, ProcessId, person, this_host
from streambank.control.records import JsonDict, RecordStream, decode_json
from streambank.core.errors import (
    ConflictError,
    FormatError,
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.core.shape import HIDDEN, decode, encode
from streambank.core.units import from_json_time, to_json_time, utc_now
from streambank.storage.store import Store, read_record

DEFAULT_BEAT_S = 1.0
DEFAULT_TTL_S = 30.0
_FADING_S = 5.0
"""How long to wait for the rest of a holder's processes: Python ends 1.5 s after its JVM was killed."""

State = Literal["live", "dead", "unknown", "ended"]
_LET_GO: set[str] = set()
"""The tokens of claims that this process has let go of without a record of it. A child after a fork has
another process id, by which it never asks."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as a judge needs it; tests bring their own.

    Attributes:
        monotonic: Seconds on a clock that never jumps.
    """

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Holder:
    """Who claims.

    Attributes:
        processes: It lives while any of these does.
        details: What else the record says (`purpose`, `by`, `launch_id`, ...).
        beat_s: How often it promises to beat.
        ttl_s: How long its beat must stand still before anybody may call it dead from elsewhere.
    """

    host: Annotated[HostId, HIDDEN]
    processes: tuple[ProcessId, ...]
    details: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict)
    beat_s: float = DEFAULT_BEAT_S
    ttl_s: float = DEFAULT_TTL_S

    def to_dict(self) -> JsonDict:
        return {**self.details, **self.host.to_dict(), **encode(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Holder:
        """From a record.

        Raises:
            FormatError: Something is missing or of another kind (code `damaged-record`).
        """
        known = {"host", "boot_id", "pid_namespace", "processes", "beat_s", "ttl_s"}
        details = {name: value for name, value in data.items() if name not in known}
        must = {"beat_s": None, "ttl_s": None}  # a new holder has defaults for them
        said = {**must, **data, "host": dict(data), "details": details}
        return decode(cls, said, "record of a holder")


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A claim as one observer sees it now.

    Attributes:
        state: `live`, `dead`, `unknown` (not yet judged, or unreadable) or `ended`.
        why: What the state rests on, as half a sentence.
        holder: Who holds or held it; None where the record cannot be read.
        since: When it was claimed, by the holder's clock.
        beat: The last beat: `{"beat": n, "at": ..., "status": {...}}`, empty before the first.
        fading: Some of its processes are gone and some are not: a driver whose JVM was killed takes a moment
            to end.
        frozen: Which of its processes live and are stopped (SIGSTOP), as half a sentence; empty for none, and
            where its processes cannot be seen from here.
    """

    epoch: int
    state: State
    why: str
    holder: Holder | None
    since: datetime | None
    beat: Mapping[str, Any]
    end: Mapping[str, Any]
    fading: bool = False
    frozen: str = ""

    @property
    def launch_id(self) -> str | None:
        """The launch of the driver that holds or held it; None for an operation, or where nothing tells."""
        said = None if self.holder is None else self.holder.details.get("launch_id")
        return None if said is None else str(said)

    @property
    def is_driver(self) -> bool:
        """Whether a driver holds or held it, and not an operation such as a restore."""
        return self.holder is not None and self.holder.details.get("purpose") == "run"

    @property
    def free(self) -> bool:
        """Whether the next epoch may be claimed."""
        return self.state in ("ended", "dead")

    @property
    def status(self) -> Mapping[str, Any]:
        """What the holder last said about itself."""
        status = self.beat.get("status")
        return status if isinstance(status, dict) else {}

    @property
    def beat_at(self) -> datetime | None:
        """When it last beat, by the holder's clock: for people, never for judging."""
        try:
            return from_json_time(str(self.beat["at"]))
        except (KeyError, ValueError):
            return None

    def describe(self) -> str:
        """Who holds it, where, since when: `process 12 (python) and 11 (jvm) on host a since 2026-...`."""
        if self.holder is None:
            return f"an unreadable record of epoch {self.epoch}"
        pids = " and ".join(f"{process.pid} ({process.role})" for process in self.holder.processes) or "none"
        since = f" since {to_json_time(self.since)}" if self.since else ""
        return f"process {pids} on host {self.holder.host.host}{since}"


class Claims:
    """The claim under one prefix: look at it, claim it, break it.

    Keep one object for as long as you watch: it remembers since when a beat has been standing still.
    """

    def __init__(
        self, store: Store, prefix: str, *, here: HostId | None = None, clock: Clock | None = None
    ) -> None:
        self.records = RecordStream(store, prefix)
        self.here = here or this_host()
        self.clock = clock or Clock()
        self._watched: tuple[int, bytes] | None = None
        self._still_since = 0.0
        self._moved = False

    def view(self) -> ClaimView | None:
        """The newest epoch, judged; None while nobody ever claimed."""
        numbers = self.records.numbers()
        if not numbers:
            return None
        epoch = numbers[-1]
        beat_bytes = self._companion(epoch, ".beat")
        beat = _or_empty(beat_bytes)
        end_bytes = self._companion(epoch, ".end")
        holder, since, token, unreadable = self._holder(epoch)
        if end_bytes is not None or "how" in beat:  # by its last beat, where a full disk took no other file
            end = _or_empty(end_bytes) if end_bytes is not None else beat
            return ClaimView(epoch, "ended", _how_it_ended(end), holder, since, beat, end)
        if holder is None:
            return ClaimView(epoch, "unknown", unreadable, None, None, beat, {})
        if self.here.sees(holder.host):
            state, why, fading = _look(holder, token in _LET_GO)
            return ClaimView(epoch, state, why, holder, since, beat, {}, fading, _frozen(holder))
        state, why = self._judge(epoch, holder, beat_bytes or b"")
        return ClaimView(epoch, state, why, holder, since, beat, {})

    def _companion(self, epoch: int, suffix: str) -> bytes | None:
        try:
            return read_record(self.records.store, self.records.key(epoch, suffix))
        except NotFoundError:
            return None

    def _holder(self, epoch: int) -> tuple[Holder | None, datetime | None, str, str]:
        try:
            data = self.records.read(epoch)
            at, token = str(data.pop("at")), str(data.pop("token", ""))
            return Holder.from_dict(data), from_json_time(at), token, ""
        except (FormatError, KeyError, ValueError) as error:
            return None, None, "", f"its record cannot be read ({error})"

    def _judge(self, epoch: int, holder: Holder, beat: bytes) -> tuple[State, str]:
        now = self.clock.monotonic()
        if self._watched is None or self._watched != (epoch, beat):
            self._moved = self._watched is not None and self._watched[0] == epoch
            self._watched = (epoch, beat)
            self._still_since = now
        still_s = now - self._still_since
        if still_s >= holder.ttl_s:
            return "dead", f"its heartbeat stood still for {still_s:.0f} s"
        if self._moved:
            return "live", "its heartbeat moves"
        return "unknown", f"its heartbeat has been watched for {still_s:.0f} s of {holder.ttl_s:.0f} s"

    def settle(self, timeout_s: float | None = None) -> ClaimView | None:
        """Look until the holder is judged: for its TTL where it is elsewhere, for a moment where it fades.

        Args:
            timeout_s: Give up on a holder elsewhere after this long; None for its TTL and a little more.
        """
        started = self.clock.monotonic()
        while True:
            view = self.view()
            if view is None or view.holder is None:
                return view
            if view.state == "unknown":
                limit_s = view.holder.ttl_s * 1.5 + 5 if timeout_s is None else timeout_s
            else:
                limit_s = _FADING_S if view.fading else 0.0
            if self.clock.monotonic() - started >= limit_s:
                return view
            self.clock.sleep(min(0.5, view.holder.ttl_s / 10))

    def claim(self, holder: Holder) -> Claim | ClaimView:
        """Claim the next epoch where that is allowed, else say who holds it.

        Returns:
            The claim, or the view of the one that is in the way. Of many callers at once, in any number of
            processes and hosts, one gets the claim.

        Raises:
            ConflictError: The records were moved to another place since they were opened (code
                `records-moved`).
        """
        while True:
            view = self.settle()
            if view is not None and not view.free:
                return view
            epoch = view.epoch + 1 if view else 1
            token = uuid.uuid4().hex
            data = {"at": to_json_time(utc_now()), "token": token, **holder.to_dict()}
            if view is not None and view.state == "dead":
                data["replaces"] = {"epoch": view.epoch, "why": view.why}
            claim = Claim(self.records, epoch, holder, self.clock, token)
            try:
                # Who was refused may have met its own record: a write was repeated whose answer was lost.
                if self.records.create(epoch, data) or claim.is_there():
                    if self.records.store.exists(MOVED):
                        raise moved_meanwhile(self.records.store)
                    return claim
            except BaseException:
                claim.withdraw()
                raise

    def end(self, epoch: int, how: str, **details: Any) -> bool:
        """Record that an epoch is over; False where that is recorded already."""
        return self.records.create(
            epoch, {"at": to_json_time(utc_now()), "how": how, **details}, suffix=".end"
        )


class Claim:
    """A claim that is held. Beat it, ask whether it still is ours, release it.

    Attributes:
        token: What tells it from all others, in its record: of two racers in a process, both may ask for one
            epoch in one millisecond, and one gets it.
        cramped: Why the last beat had to be written in the place of the one before; None where it had not.
    """

    def __init__(self, records: RecordStream, epoch: int, holder: Holder, clock: Clock, token: str) -> None:
        self.records = records
        self.epoch = epoch
        self.holder = holder
        self.token = token
        self._clock = clock
        self.cramped: str | None = None
        self._beats = 0
        self._confirmed = clock.monotonic()

    def held(self) -> bool:
        """Whether it still is ours: no higher epoch is there, and nobody has ended this one.

        Our own record is looked for last: a higher epoch that is gone was pruned, and ours before it.
        """
        exists = self.records.store.exists
        return (
            not exists(self.records.key(self.epoch + 1))
            and not exists(self.records.key(self.epoch, ".end"))
            and exists(self.records.key(self.epoch))
        )

    def beat(self, status: Mapping[str, Any] | None = None) -> bool:
        """Say that we live, and what about ourselves; then look whether the claim still is ours.

        Returns:
            False where it was lost. A holder that reads False must stop at once.
        """
        started = self._clock.monotonic()
        self._beats += 1
        try:
            self.cramped = self._write_beat(dict(status or {}))
        except StorageError:
            # Nothing is known of others by that: whoever holds the claim by now is looked for all the same.
            with suppress(StorageError):
                if not self.held():
                    return False
            raise
        if not self.held():
            return False
        self._confirmed = started
        return True

    def _write_beat(self, status: JsonDict) -> str | None:
        """Write the heartbeat; why it went into the place of the last one, None where it did not.

        A beat that others see keeps the claim by the same rules, however it was written.
        """
        data = {"beat": self._beats, "at": to_json_time(utc_now())}
        return self.records.replace(
            self.epoch, {**data, "status": status}, suffix=".beat", shorter={**data, "status": {}}
        )

    def overdue_s(self) -> float:
        """Seconds since the last confirmed beat, less the TTL: above 0 others may take over.

        A holder whose beats fail (a store that cannot be reached) must stop before this gets above 0.
        """
        return self._clock.monotonic() - self._confirmed - self.holder.ttl_s

    def check(self) -> None:
        """Make sure that it is ours, before a step that cannot be taken back.

        Raises:
            ConflictError: It was lost (code `claim-lost`).
        """
        if not self.held():
            raise ConflictError(
                f"This process no longer holds epoch {self.epoch} of "
                f"{self.records.store.uri}/{self.records.prefix}.",
                code="claim-lost",
                hint="It was broken, or taken over while this process was suspended; look at the job's "
                "status.",
            )

    def release(self, how: str = "released", **details: Any) -> bool:
        """End it; False where somebody ended it before. For this process it is over, also where that fails.

        On a disk without any room left, the heartbeat says how, in its place, and gets the second name: that
        takes none. Before the first one it is the record of the claim, which cannot say how.
        """
        _LET_GO.add(self.token)
        ended = self._end({"at": to_json_time(utc_now()), "how": how, **details})
        _LET_GO.discard(self.token)
        return ended

    def is_there(self) -> bool:
        """Whether the record of its epoch is its own."""
        try:
            return self.records.read(self.epoch).get("token") == self.token
        except (NotFoundError, FormatError):
            return False

    def withdraw(self) -> None:
        """Give back what nobody was told to hold: the record may be there, or come, after a failed write."""
        _LET_GO.add(self.token)
        with suppress(StreambankError):
            if self.is_there():
                self.release()
                return
        self.release_later()

    def release_later(self) -> None:
        """Try to release it in the background, once in a while, as long as this process lives and holds it.

        For others on its host, this process would be the holder. Of one whose record is not there the TTL is
        waited for: no write takes longer on its way.
        """
        name = f"end-{self.records.prefix} of {self.records.store.uri}"
        threading.Thread(target=self._release_at_last, name=name, daemon=True).start()

    def _release_at_last(self) -> None:
        began = time.monotonic()
        while True:
            time.sleep(self.holder.beat_s)
            # Whatever fails must not end this.
            with suppress(Exception):
                if self.is_there():
                    if not self.held() or self.release():
                        return
                elif time.monotonic() - began >= self.holder.ttl_s:
                    return

    def _end(self, data: JsonDict) -> bool:
        try:
            return self.records.create(self.epoch, data, suffix=".end")
        except StorageError as error:
            if error.code != "disk-full":
                raise
            store, key = self.records.store, self.records.key(self.epoch)
            with suppress(NotFoundError, StorageError):
                beat = self.records.key(self.epoch, ".beat")
                last = _or_empty(read_record(store, beat))
                self.records.replace(self.epoch, {**last, **data}, suffix=".beat", shorter=data)
                key = beat
            try:
                if not store.link_from(store, key, self.records.key(self.epoch, ".end")):
                    raise
            except ConflictError:
                return False
            return True


class JobClaim(ABC):
    """What one at a time has of a job: the lease, or the operation lock."""

    prefix: ClassVar[str]

    def __init__(
        self, store: Store, job: str, *, here: HostId | None = None, clock: Clock | None = None
    ) -> None:
        self.job = job
        self.claims = Claims(store, self.prefix, here=here, clock=clock)

    def view(self) -> ClaimView | None:
        """Who holds it, at a glance; None where nobody ever did. One elsewhere is at first `unknown`."""
        return self.claims.view()

    def break_off(self, *, by: Mapping[str, str], why: str, even_live: bool = False) -> ClaimView | None:
        """End the claim of a holder that is known to be dead; what was broken, None where nothing was held.

        Args:
            even_live: Also where the holder lives. A driver then kills itself at its next beat, abandoning
                its batch; an operation finds out at its next check.

        Raises:
            RefusedError: The holder lives, and `even_live` was not given (codes `lease-held`,
                `operation-live`).
        """
        view = self.view()
        if view is None or view.state == "ended":
            return None
        if view.state == "live" and not even_live:
            raise self.refusal(view)
        self.claims.end(view.epoch, "broken", by=dict(by), why=why)
        return view

    @abstractmethod
    def refusal(self, view: ClaimView) -> RefusedError:
        """The error that says who holds it, since when, and what can be done."""


def _how_it_ended(end: JsonDict) -> str:
    """What became of the holder, as half a sentence."""
    why = f": {end['why']}" if end.get("why") else ""
    if "how" not in end and "processes" in end:
        return "its holder gave it back, on a disk without room for a word"
    if end.get("how") == "released":
        code = f" with exit code {end['exit_code']}" if "exit_code" in end else ""
        return f"its holder ended{code} and gave it back"
    if end.get("how") == "died":
        return f"its holder died{why}"
    by = end.get("by")
    who = f" by {person(by)}" if isinstance(by, Mapping) and by else ""
    return f"it was taken from its holder{who}{why}"


def _look(holder: Holder, let_go: bool) -> tuple[State, str, bool]:
    """State, why, and whether it is fading, of a holder whose processes can be seen from here."""
    living = [process for process in holder.processes if process.is_living()]
    if let_go and (others := [one for one in living if one.pid != os.getpid()]) != living:
        if not others:
            return "dead", "this process has let go of it, and could not record that", False
        living = others
    if not living:
        return "dead", "none of its processes exists any more", False
    why = " and ".join(f"{one.role} {one.pid}" for one in living) + (" exist" if living[1:] else " exists")
    return "live", why, len(living) < len(holder.processes)


def _frozen(holder: Holder) -> str:
    frozen = [f"{process.role} {process.pid}" for process in holder.processes if process.is_frozen()]
    return f"{' and '.join(frozen)} {'are' if frozen[1:] else 'is'} stopped by a signal" if frozen else ""


def moved_meanwhile(store: Store) -> ConflictError:
    """The error for who still has records open that were moved."""
    return ConflictError(
        f"The records at {store.uri} were moved to another place since they were opened.",
        code="records-moved",
        hint="Try again: they are found where they are now.",
    )


def _or_empty(data: bytes | None) -> JsonDict:
    """A beat or an end that is half-written still counts as there; what it says does not."""
    if data is None:
        return {}
    try:
        return decode_json(data, "beat")
    except FormatError:
        return {}
