"""Whether a running job gets on: judged by progress, not by its processes. Nothing is read here.

A query gets on when it commits a batch, or when one of its triggers finds that there is nothing to do. Its
driver says with each heartbeat for how long neither has happened, by its own clock that does not count
what it did not live to see (`still_s`; docs/formats/job.md). Whoever looks on adds what they see themselves:
for how long that heartbeat has been standing still, which a frozen driver cannot say, and batches that appear
in the commit log, which a driver may fail to notice. No two clocks are compared, so a clock that jumps
changes nothing.

What cannot be told is `unknown`, and nobody acts on that.

The clock that judges (`AwakeClock`) stands still while nobody looks. A process that was frozen (SIGSTOP, a
virtual machine that was paused) finds, when it goes on, that an hour has passed on every clock of the machine
that it has not seen a second of. Who then says "nothing has moved for an hour" is wrong. So the time between
two looks counts only up to a bound.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from streambank.control.claims import ClaimView
from streambank.core.shape import JsonObject
from streambank.core.units import number_or_none
from streambank.declaration.health import HealthPolicy

HealthState = Literal["healthy", "unhealthy", "unknown"]


@dataclass(frozen=True, slots=True)
class Health(JsonObject):
    """How a job with a living driver gets on.

    Attributes:
        state: `healthy`; `unhealthy`: a query has made no progress for longer than it may; `unknown`.
        why: What that rests on, as half a sentence.
        query: The query that is nearest to its limit, or beyond it; None where none runs.
        still_s: For how long it has made no progress, in seconds.
    """

    state: HealthState
    why: str
    query: str | None = None
    still_s: float | None = None
    window_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unhealthy(JsonObject):
    """A driver that was found to make no progress, for who is to replace it; JSON by `to_dict`.

    Attributes:
        beat: The number of its last heartbeat then; None where there was none.
        silent_s: For how long that heartbeat had been standing still.
        batches: The newest committed batch of each query then.
        failures: How many drivers in a row before it made no batch, by which it was judged.
    """

    epoch: int
    beat: int | None = None
    silent_s: float = 0.0
    batches: Mapping[str, int | None] = field(default_factory=dict)
    why: str = ""
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Inputs:
    """What an observer adds to what the driver says of itself; nothing where they look for the first time.

    Attributes:
        silent_s: For how long the driver's heartbeat has been standing still, in seconds.
        committed_s: How long ago a new batch of a query appeared, by query; only of those where one did.
        frozen: Which processes of the driver are stopped, as half a sentence; empty for none.
    """

    silent_s: float = 0.0
    committed_s: Mapping[str, float] = field(default_factory=dict)
    frozen: str = ""


class Observer:
    """Sees what a driver cannot say. Keep one for as long as you watch a job.

    Args:
        clock: A clock that stands still while the observer does.
    """

    def __init__(self, clock: AwakeClock | None = None) -> None:
        self._clock = clock or AwakeClock()
        self._beat: tuple[int, Any] | None = None
        self._beat_at = 0.0
        self._batches: dict[str, int | None] = {}
        self._committed_at: dict[str, float] = {}

    def look(self, view: ClaimView, batches: Mapping[str, int | None]) -> Inputs:
        """Look once more.

        Args:
            batches: The newest committed batch of each query.
        """
        now = self._clock.now()
        beat = (view.epoch, view.beat.get("beat"))
        if self._beat is None or self._beat[0] != view.epoch:
            self._batches, self._committed_at = dict(batches), {}
        if self._beat != beat:
            self._beat, self._beat_at = beat, now
        for name, batch in batches.items():
            if batch != self._batches.get(name):
                self._batches[name], self._committed_at[name] = batch, now
        committed_s = {name: now - at for name, at in self._committed_at.items()}
        return Inputs(now - self._beat_at, committed_s, view.frozen)


NO_INPUTS = Inputs()


def judge_health(
    policy: HealthPolicy, queries: Iterable[str], said: Mapping[str, Any], inputs: Inputs = NO_INPUTS
) -> Health:
    """Judge a job whose driver lives.

    Args:
        said: What its driver said with its last heartbeat.
    """
    driver_s = _seconds(said.get("still_s"))
    if driver_s is None:
        return Health("unknown", "its driver does not say when it last made progress")
    about = said.get("queries")
    of_queries: Mapping[str, Any] = about if isinstance(about, dict) else {}
    judged: list[Health] = []
    for name in queries:
        one = of_queries.get(name)
        found = (
            _judge_query(policy, name, one, inputs)
            if isinstance(one, dict)
            else _judge_absent(policy, name, driver_s, inputs)
        )
        if found is not None and found.state == "unknown":
            return found
        if found is not None:
            judged.append(found)
    if not judged:
        return Health("healthy", "its queries have ended")
    found = max(judged, key=lambda one: (one.still_s or 0.0) / (one.window_s or 1.0))
    if not inputs.frozen:
        return found
    state: HealthState = "unhealthy" if found.state == "unhealthy" else "unknown"
    return replace(found, state=state, why=f"its driver is frozen: {inputs.frozen}; {found.why}")


def _judge_query(policy: HealthPolicy, name: str, said: Mapping[str, Any], inputs: Inputs) -> Health | None:
    """One query; None where it has ended well, which is for its application to decide."""
    failed = bool(said.get("failed"))
    if said.get("over") and not failed:
        return None
    still_s = _seconds(said.get("still_s"))
    if still_s is None:
        return Health("unknown", f"its driver does not say when query {name} last made progress", name)
    first = not isinstance(said.get("batch"), int) or said["batch"] < 0
    window_s = policy.window_s(_seconds(said.get("trigger_s")), first=first and not failed)
    still_s += inputs.silent_s
    if name in inputs.committed_s:
        still_s = min(still_s, inputs.committed_s[name])
    if failed:
        return _health(name, still_s, window_s, f"query {name} failed; it made progress {still_s:,.0f} s ago")
    if inputs.silent_s >= still_s / 2 > 0 and still_s > window_s:
        return _health(name, still_s, window_s, f"its driver has said nothing for {inputs.silent_s:,.0f} s")
    if said.get("idle") and still_s <= window_s:
        return _health(name, still_s, window_s, f"query {name} finds nothing to do")
    batch = "its first batch" if first else "a batch"
    return _health(
        name,
        still_s,
        window_s,
        f"query {name} has neither committed {batch} nor found its input empty for {still_s:,.0f} s"
        if still_s > window_s
        else f"query {name} has no batch yet since its driver began it {still_s:,.0f} s ago"
        if first
        else f"query {name} made progress {still_s:,.0f} s ago",
    )


def _judge_absent(policy: HealthPolicy, name: str, driver_s: float, inputs: Inputs) -> Health:
    """A query that its application has not started: it counts from the last thing that any query did."""
    still_s, window_s = driver_s + inputs.silent_s, policy.window_s(first=True)
    return _health(name, still_s, window_s, f"query {name} has not been started for {still_s:,.0f} s")


def _health(name: str, still_s: float, window_s: float, what: str) -> Health:
    if still_s <= window_s:
        return Health("healthy", what, name, round(still_s, 1), window_s)
    why = f"{what}; {window_s:,.0f} s are allowed"
    return Health("unhealthy", why, name, round(still_s, 1), window_s)


def _seconds(value: Any) -> float | None:
    """A number of seconds that somebody wrote; None for anything else."""
    number = number_or_none(value)
    return number if number is not None and number >= 0 else None


MOST_S = 30.0
"""How much the time between two looks counts at most, in seconds, where nobody says anything else."""


class AwakeClock:
    """Seconds that somebody was looking; safe to use from several threads.

    Args:
        most_s: How much the time between two looks counts at most: more than what lies between two of them
            when all is well.
    """

    def __init__(self, most_s: float = MOST_S, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most_s = most_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._looked_at = monotonic()
        self._now = 0.0

    def now(self) -> float:
        """Seconds since this clock was made, less what nobody has seen of them. This is a look."""
        with self._lock:
            moment = self._monotonic()
            self._now += min(max(0.0, moment - self._looked_at), self._most_s)
            self._looked_at = moment
            return self._now
