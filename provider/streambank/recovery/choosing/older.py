"""What comes next where the savepoint that a time, or `latest`, means is damaged: named, never just taken.

A person who names a moment decides how much is processed again. So a restore to an older savepoint than the
one that the moment means is refused, and the refusal names the newest older one that verifies. `latest-good`
is the reference that walks back by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from streambank.core.errors import IntegrityError, StreambankError
from streambank.core.units import say_count, say_duration, to_json_time
from streambank.repository.catalog import SavepointSummary, batch_of_id, glimpse, heads, listed
from streambank.repository.manifest import Manifest
from streambank.storage.store import Store

BY_AGE = ("latest", "time")
"""Kinds of references that mean the newest savepoint there is, or was at a moment."""
_Error = TypeVar("_Error", bound=StreambankError)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Savepoints of later batches than the one that a reference by age means, whose manifests say nothing.

    Attributes:
        meant: Any of these may be the one that is meant.
        later: These seem younger than the moment: a readable one of no later batch was taken after it, or
            the moment is the very one of the savepoint that was found.
    """

    meant: tuple[str, ...] = ()
    later: tuple[str, ...] = ()

    def error(self, job: str, said: str) -> IntegrityError:
        """That it cannot be said which savepoint is meant."""
        one = self.meant[0]
        return IntegrityError(
            f"The manifest of the savepoint {one} of {job} cannot be read, so {said} may mean that one.",
            code="savepoint-damaged",
            hint="Verify it to see what is wrong. A replica may have it undamaged.",
        )


def unreadable(stores: Sequence[Store], found: Manifest, as_of: datetime | None) -> Unreadable:
    """Look for savepoints that a reference by age passes over because nothing says when they were taken.

    Args:
        stores: The repository, or it and its replicas: one that any of them can read does not count.
        as_of: The moment that is meant; None for `latest`.
    """
    job = found.job
    there = {one for store in stores for of_job, one in listed(store, job) if of_job == job}
    newer = {one for one in there if batch_of_id(one) > found.batch}
    hidden = [one for one in newer if not any(glimpse(store, job, one) for store in stores)]
    if hidden:  # not those that were expired meanwhile
        left = {one for store in stores for _, one in listed(store, job)}
        hidden = [one for one in hidden if one in left]
    if not hidden:
        return Unreadable()
    after = [
        head.batch
        for store in stores
        for head in heads(store, job)
        if head.job == job and as_of is not None and head.taken_at > as_of and head.batch > found.batch
    ]
    later = {one for one in hidden if after and batch_of_id(one) >= min(after)}
    if as_of == found.taken_at:  # a person named the very moment of this one
        later = set(hidden)
    hidden.sort(key=lambda one: (batch_of_id(one), one), reverse=True)
    return Unreadable(
        tuple(one for one in hidden if one not in later), tuple(one for one in hidden if one in later)
    )


def with_older(
    error: _Error,
    said: str,
    meant: Manifest | None,
    summaries: Iterable[SavepointSummary],
    verifies: Callable[[str], bool],
    *,
    as_of: datetime | None = None,
    beside: Sequence[Sequence[datetime]] | None = None,
) -> _Error:
    """The same error, with the newest older savepoint that verifies; the error itself where there is none.

    Args:
        verifies: Whether every byte of one is there, by its id.
        as_of: The moment that the reference means; no savepoint that was taken later is an older one.
        beside: Where the reference is of all queries of a job, when the savepoints of each other one were
            taken: the hint is then a time.
    """
    known = [
        (one.taken_at, one.batch, one.savepoint)
        for one in summaries
        if one.taken_at is not None and one.batch is not None
    ]
    before = [
        one
        for one in known
        if (meant is None or one[0] < meant.taken_at) and (as_of is None or one[0] <= as_of)
    ]
    for taken_at, batch, savepoint in sorted(before, reverse=True):
        if not verifies(savepoint):
            continue
        back = "" if meant is None else f", {_earlier(meant, taken_at, batch)}"
        message = (
            f"{error.message} The newest older one that verifies is {savepoint} of batch {batch:,}, taken at "
            f"{to_json_time(taken_at)}{back}."
        )
        give: str | None = savepoint
        if beside is not None:
            later = [one for one, _, _ in known if one > taken_at] + ([meant.taken_at] if meant else [])
            moment = _moment_of_all(taken_at, min(later, default=None), beside)
            # A later moment may still mean the one whose manifest cannot be read.
            give = to_json_time(moment) if meant is not None or moment == taken_at else None
        back_by_itself = "latest-good goes back by itself"
        hint = (
            f"To go back that far, give {give} as the savepoint instead of {said}; {back_by_itself}."
            if give is not None
            else f"{back_by_itself.capitalize()}, with all queries to savepoints that belong together."
        )
        hint = f"{hint} A replica may have the damaged one undamaged."
        return type(error)(message, code=error.code, hint=hint)
    return error


def _moment_of_all(
    older: datetime, before: datetime | None, beside: Sequence[Sequence[datetime]]
) -> datetime:
    """A time that means savepoints of all queries close to one of them.

    A time means the newest savepoint from then or before. So the moment of the older savepoint alone would
    lead the queries that are saved right after it to savepoints of the round before.

    Args:
        before: When the next one of its query was taken, which must not be meant.
    """
    closest = [min(times, key=lambda one: abs(one - older)) for times in beside if times]
    moment = max([older, *closest])
    return moment if before is None or moment < before else max(older, before - timedelta(milliseconds=1))


def _earlier(meant: Manifest, taken_at: datetime, batch: int) -> str:
    """How much further back an older savepoint is than the one that is meant."""
    earlier = f"{say_duration((meant.taken_at - taken_at).total_seconds())} earlier"
    batches = meant.batch - batch
    return f"{earlier} and {say_count(batches, 'batch')} before" if batches > 0 else earlier
