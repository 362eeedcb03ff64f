"""The ages of what a job would be restored from: its savepoints, those in its replicas, and its drills.

Objectives promise these ages (`savepoint_age`, `replica_age`, `drill_age`), and are judged only where a job
declares them. A metric is of use without a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

from streambank.core.errors import StreambankError
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.sla.judge.savepoints import (
    drills_seen,
    newest_in_replicas,
    newest_savepoints,
    replicas_of,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ages:
    """What is known, in seconds before now. What cannot be read, and what is not there, is left out.

    Attributes:
        savepoint_s: By query, the age of the newest savepoint that is not known to be damaged.
        replica_s: By query, the age of the newest such savepoint in the replica that is furthest behind; none
            where a replica has no savepoint, or cannot be read.
        drill_s: How long ago the newest drill that passed began; None where none has passed.
        drill_passed: Whether the newest drill passed; None where there was none.
    """

    savepoint_s: Mapping[str, float] = field(default_factory=dict)
    replica_s: Mapping[str, float] = field(default_factory=dict)
    drill_s: float | None = None
    drill_passed: bool | None = None


def ages_of_job(job: Job, *, query: str | None = None, now: datetime | None = None) -> Ages:
    """The ages of a declared job, or of its `query`. Reads only, and raises nothing for what cannot be read.

    Raises:
        InputError: It has no such query (code `no-such-query`).
    """
    at, names = now or utc_now(), job.queries_named(query)

    def age_s(moment: datetime) -> float:
        return max(0.0, (at - moment).total_seconds())

    savepoint_s: dict[str, float] = {}
    replica_s: dict[str, float] = {}
    replicas, records = replicas_of(job), _or_none(job.records)
    for name in names:
        savepoint = job.savepoint_name(name)
        found = _or_none(partial(newest_savepoints, job.repository, savepoint, records))
        if found:
            savepoint_s[name] = age_s(found[0].at)
        brought = newest_in_replicas(replicas, savepoint, records).newest
        known = [one.at for one in brought.values() if one is not None]
        if known and len(known) == len(replicas):
            replica_s[name] = age_s(min(known))
    drills = _or_none(lambda: drills_seen(job.records(), ()))
    if drills is None or (drills.passed_at is None and not drills.failed):
        return Ages(savepoint_s, replica_s)
    drill_s = None if drills.passed_at is None else age_s(drills.passed_at)
    return Ages(savepoint_s, replica_s, drill_s, not drills.failed)


def _or_none(look: Callable[[], T]) -> T | None:
    try:
        return look()
    except StreambankError:
        return None
