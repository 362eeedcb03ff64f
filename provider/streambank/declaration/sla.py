"""What a job promises: the objectives of `[jobs.NAME.sla]`, with the limits that hold where it says nothing.

Which there are is in `streambank.declaration.objectives`, how they are judged in `streambank.sla`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from streambank.core.choices import Severity
from streambank.core.errors import InputError
from streambank.core.json_text import is_whole_number
from streambank.core.units import parse_bytes
from streambank.core.zones import UTC_NAME
from streambank.declaration.fields import Fields
from streambank.declaration.notify import Notify, read_notify
from streambank.declaration.objectives import HOUR_S, PROMISES, Promise, Statistic, Unit
from streambank.declaration.policy import read_policy
from streambank.declaration.savepoints import SavepointPolicy
from streambank.declaration.schedules import longest_gap_s

MIN_HISTORY_S = HOUR_S
"""How much history a trend needs, where it is not declared."""
SCHEDULE = "*/10 * * * *"
"""When `<job>.sla` judges where nothing is declared: each job at minutes of its own."""
NEVER = "never"
"""The schedule that switches that off."""
SAVEPOINTS_MISSED = 3
"""By default a savepoint may be as old as so many runs of the job's savepoint schedule are apart."""
DELTAS_MISSED = 100
"""By default a snapshot may be late by so many times `minDeltasForSnapshot`."""
DEFAULT_MIN_DELTAS = 10
MIN_DELTAS = "spark.sql.streaming.stateStore.minDeltasForSnapshot"


COPY_AGE = "copy_age"
"""The objective that only a job with copies can keep."""


@dataclass(frozen=True, slots=True)
class Mute:
    """Verdicts are still there, and nobody is told."""

    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Declared:
    """What a job says of one objective; None where it leaves that to `PROMISES`.

    Attributes:
        warn: From where on it warns, in the objective's unit.
    """

    off: bool = False
    warn: float | None = None
    breach: float | None = None
    window_s: float | None = None
    statistic: Statistic | None = None
    severity: Severity | None = None
    min_history_s: float | None = None
    mute: Mute | None = None


@dataclass(frozen=True, slots=True)
class SlaPolicy:
    """`[jobs.NAME.sla]`.

    Attributes:
        schedule: When `<job>.sla` judges: a cron expression or preset; None for by hand only.
        usual: Breaches of this job where nothing is declared, by objective: they follow from what else it
            declares, such as its savepoint schedule.
        spread: Whether jobs judge at minutes of their own: where no schedule is declared.
    """

    objectives: Mapping[str, Declared] = field(default_factory=dict)
    mute: Mute | None = None
    schedule: str | None = SCHEDULE
    notify: tuple[Notify, ...] = ()
    usual: Mapping[str, float] = field(default_factory=dict)
    spread: bool = True


def read_sla(fields: Fields, time_zone: str | None) -> SlaPolicy:
    """The table, each limit in its objective's unit.

    Args:
        time_zone: That of the job, by which the end of a mute is that says none; None where it has none.

    Raises:
        InputError: A field is not known or cannot be right (code `bad-declaration`).
    """
    mute, notify = _mute(fields, time_zone), read_notify(fields)
    never = fields.data.get("schedule") == NEVER
    if notify and never:
        raise fields.mistake("notify", "it would never be sent: the schedule is never", "Drop one of them.")
    schedule = fields.text("schedule") if never else fields.schedule("schedule")
    objectives: dict[str, Declared] = {}
    for name, promise in PROMISES.items():
        table = fields.table_or_false(name)
        if table is None:
            objectives[name] = Declared(off=True)
        elif table.data:
            objectives[name] = _declared(table, promise, time_zone)
    fields.done()
    return SlaPolicy(
        objectives, mute, None if never else schedule or SCHEDULE, notify, spread=schedule is None
    )


def with_usual(
    policy: SlaPolicy, savepoint: SavepointPolicy, conf: Mapping[str, str], time_zone: str = UTC_NAME
) -> SlaPolicy:
    """A policy with the usual limits that follow from what else a job declares."""
    usual: dict[str, float] = {}
    gap_s = None
    if savepoint.schedule is not None:
        gap_s = longest_gap_s(savepoint.schedule, savepoint.blackout, savepoint.time_zone, time_zone)
    if gap_s is not None:
        usual["savepoint_age"] = SAVEPOINTS_MISSED * gap_s
    deltas = conf.get(MIN_DELTAS, "")
    if is_whole_number(deltas):
        usual["snapshot_age"] = float(DELTAS_MISSED * max(DEFAULT_MIN_DELTAS, int(deltas)))
    return replace(policy, usual=usual)


def without_copies(policy: SlaPolicy, fields: Fields) -> SlaPolicy:
    """The policy of a job that declares no copies: what the defaults say of the age of copies is not for it.

    Raises:
        InputError: The job itself promises an age of its copies (code `bad-declaration`).
    """
    found = policy.objectives.get(COPY_AGE)
    if found is None or found.off:
        return policy
    if fields.source.has((*fields.path, COPY_AGE)):
        raise fields.mistake(
            COPY_AGE,
            "the job declares no copies, so their age would never be known",
            "Declare a copy, or leave the objective out.",
        )
    return without_copy_age(policy)


def without_copy_age(policy: SlaPolicy) -> SlaPolicy:
    """The policy of a job that has no copies."""
    others = {name: one for name, one in policy.objectives.items() if name != COPY_AGE}
    return replace(policy, objectives=others)


def _declared(table: Fields, promise: Promise, time_zone: str | None) -> Declared:
    read = _READERS[promise.unit]
    given: dict[str, Any] = {"off": False, "mute": _mute(table, time_zone)}
    given |= {limit: read(table, limit) for limit in ("warn", "breach")}
    # What an objective has not is no field of its table.
    trend = promise.kind == "trend" or None
    has = {"window_s": promise.window_s, "statistic": promise.statistic, "min_history_s": trend}
    given |= {name: None for name, one in has.items() if one is None}
    found = read_policy(table, Declared, **given)
    _check_sides(table, found, promise)
    return found


def _check_sides(table: Fields, found: Declared, promise: Promise) -> None:
    """A warning has to come before the breach; a breach alone may well be before the usual warning."""
    breach = promise.breach if found.breach is None else found.breach
    if found.warn is None or breach is None or not promise.exceeds(found.warn, breach):
        return
    usual = " by default" if found.breach is None else ""
    raise table.mistake(
        "warn",
        f"it is beyond the breach limit, which is {breach:g} {promise.unit}{usual}",
        f"Set warn {'above' if promise.below else 'below'} breach, or change breach.",
    )


def _mute(fields: Fields, time_zone: str | None) -> Mute | None:
    """`mute = {until = 2026-12-01T00:00:00Z, why = "..."}`: both are needed."""
    table = fields.table("mute")
    if not table.data:
        return None
    until = table.required("until", table.moment("until", time_zone))
    why = table.required("why", table.text("why"))
    table.done()
    return Mute(until, why)


def _parse_growth(text: str) -> int:
    if not text.endswith("/h"):
        raise InputError(
            f"{text!r} is not a growth per hour.", code="bad-size", hint='Write one such as "1MB/h".'
        )
    return parse_bytes(text[:-2])


def _milliseconds(table: Fields, name: str) -> float | None:
    seconds = table.duration_s(name)
    return None if seconds is None else seconds * 1000


def _number(table: Fields, name: str) -> float | None:
    return table.number(name, minimum=0)


_READERS: Mapping[Unit, Callable[[Fields, str], float | None]] = {
    "bytes": lambda table, name: table.parsed(name, 'a size such as "10GB"', parse_bytes),
    "bytes/h": lambda table, name: table.parsed(name, 'a growth such as "1MB/h"', _parse_growth),
    "s": Fields.duration_s,
    "ms": _milliseconds,
    "rows": _number,
    "rows/h": _number,
    "batches": _number,
    "count": _number,
    "ratio": _number,
}
