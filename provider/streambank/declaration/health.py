"""When a job counts as unhealthy, and what is done about it: `[jobs.NAME.health]`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from streambank.declaration.fields import Fields
from streambank.declaration.policy import UNDECLARED, at_least, read_policy


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """`[jobs.NAME.health]`.

    Attributes:
        interval_s: How often a query is to commit a batch, or to find that there is nothing to do. A query
            whose trigger has its own longer interval is given that.
        tolerated: How many such times may pass without either.
        first_batch_s: How long the first batch of a driver may take, which loads the state; None for twice
            the window.
        restart: Whether `<job>.run` restarts an unhealthy job.
        backoff_s: Pause before the second start in a row; doubled for each one after it.
        max_failures: How many drivers in a row may end, or be unhealthy, without a new batch.
        max_restarts: How many drivers may be started within `restarts_within_s` in place of another one,
            whatever they committed.
        first_times: By how much the time for the first batch is multiplied; not declared (`after`).
    """

    interval_s: float = 60.0
    timeout_s: float = 600.0
    tolerated: Annotated[int, at_least(0)] = 3
    first_batch_s: float | None = None
    restart: bool = True
    backoff_s: float = 10.0
    max_backoff_s: float = 300.0
    max_failures: int = 3
    max_restarts: int = 20
    restarts_within_s: float = 3600.0
    first_times: Annotated[float, UNDECLARED] = 1.0

    def after(self, failures: int) -> HealthPolicy:
        """The same after so many drivers in a row without a new batch: the next one's first has more time.

        A first batch that loads more state than anybody thought of would otherwise be ended for ever.
        """
        return replace(self, first_times=2.0 ** min(failures, 20))

    def window_s(self, trigger_s: float | None = None, *, first: bool = False) -> float:
        """How long a query may make no progress: `max(interval, timeout) x (tolerated + 2)`.

        Args:
            trigger_s: The interval of the query's own trigger; None where it is not known or has none.
        """
        window_s = max(self.interval_s, self.timeout_s, trigger_s or 0.0) * (self.tolerated + 2)
        if not first:
            return window_s
        first_s = max(window_s, 2 * window_s if self.first_batch_s is None else self.first_batch_s)
        return first_s * self.first_times

    def pause_s(self, failures: int) -> float:
        """How long to wait before a start, after so many drivers in a row without a new batch."""
        doublings = min(max(0, failures - 1), 60)
        return min(self.max_backoff_s, self.backoff_s * 2.0**doublings)


def read_health(fields: Fields) -> HealthPolicy:
    """Of `[jobs.NAME.health]`.

    Raises:
        InputError: A field is not known or cannot be right (code `bad-declaration`).
    """
    policy = read_policy(fields, HealthPolicy)
    if policy.backoff_s > policy.max_backoff_s:
        raise fields.mistake(
            "backoff",
            f"{policy.backoff_s:g} s is longer than the longest pause, which is {policy.max_backoff_s:g} s",
            "Give another backoff, or another max_backoff.",
        )
    if policy.first_batch_s is not None and policy.first_batch_s < policy.window_s():
        raise fields.mistake(
            "first_batch",
            f"{policy.first_batch_s:g} s is less than the time that every batch gets, which is "
            f"{policy.window_s():g} s",
            "Leave it out, or give more.",
        )
    return policy
