"""What an upgrade remembers: a record in `upgrades/` at each of its steps, the last of which is its report.

An upgrade that was interrupted is finished by the next one, by these records. They are signed, since they say
which code runs and which savepoint is restored, and lie where others of the machine may not read, since code
has arguments and settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from streambank.code.chosen import INTERRUPTED, UPGRADES
from streambank.code.code import Code
from streambank.control.claims import Claim, Claims, Holder
from streambank.control.control import JobControl
from streambank.control.keepalive import kept_alive
from streambank.control.processes import this_process
from streambank.control.records import JsonDict, Record
from streambank.core.errors import ConflictError, NotFoundError
from streambank.core.shape import HIDDEN, MILLIS, encode
from streambank.core.units import utc_now
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
_RECORD_ONLY = frozenset({"committed_at", "broken_before", "for_good", "at"})
"""What is in the record and not in the report."""
_MUST_SAY = dict.fromkeys(("changes", "broken_before", "started_at", "at"), "")
"""What a record must say, although a new upgrade has a default for it: of none of them this is a value."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade that is under way or was interrupted, or its report.

    Attributes:
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
        without_processing_s: From the last commit of the old code to the first of the new, at most of all
            queries; None where the new code has committed nothing yet.
        code: The code of the error by which it failed; None where it did not.
        hint: What to do about it; only where it has failed.
        warm: Whether the new driver was waiting when the old one was stopped.
        resumed: Whether it was interrupted, and finished by another call.
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
    steps: Annotated[Mapping[str, float], MILLIS] = field(default_factory=dict)
    without_processing_s: float | None = None
    code: str | None = None
    error: str = ""
    hint: Annotated[str, HIDDEN] = ""
    notes: tuple[str, ...] = ()
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    started_at: datetime = field(default_factory=utc_now)
    seconds: Annotated[float, MILLIS] = 0.0
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
        data = {name: value for name, value in self.to_record().items() if name not in _RECORD_ONLY}
        before = None if self.before is None else _place(self.before)
        return data | {"before": before, "after": _place(self.after)}

    def to_record(self) -> JsonDict:
        """As its record carries it."""
        return encode(self)

    @classmethod
    def of(cls, record: Record) -> Upgrade:
        """That of a record.

        Raises:
            FormatError: Something is missing or of another kind (code `damaged-record`).
        """
        hint = "It was cut off or edited. Once you know what it should say, move it away."
        return record.decode(cls, lacking=_MUST_SAY, hint=hint)


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
    record = control.signed(UPGRADES).latest()
    return None if record is None else Upgrade.of(record)


def upgrades_of(control: JobControl) -> Iterator[Upgrade]:
    """The upgrades of a job, newest first, each as its newest record has it; none that nobody vouches for."""
    seen: set[str] = set()
    for record in control.signed(UPGRADES).newest_first(vouched=True):
        found = Upgrade.of(record)
        if found.name not in seen:
            seen.add(found.name)
            yield found


def upgrade_named(control: JobControl, name: str) -> Upgrade:
    """An upgrade as its newest record has it.

    Raises:
        NotFoundError: There is none of that name, or nobody vouches for it (code `no-upgrade`).
    """
    newest = newest_upgrade(control)
    if newest is not None and newest.name == name:
        return newest
    for upgrade in upgrades_of(control):
        if upgrade.name == name:
            return upgrade
    raise NotFoundError(
        f"Job {control.name} has no upgrade {name}.",
        code="no-upgrade",
        hint=f"`streambank upgrade {control.name} --history` shows its upgrades.",
    )


def remember(control: JobControl, upgrade: Upgrade, **changes: Any) -> Upgrade:
    """Record how far an upgrade has come."""
    changed = replace(upgrade, at=utc_now(), **changes)
    close_directory(f"{control.store.uri}/{UPGRADES}", 0o770)
    control.signed(UPGRADES).append(changed.to_record())
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
    with kept_alive(got):
        yield got
