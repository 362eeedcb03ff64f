"""Whether a job that is meant to run does run, and is watched: since when not, and why. Looks, never writes.

A job is *down* where no driver lives, and where drivers come up and end before they have done anything: only
a driver that has worked counts as the end of an outage, so a crash loop is one outage however often a driver
lives for a moment. The first driver after one that has worked may take its time: whether it makes progress is
asked of its health.

A job is *unwatched* where a watcher (watch.py) is expected and gives no sign, has ended without the job being
stopped, or could not act. One is expected where a watcher has seen what is meant to be now, and where one of
the job's own DAGs said that it is meant to run. A job that is only started by hand is expected to have none.
After a start the watcher is due soon after that is over: the driver is ready then, and the next task of
`<job>.run` watches it, or another DAG hands the job to such a run.

Times of drivers, watchers and of whoever looks are compared here, in minutes: this is for people, and nobody
is restarted for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from streambank.control.claims import ClaimView
from streambank.control.control import Desired, JobControl
from streambank.control.records import JsonDict
from streambank.control.watch import WatchView
from streambank.core.units import time_or_none
from streambank.job.liveness import (
    NEWEST_LIVES,
    DriverLife,
    Failure,
    driver_lives,
    early_deaths,
    failures_of_job,
    life_of,
    stops_of,
)

DAGS = ("run", "restore", "compact", "rescale", "transform", "bootstrap", "failover")
"""A job that one of these of its DAGs has started is handed to `<job>.run`, which watches it."""
PATIENCE_S = 300.0
"""How long a job may be down or unwatched before that is an error."""
COMES_S = 120.0
"""How long a watcher may need to come when a start is over: Airflow makes a run, and gives its task room."""
_AGE_S = 60.0
"""How old a heartbeat from another host may be, or how far ahead, without being watched for a while."""
_READY_EVENTS = 50
"""Among so many of the newest events it is sought when the driver was ready."""
_EVENTS_EACH = 4
"""How many events are looked at for each driver: a start leaves some ten, and most drivers live for days."""


_WAY_BACK = re.compile(r"restor|roll(?:ed|s|ing)?[ -]?back|\bstop", re.IGNORECASE)
_LOOK_AGAIN = (
    "A driver lives: leave it running, and ask doctor again. Once no driver lives, doctor names the way out."
)


@dataclass(frozen=True, slots=True)
class Life:
    """A job at one moment.

    Attributes:
        desired: Whether a driver is meant to live now.
        why_not: Why none is, as half a sentence; empty where one is.
        up: Whether a driver lives; None where that cannot be told.
        down_since: Since when the job is down although it is meant to run; None where it is not.
        watched: Whether a watcher gives signs and could act.
        unwatched_since: Since when none does although one is expected; None where one does.
        watcher: The newest watcher; None where the job never had one.
        status: What the driver that lives said last; empty without one.
        finished: Whether the last driver's application ran to its end, and well.
        failures: Drivers that failed or died, and those that a program replaced, by time.
    """

    desired: bool
    why_not: str = ""
    up: bool | None = False
    down_since: datetime | None = None
    down_why: str = ""
    expected: bool = False
    watched: bool = False
    unwatched_since: datetime | None = None
    unwatched_why: str = ""
    watcher: WatchView | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    said_at: datetime | None = None
    finished: bool = False
    failures: tuple[Failure, ...] = ()

    def down_s(self, now: datetime) -> float:
        """For how long it is down, in seconds."""
        return _since_s(self.down_since, now)

    def unwatched_s(self, now: datetime) -> float:
        """For how long it is unwatched, in seconds."""
        return _since_s(self.unwatched_since, now)

    def is_unwatched(self, now: datetime, patience_s: float) -> bool:
        """Whether it is surely unwatched: its watcher said that it ended, or cannot act, or for so long."""
        if self.unwatched_since is None:
            return False
        watcher = self.watcher
        certain = watcher is not None and bool(watcher.end or watcher.idle) and self.expected
        return certain or self.unwatched_s(now) > patience_s


def beside_a_driver(hint: str) -> str:
    """What can be done about a problem of a query whose driver lives.

    The driver may get over it, and a way back would end a stream that works and undo its output.

    Args:
        hint: What is done about it where no driver lives.
    """
    return _LOOK_AGAIN if _WAY_BACK.search(hint) else hint


def job_life(
    control: JobControl,
    now: datetime,
    *,
    queries: Collection[str],
    settle: bool = True,
    newest: int = NEWEST_LIVES,
    start_s: float = 0.0,
    failures: bool = True,
    view: ClaimView | None = None,
    desired: Desired | None = None,
) -> Life:
    """Whether a job that is meant to run does, and is watched.

    Args:
        settle: Watch a heartbeat from another host for a while that looks old, before the driver is called
            dead: clocks may differ. Who may not wait leaves that out.
        newest: How many of its newest drivers to look at, with what happened meanwhile.
        start_s: How long a start may take: a first driver may wait for room in a cluster for so long.
        failures: List the failures, too. Without them, of a driver that lives and works nothing is read but
            its lease: what was before it decides nothing.
        view: The lease, where it was read just now.
        desired: What is meant to be, where that was read just now.

    Raises:
        FormatError: A record that decides is damaged (code `damaged-record`).
    """
    desired = desired or control.desired()
    view = view or control.lease.view()
    driver = None if view is None else life_of(view, queries)
    state = _state(control, view, driver, now, settle)
    living = driver is not None and state == "live"
    said: Mapping[str, Any] = driver.status if driver is not None and living else {}
    said_at = driver.seen_at if driver is not None and living else None
    events: list[JsonDict] = []
    lives = [] if driver is None else [driver]
    if failures or driver is None or not living or not driver.has_begun:
        # One that has come since the lease was read is for the next look.
        known = driver_lives(control, queries, newest=newest)
        lives += [one for one in known if driver is None or one.epoch < driver.epoch]
        events = [record.data for record in control.events(newest=_EVENTS_EACH * newest)]
    living_epoch = driver.epoch if driver is not None and living else None
    failed = tuple(failures_of_job(control.name, events, lives, living_epoch)) if failures else ()
    watch = control.watches.view()
    watched = watch is not None and watch.acts(now)
    life = Life(
        False,
        up=living,
        watched=watched,
        watcher=watch,
        status=said,
        said_at=said_at,
        failures=failed,
    )
    if desired is None or desired.state == "stopped":
        why = "it was never started" if desired is None else "its desired state is stopped"
        return replace(life, why_not=why)
    if driver is not None and not living and _has_finished(events, driver, desired):
        return replace(life, why_not="its application has finished", finished=True)
    unknown = state == "unknown"
    may_come = (now - desired.at).total_seconds() <= start_s
    down_since, down_why = (
        (None, "") if unknown else _down(events, lives, driver if living else None, desired, may_come)
    )
    expected = _is_expected(control.name, watch, desired)
    since, why = None, ""
    if expected and not watched:
        comes_after = partial(_start_over_at, control, desired, driver, living, start_s)
        since, why = _unwatched(watch, desired, now, comes_after)
    return replace(
        life,
        desired=True,
        up=None if unknown else living and down_since is None,
        down_since=down_since,
        down_why=down_why,
        expected=expected,
        unwatched_since=since,
        unwatched_why=why,
    )


def _state(
    control: JobControl, view: ClaimView | None, driver: DriverLife | None, now: datetime, settle: bool
) -> str:
    """`live`, `dead` or `unknown`."""
    if view is None or view.state == "ended":
        return "dead"
    if view.holder is None:
        return "unknown"
    if driver is None:
        return "dead"  # an operation holds the lease
    if view.state != "unknown":
        return "live" if view.state == "live" else "dead"
    if abs((now - driver.seen_at).total_seconds()) <= max(_AGE_S, 3 * view.holder.ttl_s):
        return "live"
    if not settle:
        return "unknown"
    judged = control.lease.settle()
    if judged is None or judged.epoch != view.epoch:
        return "unknown"
    return {"live": "live", "unknown": "unknown"}.get(judged.state, "dead")


def _has_finished(events: list[JsonDict], driver: DriverLife, desired: Desired) -> bool:
    if driver.exit_code != 0 or driver.over_at < desired.at:
        return False
    return driver.epoch not in stops_of(events)


def _down(
    events: list[JsonDict],
    lives: list[DriverLife],
    living: DriverLife | None,
    desired: Desired,
    may_come: bool,
) -> tuple[datetime | None, str]:
    """Since when the job is down, and why; None where it is not, or its first driver may still come up."""
    if living is not None and living.has_begun:
        return None, ""
    worked = next((one for one in lives if one.worked and one is not living), None)
    since = desired.at if worked is None else max(desired.at, worked.over_at)
    stops = stops_of(events)
    failed = [
        one
        for one in lives
        if one is not living and not one.worked and one.over_at > since and one.epoch not in stops
    ]
    count = len(failed) + sum(at > since for at, _ in early_deaths(events, lives))
    if living is not None:
        if count == 0:
            return None, ""  # its first batch may take long: that is for its health to judge
        return since, f"{_drivers(count)} ended before a first batch since then, and another one is starting."
    if count:
        return since, f"No driver lives, and {_drivers(count)} ended before a first batch since then."
    if worked is not None and worked.over_at >= desired.at:
        return since, f"No driver has run since the one of epoch {worked.epoch} ended."
    return (None, "") if may_come else (since, "It was requested to run then, and no driver has started.")


def _drivers(count: int) -> str:
    return "a driver" if count == 1 else f"{count} drivers"


def _is_expected(job: str, watch: WatchView | None, desired: Desired) -> bool:
    if watch is not None and watch.desired == desired.number:
        return True
    return desired.by.get("dag_id") in {f"{job}.{verb}" for verb in DAGS}


def _start_over_at(
    control: JobControl, desired: Desired, driver: DriverLife | None, living: bool, start_s: float
) -> datetime:
    """When the start was over, or will be at the latest, since which the job is meant to run."""
    latest = desired.at + timedelta(seconds=start_s)
    if driver is None or (not living and driver.over_at < desired.at):
        return latest  # it is on its way
    if not living:
        return min(latest, driver.over_at)
    began_at = max(desired.at, driver.began_at)
    if not driver.has_begun:
        return latest
    ready = control.last_event("first-trigger", launch_id=driver.launch_id, newest=_READY_EVENTS)
    return min(latest, max(began_at, (time_or_none(ready.get("at")) if ready else None) or began_at))


def _unwatched(
    watch: WatchView | None, desired: Desired, now: datetime, start_over_at: Callable[[], datetime]
) -> tuple[datetime | None, str]:
    """Since when no watcher gives signs where one is expected, and why; None where the next one is due."""
    before = watch is None or (watch.desired != desired.number and (watch.end or watch.is_silent(now)))
    if watch is None or before:
        due_at = start_over_at() + timedelta(seconds=COMES_S)
        return (due_at, "Nothing has watched it since it was started.") if now > due_at else (None, "")
    if watch.end:
        return time_or_none(watch.end.get("at")) or watch.seen_at, watch.last_word
    if watch.idle:
        why = f"Its watcher, {watch.who}, cannot act: {watch.idle['why']}."
        return time_or_none(watch.idle.get("at")) or watch.seen_at, why
    if now > watch.due_at:
        return max(watch.due_at, desired.at), watch.last_word
    return None, ""


def _since_s(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
