"""What happened to a job: what people asked for, what its drivers, savepoints and restores did. Only reads.

Facts are those that records carry, whatever kind they are of; what is not recorded is left out. How long
nothing was processed is from the last batch that a driver has committed to the first one of the next driver,
by the history of progress: also where the input was empty in between.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from streambank.control.control import JobControl
from streambank.control.processes import person
from streambank.control.progress import SegmentHead, last_of_segment, progress_keys, segment_head
from streambank.control.records import JsonDict, Record
from streambank.core.errors import StreambankError
from streambank.core.names import MAIN
from streambank.core.shape import encode
from streambank.core.units import time_or_none
from streambank.declaration.declaration import Job
from streambank.driver.failure import root_cause, shown

_FACTS = (
    "epoch", "batch", "savepoint", "generation", "again", "exit_code", "failure", "error", "cause", "code",
    "site", "was", "fence", "passed", "step", "not_run", "repository", "source", "from", "to", "location",
    "left", "what", "how", "mode", "sink", "files", "bytes", "quarantine", "seconds", "rto_s", "rpo_s",
    "paused_s", "batches_back", "batches_lost", "rows_lost", "lost", "copy",
)  # fmt: skip
"""Fields of an event that are shown where they are a text or a number, as docs/formats/job.md calls them."""
_OF_DRIVERS = ("driver-started", "restarted")
"""Kinds of events with the epoch of a driver that came after another one."""
_OF_COPIES = ("refreshed", "refresh-failed")
"""Kinds of events of a copy that the history of its job shows, too."""
_KIND = re.compile("[a-z][a-z0-9-]{0,39}")
"""A record may say anything: what it calls itself is looked up by whoever shows it."""
_SKIPPED = 3
"""So many savepoints are named that a restore has passed over."""
_MOST_FILES = 1000
"""So many files of a query's progress are looked at."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened.

    Attributes:
        at: When; None where the record does not say or is damaged.
        kind: One of the kinds of events in docs/formats/job.md, `desired-running`, `desired-stopped` or
            `restored`; the error's code where the record is damaged; `unknown` where it has no such form.
        query: The query it is about; None for the job.
        facts: What else is known, such as `epoch` and `batch`.
        why: Why, in their words or those of a refusal.
    """

    at: datetime | None
    kind: str
    query: str | None = None
    facts: Mapping[str, Any] | None = None
    by: str | None = None
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"facts": dict(self.facts or {})}


def job_history(job: Job, newest: int = 50) -> list[Happening]:
    """The newest things that happened to a job, oldest first."""
    records = job.records()
    streams = [_events(records, newest), _desired(records, newest), *_generations(job, records)]
    streams += [_refreshes(job, name, newest) for name in job.copies]
    merged = heapq.merge(*map(_in_order, streams), key=itemgetter(0))
    found = [one for _, one in merged][-newest:]
    since = next((one.at for one in found if one.at is not None), None)
    pauses = {name: _pauses(records, name, since) for name in job.queries} if since is not None else {}
    return [_paused(one, pauses) for one in found]


@dataclass(frozen=True, slots=True)
class _Pause:
    epoch: int
    began_at: datetime
    ended_at: datetime

    @property
    def seconds(self) -> float:
        return round(max(0.0, (self.ended_at - self.began_at).total_seconds()), 1)


def _pauses(records: JobControl, query: str, since: datetime | None) -> list[_Pause]:
    """The newest first, back to a moment."""
    found: list[_Pause] = []
    following: SegmentHead | None = None
    for key in list(reversed(progress_keys(records.store, query)))[:_MOST_FILES]:
        head = segment_head(records.store, key)
        if head is None:
            continue
        if following is not None and head.epoch != following.epoch:
            last = last_of_segment(records.store, key)
            if last is not None:
                found.append(_Pause(following.epoch, last.at, following.at))
        if since is not None and head.at < since:
            break
        following = head
    return found


def _paused(one: Happening, pauses: Mapping[str, list[_Pause]]) -> Happening:
    """The same, with how long nothing was processed: the longest, of a job with several queries."""
    facts = one.facts or {}
    asked = pauses.values() if one.query is None else [pauses.get(one.query, [])]
    known = [pause for of_query in asked for pause in of_query]
    if one.kind in _OF_DRIVERS:
        seconds = [pause.seconds for pause in known if pause.epoch == facts.get("epoch")]
    elif one.kind in ("restored", "reinstated") and one.at is not None:
        seconds = [pause.seconds for pause in known if pause.began_at <= one.at <= pause.ended_at]
    else:
        seconds = []
    return replace(one, facts={**facts, "paused_s": max(seconds)}) if seconds else one


def _in_order(stream: Iterable[Happening]) -> list[tuple[float, Happening]]:
    """What was recorded one after the other, each with the time to sort by: no later than what came after it.

    Records are numbered, so their order is known where a clock was ahead and went back.
    """
    happened = list(stream)
    dated = [number for number, one in enumerate(happened) if one.at is not None]
    found: list[tuple[float, Happening]] = []
    before = math.inf
    for number, one in reversed(list(enumerate(happened))):
        if one.at is not None:
            before = min(before, one.at.timestamp())
        found.append((before if dated and number >= dated[0] else 0.0, one))
    return found[::-1]


def _shown(name: str, text: str, job: str) -> str:
    return root_cause(text, job) if name == "failure" else shown(text)


def _events(records: JobControl, newest: int) -> Iterator[Happening]:
    for record in records.events(newest=newest):
        data = record.data
        query = data.get("query")
        facts = {name: data[name] for name in _FACTS if isinstance(data.get(name), str | int | float)}
        yield Happening(
            time_or_none(data.get("at")),
            _kind(record),
            None if query == MAIN or query is None else str(query),
            {
                name: _shown(name, value, records.name) if isinstance(value, str) else value
                for name, value in facts.items()
            },
            _who(data),
            shown(str(data.get("why") or data.get("message") or "")),
        )


def _refreshes(job: Job, copy: str, newest: int) -> Iterator[Happening]:
    """What was made of a copy, by its own records; why they cannot be read, where they cannot be."""
    try:
        found = [one for one in _events(job.as_copy(copy).records(), newest) if one.kind in _OF_COPIES]
    except StreambankError as error:
        found = [Happening(None, error.code or "unknown", facts={"copy": copy}, why=error.message)]
    yield from found


def _desired(records: JobControl, newest: int) -> Iterator[Happening]:
    for record in records.desired_records.history(newest=newest):
        data = record.data
        kind = _kind(record) if "error" in data else _known(f"desired-{data.get('state')}")
        why = shown(str(data.get("why") or ""))
        yield Happening(time_or_none(data.get("at")), kind, by=_who(data), why=why)


def _generations(job: Job, records: JobControl) -> Iterator[Iterator[Happening]]:
    reports = _reports(records)
    for name in job.queries:
        yield _restored(records, name, reports)


def _reports(records: JobControl) -> dict[tuple[str, int], JsonDict]:
    found = {}
    for record in records.stream("restores").history():
        number, job = record.data.get("generation"), record.data.get("job")
        if isinstance(number, int) and isinstance(job, str):
            found[job.partition("/")[2] or MAIN, number] = record.data
    return found


def _restored(
    records: JobControl, name: str, reports: Mapping[tuple[str, int], JsonDict]
) -> Iterator[Happening]:
    for record in records.generations(name).records.history():
        data = record.data
        if data.get("from_savepoint") and data.get("again") is None:
            facts: dict[str, Any] = {"generation": record.number, "savepoint": data["from_savepoint"]}
            facts |= _of_report(reports.get((name, record.number), {}))
            query = None if name == MAIN else name
            yield Happening(time_or_none(data.get("made_at")), "restored", query, facts, _who(data))


def _of_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """From where a restore came, how long it took, how far the query went back, what was accepted."""
    given = {name: report.get(name) for name in ("batch", "repository", "seconds", "mode", "sink")}
    facts = {name: value for name, value in given.items() if value not in (None, "")}
    reached = report.get("reached")
    committed = reached.get("committed") if isinstance(reached, Mapping) else None
    if isinstance(committed, int) and isinstance(report.get("batch"), int):
        facts["batches_back"] = max(0, committed - report["batch"])
    sinks = [one for one in report.get("sinks") or () if isinstance(one, Mapping)]
    harmed = [
        one for one in sinks if one.get("choice") == "accept" and one.get("says") and not one.get("safe")
    ]
    accepted = (
        [str(report.get("sink_effect"))] if harmed or (not sinks and report.get("sink") == "accept") else []
    )
    if report.get("source") == "accept" and report.get("source_effect"):
        accepted.append(str(report["source_effect"]))
    if accepted:
        facts["lost"] = " ".join(accepted)
    skipped = [f"{one['savepoint']}: {one['why']}".rstrip(" .") for one in skipped_of(report)]
    if skipped:
        more = f"; and {len(skipped) - _SKIPPED} more" if len(skipped) > _SKIPPED else ""
        facts["skipped"] = shown(f"{'; '.join(skipped[:_SKIPPED])}{more}")
    return facts


def skipped_of(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """The savepoints that a restore has passed over, by its report: `savepoint`, and `why`."""
    skipped = report.get("skipped")
    found = [one for one in skipped if isinstance(one, Mapping)] if isinstance(skipped, list) else []
    return [{name: str(one.get(name)) for name in ("savepoint", "why")} for one in found]


def _kind(record: Record) -> str:
    return _known(record.data.get("kind") or record.data.get("error"))


def _known(kind: object) -> str:
    return kind if isinstance(kind, str) and _KIND.fullmatch(kind) else "unknown"


def _who(data: JsonDict) -> str | None:
    by = data.get("by")
    return person(by) if isinstance(by, Mapping) else None
