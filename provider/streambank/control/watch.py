"""Who keeps a job running, and when that watcher last gave a sign of life.

```
watch/0000000003.json          who watches: the newest number does, every earlier one has been replaced
watch/0000000003.beat.json     its last sign, and when the next one is due; replaced by its watcher only
watch/0000000003.end.json      how it ended: stopped, finished, replaced, gave-up, failed
watch/0000000003.idle.json     why it could not act although it gives signs: its DAG is paused
```

A watcher is not a driver: it starts another driver where one is gone, and starting is safe whoever does it.
So nothing here is a lock. Of two watchers the newer one acts: the older one finds a higher number, before it
acts and with each sign, and ends well. A sign is written once a minute at most, into one object.

`desired` in a sign is the number of the record in `desired/` that the watcher has seen. A job is expected to
be watched where a watcher has seen what is meant to be now. One that was only ever started by hand is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from streambank.control.records import JsonDict, RecordStream, decode_json, encode_json
from streambank.core.errors import FormatError, NotFoundError
from streambank.core.units import from_json_time, to_json_time, utc_now
from streambank.storage.store import Store, read_record

SIGN_EVERY_S = 60.0
"""How often a watcher gives a sign."""
LATE_S = 120.0
"""A sign that is overdue by so much is missing: two more could have come."""

WatchEnd = Literal["stopped", "finished", "replaced", "gave-up", "failed"]


@dataclass(frozen=True, slots=True)
class WatchView:
    """The newest watcher.

    Attributes:
        number: Its number.
        by: Who it is: for one in Airflow `dag_id`, `run_id`, `task_id`.
        since: When it began to watch.
        seen_at: Its last sign.
        next_s: So many seconds after that its next sign is due.
        doing: What it does meanwhile: `watching`, `pausing` before a start, `starting`.
        desired: The number of the record of what is meant to be that it has seen; None where there was none.
        end: How it ended: `how`, `why`, `at`; empty while it did not.
        idle: Why it could not start a driver although it gives signs, and `at`: since when; empty where it
            could.
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
    def who(self) -> str:
        """Its name for people: `run manual__2026-11-23 of flights.run`."""
        if self.by.get("dag_id"):
            return f"run {self.by.get('run_id', '?')} of {self.by['dag_id']}"
        return f"{self.by.get('user', 'somebody')} on {self.by.get('host', 'some host')}"


class Watches:
    """The watchers of one job.

    Args:
        store: The job's control store.
    """

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
        data = record.data
        try:
            since = from_json_time(str(data["at"]))
            sign = self._companion(record.number, ".beat")
            desired = sign.get("desired", data.get("desired"))
            return WatchView(
                record.number,
                data.get("by") or {},
                since,
                from_json_time(str(sign["at"])) if "at" in sign else since,
                float(sign.get("next_s") or data.get("next_s") or SIGN_EVERY_S),
                str(sign.get("doing", "watching")),
                int(desired) if desired is not None else None,
                self._companion(record.number, ".end"),
                idle if (idle := self._companion(record.number, ".idle")).get("why") else {},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"The record {self.records.describe(record.number)} cannot be read: {error!r}.",
                code="damaged-record",
                hint="Look at it, and move it away: the next watcher writes another one.",
            ) from error

    def begin(self, *, by: Mapping[str, str], desired: int | None, next_s: float = SIGN_EVERY_S) -> int:
        """Become the newest watcher; the number to give signs with.

        Args:
            by: Who watches.
            desired: The number of the record of what is meant to be.
            next_s: When the first sign is due.
        """
        at = to_json_time(utc_now())
        return self.records.append({"at": at, "by": dict(by), "desired": desired, "next_s": next_s})

    def sign(
        self,
        number: int,
        *,
        desired: int | None,
        next_s: float = SIGN_EVERY_S,
        doing: str = "watching",
    ) -> str | None:
        """Give a sign, and look whether somebody else watches by now.

        Args:
            number: What `begin` gave.
            desired: The number of the record of what is meant to be.
            next_s: When the next sign is due.
            doing: What is done until then.

        Returns:
            Who has taken over; None where nobody has.
        """
        other = self.replaced_by(number)
        if other is None:
            data = {"at": to_json_time(utc_now()), "next_s": next_s, "doing": doing, "desired": desired}
            self.records.store.write(self.records.key(number, ".beat"), encode_json(data))
        return other

    def replaced_by(self, number: int) -> str | None:
        """Who watches in place of a watcher; None where it still is the newest."""
        if max(self.records.numbers(), default=0) <= number:
            return None
        newest = self.view()
        return newest.who if newest is not None else None

    def end(self, number: int, how: WatchEnd, why: str = "") -> bool:
        """Record that a watcher is no more; False where that is recorded, or its own record is lost.

        Records that are begun again after a loss give its number to another watcher, which has not ended.
        """
        if number not in self.records.numbers():
            return False
        return self.records.create(
            number, {"at": to_json_time(utc_now()), "how": how, "why": why}, suffix=".end"
        )

    def note_idle(self, view: WatchView, why: str | None) -> None:
        """Leave behind that a watcher could not act, or (None) that it could; only a change is written.

        Args:
            view: The watcher, as it was seen.
            why: Why it could not, as half a sentence.
        """
        if (why or "") != str(view.idle.get("why") or ""):
            data = {"at": to_json_time(utc_now()), "why": why}
            self.records.store.write(self.records.key(view.number, ".idle"), encode_json(data))

    def _companion(self, number: int, suffix: str) -> JsonDict:
        try:
            return decode_json(read_record(self.records.store, self.records.key(number, suffix)), suffix)
        except NotFoundError:
            return {}
        except FormatError:
            return {"how": "unreadable"} if suffix == ".end" else {}
