"""How long a query took to commit a batch again, after each start, restart and restore of its job (RTO).

From the job's records: when a driver was launched, which epoch of the lease it got, and when the first
progress record of that epoch was written. A restart counts from the moment at which the driver before was
asked to make room: its query stood still from then on, or had stood still before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from streambank.control.control import JobControl
from streambank.control.progress import SegmentHead
from streambank.core.errors import InputError
from streambank.core.names import MAIN, QueryRef
from streambank.core.units import number_or_none, say_duration, time_or_none
from streambank.job.restart import RESTARTED
from streambank.sla.fact import Fact
from streambank.sla.history.history import Records, file_heads

NEWEST_EVENTS = 200
"""How many events are read at most: a start leaves some ten."""


_STEPS = {
    "end": (
        "the end of the driver before",
        "Most of it was the end of the driver before: look at how long a batch takes, and at "
        "stop.force_after.",
    ),
    "launch": (
        "the launch of the driver",
        "Most of it was the launch of the driver, not the state: look at the load of its machine, at the "
        "room in its cluster, and at what is installed or fetched at each start.",
    ),
    "first-batch": (
        "from the driver's beginning to its first batch",
        "Most of it was spent from the driver's beginning to its first batch: look at what the application "
        "does before its query begins, and at the size of that batch. For a large state, take snapshots more "
        "often, so that fewer changelogs are replayed.",
    ),
    "restore": (
        "the restore itself",
        "Most of it was the restore itself: keep a repository or replica near the checkpoint, and the state "
        "small.",
    ),
    "between": (
        "between the restore and the start",
        "Most of it lay between the restore and the start: start the job when the restore is done, as "
        "<job>.restore does.",
    ),
}
"""The steps of a recovery: in words, and what to do where one takes most of it."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """One start, restart or restore after which a batch was committed.

    Attributes:
        kind: `start`; `restart`, which holds the stop before it; or `restore`: such a time holds the start
            after it, and whatever lay between.
        began_at: When the driver was launched, the one before was asked to make room, or the restore began.
        at: When the first batch after it was recorded.
        cause: What a restart was for, where a program decided that: `health`.
        steps: Its steps, by their names in `_STEPS`, with how many seconds each took.
    """

    kind: Literal["start", "restart", "restore"]
    began_at: datetime
    at: datetime
    epoch: int
    batch: int
    savepoint: str | None = None
    cause: str | None = None
    steps: tuple[tuple[str, float], ...] = field(default=(), compare=False)

    @property
    def seconds(self) -> float:
        return (self.at - self.began_at).total_seconds()

    def as_fact(self) -> Fact:
        """It in words, with what to do about its longest step where its steps are known."""
        step = max(self.steps, key=lambda step: step[1], default=None)
        words, advice = ("", "") if step is None else _STEPS[step[0]]
        longest = "" if step is None else f" The longest step: {words}, {say_duration(round(step[1]))}."
        if self.kind == "restore":
            what = f"A restore of {self.savepoint}.{longest}"
        else:
            made_none = " of a driver that made no progress" if self.cause == "health" else ""
            what = f"A {self.kind}{made_none}, epoch {self.epoch}.{longest}"
        return Fact(self.at, self.seconds, self.kind, what, advice)


def recoveries(
    control: JobControl, query: str | None = None, *, since: datetime | None = None
) -> list[Recovery]:
    """Recoveries of a query, oldest first. One that has not led to a batch yet is not among them."""
    launched, restarted, leased = _launched(control)
    starts = [
        _recovery(head, launched[head.epoch], restarted.get(head.epoch), leased[head.epoch])
        for head in _first_of_epochs(Records.of_query(control.store, query), since)
        if head.epoch in launched and launched[head.epoch] <= head.at
    ]
    found = [*starts, *_restores(control, query, starts)]
    return sorted(
        (one for one in found if since is None or one.at >= since), key=lambda one: (one.at, one.began_at)
    )


def _recovery(
    head: SegmentHead, launched: datetime, restarted: Mapping[str, Any] | None, leased: datetime
) -> Recovery:
    steps: tuple[tuple[str, float], ...] = (
        ("launch", _between(launched, leased)),
        ("first-batch", _between(leased, head.at)),
    )
    asked = time_or_none(restarted.get("asked_at")) if restarted is not None else None
    if restarted is None or asked is None or asked > launched:
        return Recovery("start", launched, head.at, head.epoch, head.batch, steps=steps)
    steps = (("end", _between(asked, launched)), *steps)
    cause = restarted.get("cause")
    return Recovery(
        "restart",
        asked,
        head.at,
        head.epoch,
        head.batch,
        cause=None if cause is None else str(cause),
        steps=steps,
    )


def _between(one: datetime, other: datetime) -> float:
    return max(0.0, (other - one).total_seconds())


def _launched(
    control: JobControl,
) -> tuple[dict[int, datetime], dict[int, Mapping[str, Any]], dict[int, datetime]]:
    """When the driver of each epoch was launched, those that replaced another one, and when each came up.

    One that nobody launched counts from its own start.
    """
    by_launch: dict[str, datetime] = {}
    by_epoch: dict[int, datetime] = {}
    restarted: dict[int, Mapping[str, Any]] = {}
    leased: dict[int, datetime] = {}
    for record in control.events(newest=NEWEST_EVENTS):
        event = record.data
        moment = time_or_none(event.get("at"))
        if moment is None:
            continue
        if event.get("kind") == "launched":
            by_launch[str(event.get("launch_id"))] = moment
        elif event.get("kind") == "driver-started" and isinstance(event.get("epoch"), int):
            leased.setdefault(event["epoch"], moment)
            by_epoch.setdefault(event["epoch"], by_launch.get(str(event.get("launch_id")), moment))
        elif event.get("kind") == RESTARTED and isinstance(event.get("epoch"), int):
            restarted.setdefault(event["epoch"], event)
    return by_epoch, restarted, leased


def _first_of_epochs(records: Records, since: datetime | None) -> list[SegmentHead]:
    """The first record of each epoch that is known to be its first: an older file may have been deleted."""
    found: list[SegmentHead] = []
    seen: set[int] = set()
    before: SegmentHead | None = None
    for key, head in file_heads(records, since):
        if head is None:
            continue
        first = before is not None or key.endswith("/0000000001.jsonl")
        if first and head.epoch not in seen:
            found.append(head)
        seen.add(head.epoch)
        before = head
    return found


def _restores(control: JobControl, query: str | None, starts: list[Recovery]) -> list[Recovery]:
    found = []
    for record in control.stream("restores").history(newest=NEWEST_EVENTS):
        report = record.data
        began, seconds = time_or_none(report.get("started_at")), number_or_none(report.get("seconds"))
        if began is None or seconds is None or not _is_of(report, query):
            continue
        try:
            ended = began + timedelta(seconds=seconds)
        except OverflowError:  # beyond the calendar, which no restore has taken
            continue
        start = next((start for start in starts if start.began_at >= ended), None)
        if start is not None:
            savepoint = str(report.get("savepoint"))
            between = ("between", _between(ended, start.began_at))
            steps = (("restore", seconds), between, *start.steps)
            found.append(
                Recovery("restore", began, start.at, start.epoch, start.batch, savepoint, steps=steps)
            )
    return found


def _is_of(report: Mapping[str, Any], query: str | None) -> bool:
    """Whether a report is of this query: its savepoint is named `job`, or `job/query`."""
    try:
        return QueryRef.parse(str(report.get("job"))).name == (query or MAIN)
    except InputError:
        return False
