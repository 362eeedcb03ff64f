"""The line of a job: what a list of a thousand jobs shows of each, in 4 KB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.control.processes import person
from streambank.control.records import JsonDict
from streambank.core.errors import FormatError, IntegrityError, NotFoundError
from streambank.core.units import from_json_time, to_json_time
from streambank.job.crash_loop import CRASH_LOOP
from streambank.job.liveness import driver_lives, failures_of_job
from streambank.job.status import JobStatus
from streambank.overview.charts import counted
from streambank.overview.look import Look
from streambank.overview.plain import Plain, shortened, size_of
from streambank.overview.saved import SavedOne
from streambank.sla.history.point import Point
from streambank.sla.history.progress_json import Measuring

FORMAT = 1
LINE = "line"
"""The part, as its `error` says it, of what the line reads by itself."""
LINE_BYTES = 4096
"""The largest line, as compact JSON in ASCII."""
VERDICTS, REPLICAS, WAITS, QUERIES = 10, 5, 5, 20
"""So many are in the line at most; fewer where it would be too long."""
EVENTS = 200
"""Among so many events it is sought that nothing starts the job any more."""
NEWS_S = 1800.0
"""For so long a restart after a failure is news."""
_DRIVERS, _EVENTS_SINCE = 3, 40
"""Among so many of the newest drivers and events the failure is sought."""
_SETTLED_S = 120.0
"""So long after its start all is recorded of why a driver was started."""
_ASKED_BEFORE_S = 600.0
"""A stop is asked for so long before a driver ends, at most."""
_SILENT_S = 120.0
"""How long an operation on another host may give no sign before it waits for a person."""
_SHORTER = (
    (500, 10), (300, 6), (200, 5), (160, 4), (120, 3), (100, 3), (60, 3), (40, 2), (20, 1), (10, 0),
)  # fmt: skip
"""How the line becomes shorter until it fits: characters of each text, entries of each list."""
_IDENTIFYING = frozenset(("id", "savepoint", "state", "level", "objective", "kind", "code"))
_IDENTIFYING_CHARACTERS = 32
"""Times, ids and names that a program compares are not shortened below this; they are no longer."""
_DROPPED = ("spark", "restarted", "drill", "operation", "health", "watch", "desired", "savepoint", "error")
"""What goes where even that is not enough, in this order; of the error its part and its code stay."""
_OF_VERDICT = ("objective", "query", "subject", "level", "why", "value", "limit", "unit", "since")


def of_status(look: Look, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """What the line says of a job as it is now, by its status and the newest record of each query."""
    try:
        return _known(look, look.status(), look.records(), earlier)
    except Exception as error:
        return {**_nothing(look), "state": "unreadable", "state_why": look.error(error)["message"]}


def _known(look: Look, status: JobStatus, records: JobControl, earlier: Mapping[str, Any]) -> dict[str, Any]:
    watch, health, site, queries = status.watch, status.health, status.site, status.queries.values()
    return {
        **_nothing(look),
        "site": None if site is None else site.site,
        "desired": None if status.desired is None else _desired(status),
        "state": status.state,
        "state_why": status.why,
        "since": status.since,
        "down_since": status.down_since,
        "down_why": status.down_why,
        "watch": None if watch is None else asdict(watch),
        "health": None if health is None else {"state": health.state, "why": health.why},
        "batch": status.batch,
        "batch_at": max((one.progress_at for one in queries if one.progress_at), default=None),
        "watermark": min((one.watermark for one in queries if one.watermark), default=None),
        **guarded(look, LINE, lambda: _measured(look)),
        **guarded(look, LINE, lambda: {"restarted": _restarted(look, records, status, earlier)}),
        **guarded(look, LINE, lambda: _operation(look, records, status)),
    }


def guarded(look: Look, part: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Some fields of the line; none where they cannot be made, and why then stands in `look.failed`."""
    try:
        return make()
    except Exception as error:
        look.failed.setdefault(part, look.error(error))
        return {}


_FIELDS = (
    *("format", "job", "at", "site", "desired", "state", "state_why", "since", "down_since", "down_why"),
    *("restarted", "watch", "health", "operation", "queries", "batch", "batch_at", "watermark"),
    *("watermark_lag_s", "lag", "state_rows", "state_bytes", "batch_s", "commit_s", "spark", "level"),
    *("verdicts", "objectives", "savepoint", "replicas", "drill", "waits", "parts", "error"),
)


def _nothing(look: Look) -> dict[str, Any]:
    """The fields in their order, as they are where nothing is known."""
    return dict.fromkeys(_FIELDS) | {
        "format": FORMAT,
        "job": look.job.name,
        "at": to_json_time(look.now),
        "state": "unreadable",
        "state_why": "",
        "down_why": "",
        "queries": list(look.job.queries),
        **{name: [] for name in ("verdicts", "replicas", "waits")},
        "objectives": {},
        "parts": {},
    }


def _desired(status: JobStatus) -> dict[str, Any]:
    return {
        "state": status.desired,
        "at": status.desired_at,
        "by": person(status.desired_by),
        "why": status.desired_why,
    }


def _measured(look: Look) -> dict[str, Any]:
    """By the newest record of progress of each query: sums, and of durations the longest."""
    points: list[Point] = []
    for query in look.job.queries:
        last = look.progress(query)
        if last is not None:
            points.append(Measuring(last.run_id, last.batch).point(last, last.at))
    waiting = _sum(points, "source_lag_rows")
    lag = {"value": waiting, "unit": "rows", "what": "rows that wait in the sources"}
    return {
        "watermark_lag_s": _longest(points, "watermark_lag_s"),
        "lag": None if waiting is None else lag,
        "state_rows": _sum(points, "state_rows"),
        "state_bytes": _sum(points, "state_bytes"),
        "batch_s": _longest(points, "batch_s"),
        "commit_s": _longest(points, "checkpoint_s") or _longest(points, "commit_s"),
    }


def _sum(points: Sequence[Point], metric: str) -> int | None:
    known = [point.values[metric] for point in points if metric in point.values]
    return round(sum(known)) if known else None


def _longest(points: Sequence[Point], metric: str) -> float | None:
    known = [point.values[metric] for point in points if metric in point.values]
    return round(max(known), 3) if known else None


def _operation(look: Look, records: JobControl, status: JobStatus) -> dict[str, Any]:
    view = None if status.operation_state is None else records.operation_lock.view()
    busy = view if view is not None and view.state != "ended" else None
    holder = busy.holder if busy is not None else None
    waits = [*_given_up(records, status), *_unfenced(status)]
    if busy is not None and _is_silent(look, busy):
        what = f"The operation {status.operation or 'of an unreadable record'} has not ended: {busy.why}."
        waits.append({"kind": "lock", "what": what, "since": _time(busy)})
    operation = None
    if busy is not None:
        by = holder.details.get("by") if holder is not None else None
        operation = {
            "name": str(holder.details.get("operation")) if holder is not None else None,
            "by": person(by) if isinstance(by, Mapping) and by else None,
            "state": busy.state,
            "since": _time(busy),
        }
    return {"operation": operation, "waits": waits}


def _time(view: ClaimView) -> str | None:
    return None if view.since is None else to_json_time(view.since)


def _is_silent(look: Look, view: ClaimView) -> bool:
    """Whether an operation will not end by itself: its process died, or it gives no sign for long."""
    if view.state == "dead":
        return True
    seen_at = view.beat_at or view.since
    return view.state == "unknown" and (seen_at is None or look.now - seen_at > timedelta(seconds=_SILENT_S))


def _given_up(records: JobControl, status: JobStatus) -> list[dict[str, Any]]:
    """A job that must run, and that nothing starts any more.

    Of a driver that does well there is nothing to read: it may have recorded thousands of events.
    """
    unhealthy = status.health is not None and status.health.state == "unhealthy"
    if status.desired != "running" or (status.state in ("starting", "running") and not unhealthy):
        return []
    newest = (record.data for record in islice(records.event_records.newest_first(), EVENTS))
    last = next((one for one in newest if one.get("kind") in (CRASH_LOOP, "driver-started")), None)
    if last is None or last.get("kind") != CRASH_LOOP:
        return []
    error = f" Last error: {last['error']}" if last.get("error") else ""
    return [{"kind": "give-up", "what": f"{last.get('why')}.{error}", "since": last.get("at")}]


def _restarted(
    look: Look, records: JobControl, status: JobStatus, earlier: Mapping[str, Any]
) -> dict[str, Any] | None:
    """When the driver that runs has begun, if that is news: where the one before it failed or was replaced.

    Nothing is read of a driver that has run for longer than that, and where the earlier line has it.
    """
    began = None if status.since is None else from_json_time(status.since)
    if status.state != "running" or began is None or look.now - began > timedelta(seconds=NEWS_S):
        return None
    if earlier.get("since") == status.since:
        known = earlier.get("restarted")
        if isinstance(known, dict) and all(isinstance(known.get(one), str) for one in ("failed_at", "why")):
            return {"at": status.since, "failed_at": known["failed_at"], "why": known["why"]}
        if known is None and str(earlier.get("at")) > to_json_time(began + timedelta(seconds=_SETTLED_S)):
            return None
    lives = driver_lives(records, look.job.queries, newest=_DRIVERS)
    before = max((one.over_at for one in lives if one.epoch != status.epoch), default=None)
    if before is None:
        return None
    events = [
        event
        for at, event in _events_since(records, before - timedelta(seconds=_ASKED_BEFORE_S))
        if event.get("kind") != "driver-died" or at <= began  # a second one, while this one runs
    ]
    failures = [one for one in failures_of_job(records.name, events, lives, status.epoch) if one.at >= before]
    if not failures or began - failures[-1].at > timedelta(seconds=NEWS_S):
        return None
    return {"at": status.since, "failed_at": to_json_time(failures[-1].at), "why": failures[-1].what}


def _events_since(records: JobControl, moment: datetime) -> Iterator[tuple[datetime, JsonDict]]:
    """The newest events, newest first, until one from before a moment; not those that cannot be read."""
    numbers = records.event_records.numbers()[-_EVENTS_SINCE:]
    for number in reversed(numbers):
        try:
            event = records.event_records.read(number)
            at = from_json_time(str(event["at"]))
        except (FormatError, IntegrityError, NotFoundError, KeyError, ValueError):
            continue
        if at < moment:
            return
        yield at, event


def _unfenced(status: JobStatus) -> list[dict[str, Any]]:
    site = status.site
    if site is None or site.unfenced is None:
        return []
    what = f"The {site.unfenced} could not be reached at the fail-over, and may still run."
    return [{"kind": "unfenced", "what": what, "since": site.since}]


def of_verdicts(part: Mapping[str, Any]) -> dict[str, Any]:
    """What the line says of the part `verdicts`: those that are not `ok`, worst first, each reason once.

    Muted ones come last, and are not counted.
    """
    bad: dict[Any, Mapping[str, Any]] = {}
    for number, one in enumerate(sorted(part["verdicts"], key=_is_muted)):
        if one["level"] != "ok":  # of those that are unknown for one reason, one is enough
            bad.setdefault(one["why"] if one["level"] == "unknown" else number, one)
    return {
        "level": part["level"],
        "verdicts": [
            {**{name: one[name] for name in _OF_VERDICT}, "mute": _is_muted(one)}
            for one in list(bad.values())[:VERDICTS]
        ],
        "objectives": counted([one for one in part["verdicts"] if not _is_muted(one)]),
    }


def _is_muted(verdict: Mapping[str, Any]) -> bool:
    return verdict.get("mute") is not None


def of_saved(newest: SavedOne | None) -> dict[str, Any]:
    """What the line says of the newest savepoint that was verified and found whole."""
    if newest is None:
        return {"savepoint": None}
    summary = newest.summary
    return {
        "savepoint": {
            "id": summary.savepoint,
            "name": ", ".join(summary.names) or None,
            "query": newest.query,
            "batch": summary.batch,
            "taken_at": summary.taken_at,
            "verified_at": summary.verified_at,
            "bytes": summary.bytes,
        }
    }


def of_repository(part: Mapping[str, Any]) -> dict[str, Any]:
    """What the line says of the part `repository`: how far each replica is."""
    return {"replicas": [_replica(one) for one in part["replicas"]]}


def _replica(row: Mapping[str, Any]) -> dict[str, Any]:
    newest, error = row["newest"] or {}, row["error"] or {}
    return {
        "name": row["name"],
        "savepoint": newest.get("savepoint"),
        "taken_at": newest.get("taken_at"),
        "behind": row["behind"],
        "error": error.get("message"),
    }


def of_recoveries(part: Mapping[str, Any]) -> dict[str, Any]:
    """What the line says of the part `recoveries`: the newest drill."""
    newest = next(iter(part["drills"]), None)
    names = ("at", "passed", "step", "not_run", "rto_s", "rpo_s")
    return {"drill": None if newest is None else {name: newest[name] for name in names}}


def fitted_line(line: Mapping[str, Any], plain: Plain) -> dict[str, Any]:
    """The line as plain JSON of no more than `LINE_BYTES`: its texts become shorter, and then its lists."""
    whole: dict[str, Any] = plain.json(line)
    limits = {"verdicts": VERDICTS, "replicas": REPLICAS, "waits": WAITS, "queries": QUERIES}
    short = whole
    for most, entries in _SHORTER:
        short = {
            name: one if name in ("job", "parts", "spark") else _shorter(name, one, most)
            for name, one in whole.items()
        }
        for name, limit in limits.items():
            short[name] = short[name][: min(limit, entries)]
        if size_of(short) <= LINE_BYTES:
            return short
    for name in _DROPPED:
        if size_of(short) > LINE_BYTES:
            short[name] = None if name != "error" else _bare(short[name])
    return short


def _bare(error: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """An error without its texts: a line with one must not look like one of a job that is well."""
    return None if error is None else {**error, "message": "", "hint": ""}


def _shorter(name: str, value: Any, most: int) -> Any:
    if isinstance(value, str):
        kept = name in _IDENTIFYING or name.endswith(("at", "since", "until", "watermark"))
        return shortened(value, max(most, _IDENTIFYING_CHARACTERS) if kept else most)
    if isinstance(value, dict):
        return {inner: _shorter(inner, one, most) for inner, one in value.items()}
    return [_shorter(name, one, most) for one in value] if isinstance(value, list) else value
