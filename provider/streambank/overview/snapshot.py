"""A snapshot of a job: its line and its parts, made where the job's storage can be reached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import NoneType
from typing import Any

from streambank.control.drills import last_drills
from streambank.core.errors import InputError
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.doctor.diagnose import diagnose_job
from streambank.job.history import job_history
from streambank.overview.charts import charts_part, sparkline, verdicts_part
from streambank.overview.line import (
    FORMAT,
    LINE,
    fitted_line,
    guarded,
    of_recoveries,
    of_repository,
    of_saved,
    of_status,
    of_verdicts,
)
from streambank.overview.log import log_part
from streambank.overview.look import Look
from streambank.overview.plain import digest_of, fitted
from streambank.overview.recoveries import recoveries_part
from streambank.overview.repository import repository_part
from streambank.overview.savepoints import newest_verified, savepoints_part

PARTS = (
    "status",
    "repository",
    "savepoints",
    "verdicts",
    "charts",
    "events",
    "recoveries",
    "log",
    "findings",
)
"""Every part; of several that cannot be read, the line names the error of the first."""
DEFAULT_PARTS = frozenset(PARTS) - {"findings"}
"""The parts that are made where none are named: the doctor's findings take too long."""
EVENTS = 200
_OF_PARTS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "verdicts": {"level": (str, NoneType), "verdicts": (list,), "objectives": (dict,)},
    "charts": {"spark": (dict, NoneType)},
    "savepoints": {"savepoint": (dict, NoneType)},
    "repository": {"replicas": (list,)},
    "recoveries": {"drill": (dict, NoneType)},
}
"""What of the line rests on which part, and of which type it is."""
_STAMP_CHARACTERS = 64
"""No longer is a time or a digest of a part in the line."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job at one moment, as plain JSON (docs/formats/page.md).

    Attributes:
        line: What a list of jobs shows, at most `line.LINE_BYTES`.
        parts: The parts that were made, each of at most `plain.PART_BYTES`.
    """

    line: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"line": dict(self.line), "parts": {name: dict(part) for name, part in self.parts.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Snapshot:
        return cls(data["line"], data.get("parts") or {})


def snapshot(
    job: Job,
    *,
    now: datetime | None = None,
    before: Snapshot | None = None,
    parts: Collection[str] | None = None,
) -> Snapshot:
    """A snapshot of a declared job.

    Nothing is raised for what cannot be read: that is the `error` of its part. Nothing is written but hours
    of the history, which are a cache.

    Args:
        before: An earlier snapshot: its line has what rests on parts that are not made now.
        parts: Which parts to make: of `PARTS`; `DEFAULT_PARTS` when left out. The line is always made, and
            may be named.

    Raises:
        InputError: There is no such part (code `no-such-part`).
    """
    look = Look(job, now or utc_now())
    asked = DEFAULT_PARTS if parts is None else frozenset(parts) - {LINE}
    _check(asked)
    makers = _makers(look)
    at = to_json_time(look.now)
    made = {name: fitted({"at": at, **look.part(makers[name])}) for name in PARTS if name in asked}
    earlier = _readable(before)
    line = of_status(look, earlier) | _taken_over(earlier, asked)
    for name, part in made.items():
        if name in _LINE_OF and (part["error"] is None or "replicas" in part):
            line |= guarded(look, name, partial(_LINE_OF[name], look, part))
    line["parts"] = {
        **line["parts"],
        **{name: {"at": at, "digest": digest_of(part)} for name, part in made.items()},
    }
    line["error"] = _worst(look, made, earlier)
    return Snapshot(fitted_line(line, look.plain), made)


def _check(asked: Collection[str]) -> None:
    unknown = sorted(set(asked) - set(PARTS))
    if unknown:
        raise InputError(
            f"A snapshot has no part {unknown[0]!r}.",
            code="no-such-part",
            hint=f"It has: {', '.join(PARTS)}.",
        )


def _makers(look: Look) -> dict[str, Callable[[], dict[str, Any]]]:
    return {
        "status": lambda: _status(look),
        "repository": lambda: repository_part(look),
        "savepoints": lambda: savepoints_part(
            look.saved(), look.job.retention, _last_drills(look), look.job.repository
        ),
        "verdicts": lambda: verdicts_part(look.judged()),
        "charts": lambda: charts_part(look.judged()),
        "events": lambda: {"events": [one.to_dict() for one in job_history(look.job, EVENTS)]},
        "recoveries": lambda: recoveries_part(look.job, look.records(), look.drills()),
        "log": lambda: log_part(look.job, look.records(), look.status(), look.plain),
        "findings": lambda: _findings(look.job),
    }


_LINE_OF: Mapping[str, Callable[[Look, Mapping[str, Any]], dict[str, Any]]] = {
    "verdicts": lambda look, part: of_verdicts(part),
    "charts": lambda look, part: {"spark": sparkline(look.judged())},
    "savepoints": lambda look, part: of_saved(newest_verified(look.saved())),
    "repository": lambda look, part: of_repository(part),
    "recoveries": lambda look, part: of_recoveries(part),
}
"""What the line says of a part that could be made."""


def _last_drills(look: Look) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """The newest drill of each savepoint; none where that cannot be read, as `error` says."""
    known = guarded(look, "recoveries", lambda: {"drilled": last_drills(look.drills())})
    drilled: Mapping[tuple[str, str], Mapping[str, Any]] = known.get("drilled", {})
    return drilled


def _status(look: Look) -> dict[str, Any]:
    """The status without what changes at every look though nothing happens."""
    return {name: one for name, one in look.status().to_dict().items() if name != "beat_age_s"}


def _findings(job: Job) -> dict[str, Any]:
    return {
        "findings": [
            {
                "level": one.severity,
                "code": one.code,
                "query": query.query,
                "file": one.file,
                "text": one.effect,
                "cause": one.cause,
                "cure": one.hint,
                "since": None,
            }
            for query in diagnose_job(job)
            for one in query.findings
        ]
    }


def _readable(before: Snapshot | None) -> Mapping[str, Any]:
    """The earlier line; empty without one, and where it is of another format."""
    line: object = None if before is None else before.line
    return line if isinstance(line, Mapping) and line.get("format") == FORMAT else {}


def _taken_over(line: Mapping[str, Any], asked: Collection[str]) -> dict[str, Any]:
    """What of an earlier line rests on parts that are not made now; what is damaged is left out."""
    kept = {
        one: line[one]
        for part, fields in _OF_PARTS.items()
        if part not in asked
        for one, types in fields.items()
        if one in line and isinstance(line[one], types)
    }
    for name in kept.keys() & {"verdicts", "replicas"}:
        kept[name] = [one for one in kept[name] if isinstance(one, dict)]
    parts = _mapping(line.get("parts"))
    kept["parts"] = {
        name: {"at": one["at"], "digest": one["digest"]}
        for name, one in parts.items()
        if name in PARTS
        and name not in asked
        and all(_is_stamp(_mapping(one).get(each)) for each in ("at", "digest"))
    }
    return kept


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_stamp(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _STAMP_CHARACTERS


def _worst(
    look: Look, made: Mapping[str, Mapping[str, Any]], before: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The error of the first part that could not be read, else of what the line reads by itself.

    Of a part that is not made now it is that of before.
    """
    errors = look.failed | {name: part["error"] for name, part in made.items() if part["error"] is not None}
    if "status" not in made:
        try:
            look.status()
        except Exception as error:
            errors["status"] = look.error(error)
    earlier = _mapping(before.get("error"))
    part = earlier.get("part")
    if part in PARTS and part != "status" and part not in made:
        errors[part] = {name: earlier.get(name) for name in ("code", "message", "hint")}
    return next(({"part": name, **errors[name]} for name in (*PARTS, LINE) if name in errors), None)
