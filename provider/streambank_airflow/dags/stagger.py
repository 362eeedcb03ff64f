"""Spreading the runs of many jobs that declare the same schedule, by shifting each job's minutes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise

from streambank.core.zones import UTC_NAME
from streambank.declaration.declaration import Job
from streambank.declaration.schedules import PRESETS

SHIFTED = "Declared with the schedule `{}`; runs on `{}`, so that jobs do not all start at once."
"""What the page of a DAG says where its schedule is not the declared one."""
_PART = re.compile(r"(?:\*|([0-9]{1,2})(?:-([0-9]{1,2}))?)(?:/([0-9]{1,2}))?")


def staggered(schedule: str, job: str, window_s: float, barred: Iterable[int] = ()) -> str:
    """The schedule of one of many jobs: up to a window later than declared, each job always by as much.

    Only the minutes move, all by the same number, which the job's name decides: never past the hour, and less
    than the time between two runs, so that there are as many runs as declared; and not as far as a window in
    which runs are skipped, so that no job is skipped that was declared before it.

    Args:
        schedule: A cron expression of five fields or one of Airflow's presets.
        window_s: Over how much time jobs are spread, in seconds.
        barred: Minutes of the hour at which such windows begin.

    Returns:
        The shifted cron expression; the schedule as it is where nothing can be shifted.
    """
    minute, _, rest = PRESETS.get(schedule, schedule).strip().partition(" ")
    minutes = _minutes(minute)
    if not minutes or len(rest.split()) != 4:
        return schedule
    gaps = [later - earlier for earlier, later in pairwise(minutes)]
    ahead = [begin - one for begin in barred for one in minutes if begin > one]
    places = min(int(window_s // 60), 60 - minutes[-1], *gaps, *ahead)
    if places < 2:
        return schedule
    shift = int.from_bytes(sha256(job.encode()).digest()[:8]) % places
    return f"{','.join(str(one + shift) for one in minutes)} {rest}" if shift else schedule


def unshifted_alone(job: Job, jobs: Collection[Job]) -> Job:
    """The job; with the minutes that it declares where no other one of all `jobs` has the same schedule."""
    others = [other for other in jobs if other.name != job.name]
    saved, judged, drilled = job.savepoint, job.sla, job.drill
    saves, judges = _Times(saved.schedule, job.time_zone), _Times(judged.schedule, job.time_zone)
    drills = _Times(drilled.schedule, job.time_zone)
    if not any(saves.meet(_Times(other.savepoint.schedule, other.time_zone)) for other in others):
        saved = replace(saved, stagger_s=0.0)
    if not any(judges.meet(_Times(other.sla.schedule, other.time_zone)) for other in others):
        judged = replace(judged, spread=False)
    if not any(drills.meet(_Times(other.drill.schedule, other.time_zone)) for other in others):
        drilled = replace(drilled, spread=False)
    return replace(job, savepoint=saved, sla=judged, drill=drilled)


@dataclass(frozen=True, slots=True)
class _Times:
    """A schedule, if there is one, and the time zone by whose clocks it is; None for Airflow's default."""

    schedule: str | None
    time_zone: str | None

    def meet(self, other: _Times) -> bool:
        """Whether this is the schedule of another job too, so that both would run at the same moments.

        By the clocks of two zones, one schedule is two, unless it is of every hour.
        """
        if self.schedule is None or other.schedule is None:
            return False
        one = PRESETS.get(self.schedule, self.schedule)
        if one != PRESETS.get(other.schedule, other.schedule):
            return False
        return (self.time_zone or UTC_NAME) == (other.time_zone or UTC_NAME) or one.split()[1:2] == ["*"]


def _minutes(field: str) -> list[int]:
    """The minutes that a cron field names, in order; none where it is none that is understood here."""
    found: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            return []
        first, last, step = (None if text is None else int(text) for text in match.groups())
        if first is None:
            first, last = 0, 59
        elif last is None:
            last = first if step is None else 59
        if step == 0 or not 0 <= first <= last <= 59:
            return []
        found.update(range(first, last + 1, step or 1))
    return sorted(found)
