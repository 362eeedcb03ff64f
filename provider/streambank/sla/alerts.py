"""Which verdicts are news: once when something breaks, once when it has healed, whoever judges how often.

`news` is pure: what was told goes in, what is to be told and what will have been told come out. Keep the
latter only after the telling has worked: a notifier that fails is tried again at the next judgement, so a
breach is told twice at worst, and never not at all.

What was told is kept among the job's records, `sla/told/<teller>/`, for each teller by itself (a notifier, a
mail, a page), so that one that fails neither keeps the others from telling nor makes them tell again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from streambank.control.control import JobControl
from streambank.control.records import RecordStream
from streambank.core.errors import ConflictError, FormatError
from streambank.core.names import check_name
from streambank.core.shape import JsonObject, decode
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.objectives import OF_JOB
from streambank.sla.verdict import LEVELS, Level, Verdict

FORMAT = 1
Key = tuple[str, str, str]
"""Job, query, objective."""


@dataclass(frozen=True, slots=True)
class Open(JsonObject):
    """Something that was told of and has not healed."""

    job: str
    query: str
    objective: str
    level: Literal["warn", "breach"]
    since: datetime
    told_at: datetime

    @property
    def key(self) -> Key:
        return self.job, self.query, self.objective


@dataclass(frozen=True, slots=True)
class OpenAlerts:
    """All that was told of and has not healed."""

    open: Mapping[Key, Open] = field(default_factory=dict)

    @classmethod
    def of(cls, *alerts: Open) -> OpenAlerts:
        return cls({one.key: one for one in alerts})

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, "open": [one.to_dict() for _, one in sorted(self.open.items())]}


@dataclass(frozen=True, slots=True)
class LevelChange(JsonObject):
    """One thing to tell.

    Attributes:
        kind: `broke`: it is told for the first time; `worse`: a warning has become a breach; `healed`.
        was: The level that was told before; None where none was.
    """

    kind: Literal["broke", "worse", "healed"]
    verdict: Verdict
    since: datetime
    was: Level | None


def news(
    verdicts: Iterable[Verdict], before: OpenAlerts, *, least: Level = "warn"
) -> tuple[tuple[LevelChange, ...], OpenAlerts]:
    """What to tell now, and what will have been told.

    Something heals when its verdict is `ok`. `unknown` heals nothing, nor does a breach that has become a
    warning: it stays open, and is not told again if it gets worse again. Muted verdicts are not told, and
    what was told before stays open, so that its healing is told when the mute has ended. What is not judged
    any more (a job, query or objective that is gone) is forgotten without a word. What is of the job as a
    whole is told once, not for each of its queries.

    Args:
        verdicts: All verdicts of now on everything that `before` is about.
        least: The least level that is told: `warn` or `breach`.
    """
    found: list[LevelChange] = []
    after: dict[Key, Open] = {}
    for verdict in verdicts:
        key = (verdict.job, verdict.query, verdict.objective)
        was = before.open.get(key)
        if verdict.mute is not None or verdict.level == "unknown":
            if was is not None:
                after[key] = was
            continue
        if LEVELS.index(verdict.level) >= LEVELS.index(least):
            level: Literal["warn", "breach"] = "breach" if verdict.level == "breach" else "warn"
            since = verdict.since or verdict.at if was is None else _begun(verdict, was)
            if was is None or LEVELS.index(level) > LEVELS.index(was.level):
                kind: Literal["broke", "worse"] = "broke" if was is None else "worse"
                found.append(LevelChange(kind, verdict, since, None if was is None else was.level))
                after[key] = Open(*key, level, since, verdict.at)
            else:
                after[key] = replace(was, since=since)
        elif was is not None:
            if verdict.level == "ok":
                found.append(LevelChange("healed", verdict, was.since, was.level))
            else:
                after[key] = was
    return tuple(_once_for_a_job(found)), OpenAlerts(after)


def _begun(verdict: Verdict, was: Open) -> datetime:
    """When it began: not before it was told, where nobody has judged the job while it was well in between."""
    return verdict.since if verdict.since is not None and verdict.since > was.told_at else was.since


def _once_for_a_job(found: Iterable[LevelChange]) -> Iterator[LevelChange]:
    seen: set[tuple[str, str, str]] = set()
    for one in found:
        same = (one.verdict.job, one.verdict.objective, one.kind)
        if one.verdict.objective in OF_JOB:
            if same in seen:
                continue
            seen.add(same)
        yield one


def without(after: OpenAlerts, before: OpenAlerts, untold: Iterable[LevelChange]) -> OpenAlerts:
    """What has been told where not all of the news could be: the rest stays news."""
    found = dict(after.open)
    for one in untold:
        key = (one.verdict.job, one.verdict.query, one.verdict.objective)
        was = before.open.get(key)
        if was is None:
            found.pop(key, None)
        else:
            found[key] = was
    return OpenAlerts(found)


def read_told(data: Any) -> OpenAlerts:
    """What `OpenAlerts.to_dict` gave.

    Raises:
        FormatError: It is something else, or of a later version (code `bad-told`).
    """
    told = decode(_Told, data, "record of SLA alerts", refuse=_bad_told)
    if told.format != FORMAT:
        raise _bad_told("record of SLA alerts", f"it has the format {told.format}")
    return OpenAlerts.of(*told.open)


@dataclass(frozen=True, slots=True)
class _Told:
    format: int
    open: tuple[Open, ...]


def _bad_told(what: str, why: str) -> FormatError:
    return FormatError(
        f"The {what} cannot be read: {why}.",
        code="bad-told",
        hint="Delete it. Everything that is broken is then reported once more.",
    )


def read(control: JobControl, teller: str) -> OpenAlerts:
    """What a teller, such as `mail`, has told and has not healed; nothing before its first time.

    Raises:
        InputError: That is no name (code `bad-name`).
        FormatError: The newest record is damaged (`damaged-record`), or of a later version (`bad-told`).
    """
    return _latest(_stream(control, teller))[1]


def keep(control: JobControl, teller: str, told: OpenAlerts, before: OpenAlerts) -> None:
    """Keep what has been told, after the telling has worked. Nothing is written where nothing changed.

    Raises:
        InputError: `teller` is no name (code `bad-name`).
        ConflictError: Another process has told under this name meanwhile (code `told-meanwhile`): judging
            again tells what is still to be told, and no more.
        FormatError: As `read`.
    """
    if told.to_dict() == before.to_dict():
        return
    records = _stream(control, teller)
    number, newest = _latest(records)
    same = newest.to_dict() == before.to_dict()
    if not same or not records.create(number + 1, {"at": to_json_time(utc_now()), **told.to_dict()}):
        raise ConflictError(
            f"Another process has meanwhile sent alerts on job {control.name} as {teller}.",
            code="told-meanwhile",
            hint="Judge again: only alerts that are not sent yet are then sent.",
        )


def _stream(control: JobControl, teller: str) -> RecordStream:
    return control.stream(f"sla/told/{check_name(teller, 'teller')}")


def _latest(records: RecordStream) -> tuple[int, OpenAlerts]:
    record = records.latest()
    return (0, OpenAlerts()) if record is None else (record.number, read_told(record.data))
