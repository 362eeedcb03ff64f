"""What an upgrade remembers: a record in `upgrades/` at each of its steps, the last of which is its report.

An upgrade that was interrupted is finished by the next one, by these records. They are signed, since they say
which code runs and which savepoint is restored, and lie where others of the machine may not read, since code
has arguments and settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from types import NoneType
from typing import Any, Literal, get_args

from streambank.code.chosen import INTERRUPTED, UPGRADES, upgrade_records
from streambank.code.code import Code
from streambank.control.claims import Claim, Claims, Holder
from streambank.control.control import JobControl
from streambank.control.keepalive import Keeper
from streambank.control.processes import this_process
from streambank.control.records import JsonDict
from streambank.core.errors import ConflictError, FormatError
from streambank.core.units import from_json_time, to_json_time, utc_now
from streambank.driver.spec import HOLDER
from streambank.procedure.rows import NOTE, Rows, said_s, step_rows, titled
from streambank.storage.local.modes import close_directory

State = Literal[
    "planned",
    "nothing-to-do",
    "rehearsing",
    "refused",
    "stopping",
    "swapped",
    "undoing",
    "restored",
    "upgraded",
    "undone",
    "not-undone",
    "stopped",
    "given-up",
]
DONE: frozenset[State] = frozenset({"planned", "nothing-to-do", "upgraded"})
"""States of an upgrade that did what it was asked for."""
_RECORD_ONLY = frozenset({"before", "after", "started_at", "committed_at", "broken_before", "for_good", "at"})
"""What is in the record and not in the report, or otherwise there."""
_NUMBER = (int, float)
_OF: Mapping[str, type | tuple[type, ...]] = {
    "savepoints": str,
    "batches": int,
    "committed_at": _NUMBER,
    "steps": _NUMBER,
    "by": str,
}
"""Mappings of a record, and what is in them."""
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("name", "job", "no_way_back", "error", "why"), str),
    **dict.fromkeys(("how", "launch_id", "code"), (str, NoneType)),
    **dict.fromkeys(("for_good", "warm", "resumed"), bool),
    **dict.fromkeys(_OF, dict),
    "rehearsal": (dict, NoneType),
    "without_processing_s": (*_NUMBER, NoneType),
    "seconds": _NUMBER,
}
"""What else a record has, as it is there."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade that is under way or was interrupted, or its report.

    Attributes:
        name: Its name, which no other has.
        state: `planned` and `nothing-to-do` (nothing was touched); `rehearsing`, `stopping`, `swapped`,
            `undoing`, `restored` (under way, or interrupted; at `restored` the old code is chosen); `refused`
            (the new code was not started, and the old code runs on); `upgraded`; `undone` (the old code runs
            again); `not-undone` (a person has to decide); `stopped` (a person stopped the job meanwhile, so
            the new code was not watched to the end); `given-up` (other code is asked for, or was started).
        before: The code that ran; None where an older version of Streambank launched it.
        no_way_back: Why the upgrade could not be undone by itself; empty where it could.
        for_good: Whether that stays so, although the old program may be there again.
        rehearsal: The report of the rehearsal, as that of a drill; None where there was none.
        savepoints: The savepoint of each query at which the old code was stopped.
        batches: The last batch that the old code committed, of each query.
        how: How the old driver ended (job/stop.py).
        committed_at: When it committed the last of them.
        broken_before: Objectives that were broken before the stop, each as query and objective; None where
            they could not be read.
        launch_id: The launch of the new code.
        steps: Seconds of each step.
        without_processing_s: From the last commit of the old code to the first of the new, at most of all
            queries; None where the new code has committed nothing yet.
        code: The code of the error by which it failed; None where it did not.
        error: Why it failed or was undone, in a sentence.
        notes: What else a person should know of it.
        started_at: When it began.
        warm: Whether the new driver was waiting when the old one was stopped.
        resumed: Whether it was interrupted, and finished by another call.
        at: When this was recorded.
    """

    name: str
    job: str
    state: State
    before: Code | None
    after: Code
    changes: tuple[str, ...] = ()
    no_way_back: str = ""
    for_good: bool = False
    rehearsal: Mapping[str, Any] | None = None
    savepoints: Mapping[str, str] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    how: str | None = None
    committed_at: Mapping[str, float] = field(default_factory=dict)
    broken_before: tuple[tuple[str, str], ...] | None = ()
    launch_id: str | None = None
    steps: Mapping[str, float] = field(default_factory=dict)
    without_processing_s: float | None = None
    code: str | None = None
    error: str = ""
    notes: tuple[str, ...] = ()
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    started_at: datetime = field(default_factory=utc_now)
    seconds: float = 0.0
    warm: bool = False
    resumed: bool = False
    at: datetime = field(default_factory=utc_now)

    @property
    def is_unfinished(self) -> bool:
        """Whether it was interrupted, or is under way."""
        return self.state in INTERRUPTED

    @property
    def succeeded(self) -> bool:
        """Whether what was asked for is done."""
        return self.state in DONE

    @property
    def differences(self) -> list[str]:
        """In what the new code computed something else than the old one, in the rehearsal."""
        return self._of_rehearsal("differences")

    def _of_rehearsal(self, name: str) -> list[str]:
        queries = (self.rehearsal or {}).get("queries", [])
        return [str(text) for query in queries for text in query.get(name, [])]

    def rows(self) -> Rows:
        """What people read of it, beside its state."""
        return [
            *titled("why", [self.error]),
            *titled(NOTE, self.notes),
            *titled("changes", self.changes),
            *titled("no way back", [self.no_way_back]),
            *titled("differs", self.differences),
            *titled("not compared", self._of_rehearsal("not_compared")),
            *((f"savepoint of {query}", savepoint) for query, savepoint in self.savepoints.items()),
            *titled("without processing", [said_s(self.without_processing_s, "")]),
            *step_rows(self.steps),
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON for people and programs: of the codes only where they are, and their digests."""
        names = [one.name for one in fields(self) if one.name not in _RECORD_ONLY]
        data = {name: getattr(self, name) for name in names}
        return {
            **data,
            "changes": list(self.changes),
            "notes": list(self.notes),
            "before": None if self.before is None else _place(self.before),
            "after": _place(self.after),
            "steps": {name: round(seconds, 3) for name, seconds in self.steps.items()},
            "seconds": round(self.seconds, 3),
            "started_at": to_json_time(self.started_at),
        }

    def to_record(self) -> JsonDict:
        """As its record carries it."""
        return {
            **self.to_dict(),
            "before": None if self.before is None else self.before.to_dict(),
            "after": self.after.to_dict(),
            "committed_at": dict(self.committed_at),
            "broken_before": None
            if self.broken_before is None
            else [list(one) for one in self.broken_before],
            "for_good": self.for_good,
            "at": to_json_time(self.at),
        }

    @classmethod
    def from_record(cls, data: Mapping[str, Any]) -> Upgrade:
        """From a record.

        Raises:
            FormatError: Something is missing or of another kind (code `damaged-record`).
        """
        known = {one.name for one in fields(cls)}
        try:
            values = {name: value for name, value in data.items() if name in known}
            values["before"] = None if data["before"] is None else Code.from_dict(data["before"])
            values["after"] = Code.from_dict(data["after"])
            values["changes"] = tuple(map(str, data["changes"]))
            values["notes"] = tuple(map(str, data.get("notes", ())))
            if (broken := data["broken_before"]) is not None:
                values["broken_before"] = tuple((str(one), str(two)) for one, two in broken)
            values["started_at"] = from_json_time(str(data["started_at"]))
            values["at"] = from_json_time(str(data["at"]))
            if values["state"] not in get_args(State):
                raise ValueError(values["state"])
            for name in values.keys() & _KINDS.keys():
                inside = values[name].values() if name in _OF else ()
                if not isinstance(values[name], _KINDS[name]) or not all(
                    isinstance(one, _OF[name]) for one in inside
                ):
                    raise TypeError(name)
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(
                f"The record of an upgrade is incomplete: {error!r}.",
                code="damaged-record",
                hint="It was cut off or edited. Once you know what it should say, move it away.",
            ) from error


def _place(code: Code) -> dict[str, str | None]:
    return {
        "application": code.application,
        "program": code.program,
        "python": code.python,
        "spark_home": code.spark_home,
    }


def newest_upgrade(control: JobControl) -> Upgrade | None:
    """The newest upgrade of a job; None where there was none.

    Raises:
        FormatError: Its record is damaged (code `damaged-record`).
        IntegrityError: It is not signed, and has to be (codes `not-signed`, `bad-signature`).
    """
    record = upgrade_records(control).latest()
    return None if record is None else Upgrade.from_record(record.data)


def upgrades_of(control: JobControl) -> Iterator[Upgrade]:
    """The upgrades of a job, newest first, each as its newest record has it; none that nobody vouches for."""
    seen: set[str] = set()
    for record in upgrade_records(control).newest_first(vouched=True):
        found = Upgrade.from_record(record.data)
        if found.name not in seen:
            seen.add(found.name)
            yield found


def remember(control: JobControl, upgrade: Upgrade, **changes: Any) -> Upgrade:
    """Record how far an upgrade has come."""
    changed = replace(upgrade, at=utc_now(), **changes)
    close_directory(f"{control.store.uri}/{UPGRADES}", 0o770)
    upgrade_records(control).append(changed.to_record())
    return changed


@contextmanager
def upgrading(control: JobControl, by: Mapping[str, str]) -> Iterator[Claim]:
    """Be the one upgrade of a job that is under way.

    Raises:
        ConflictError: Another one is under way (code `upgrade-in-progress`).
    """
    claims = Claims(control.store, HOLDER, here=control.here, clock=control.clock)
    got = claims.claim(Holder(control.here, (this_process("upgrade"),), {"by": dict(by)}))
    if not isinstance(got, Claim):
        raise ConflictError(
            f"Job {control.name} is being upgraded: {got.describe()} ({got.why}).",
            code="upgrade-in-progress",
            hint="Wait until it has ended. One that died is taken over on its host at once, and from another "
            "host when its heartbeat has stopped for a while.",
        )
    keeper = Keeper(got).start()
    try:
        yield got
    finally:
        keeper.end()
