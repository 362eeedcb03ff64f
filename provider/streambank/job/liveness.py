"""What drivers a job has had, by the lease: when each came and went, and whether it ever did any work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.control.records import JsonDict, read_or_empty
from streambank.core.units import time_or_none
from streambank.driver.failure import root_cause

NEWEST_LIVES = 50
"""How many drivers are looked at, the newest ones."""
_WORKED_S = 300.0
"""A driver that found its input empty for so long has worked, without a batch."""


@dataclass(frozen=True, slots=True)
class DriverLife:
    """One driver that has had the lease.

    Attributes:
        began_at: When it took the lease.
        seen_at: Its last heartbeat; when it took the lease, before the first.
        end: How its epoch ended (`how`, `at`, `exit_code`); empty where nothing was recorded.
        triggered: Whether each query's first trigger was over.
        worked: Whether it has committed a batch, or found its input empty for some minutes.
    """

    epoch: int
    launch_id: str | None
    began_at: datetime
    seen_at: datetime
    status: Mapping[str, Any] = field(default_factory=dict)
    end: Mapping[str, Any] = field(default_factory=dict)
    triggered: bool = False
    worked: bool = False

    @property
    def exit_code(self) -> int | None:
        """With which it gave the lease back; None where it did not."""
        code = self.end.get("exit_code")
        return code if isinstance(code, int) else None

    @property
    def released(self) -> bool:
        """Whether it gave the lease back itself."""
        return self.exit_code is not None

    @property
    def has_begun(self) -> bool:
        """Whether it works, or has at least begun to."""
        return self.worked or self.triggered

    @property
    def over_at(self) -> datetime:
        """When it ended: by its own word, else by its last heartbeat (others may find it dead much later)."""
        return (time_or_none(self.end.get("at")) if self.released else None) or self.seen_at


@dataclass(frozen=True, slots=True)
class Failure:
    """One driver that failed or died, or that a program replaced."""

    at: datetime
    driver: str
    what: str


def driver_lives(
    control: JobControl, queries: Collection[str], *, newest: int = NEWEST_LIVES
) -> list[DriverLife]:
    """The newest drivers that had the lease, newest first; operations that held it are left out."""
    records = control.lease.claims.records
    found = []
    for number in reversed(records.numbers()[-newest:]):
        data = read_or_empty(control.store, records.key(number))
        began_at = time_or_none(data.get("at"))
        if began_at is None or data.get("purpose", "run") != "run":
            continue
        beat = read_or_empty(control.store, records.key(number, ".beat"))
        end = read_or_empty(control.store, records.key(number, ".end"))
        found.append(_driver_life(number, data, began_at, beat, end, queries))
    return found


def life_of(view: ClaimView, queries: Collection[str]) -> DriverLife | None:
    """The driver that has, or had, the newest epoch of the lease: what its view says, and nothing is read.

    Returns:
        None where an operation has it, or its record cannot be read.
    """
    details = {} if view.holder is None else view.holder.details
    if view.holder is None or view.since is None or details.get("purpose", "run") != "run":
        return None
    return _driver_life(view.epoch, details, view.since, view.beat, view.end, queries)


def _driver_life(
    epoch: int,
    details: Mapping[str, Any],
    began_at: datetime,
    beat: Mapping[str, Any],
    end: Mapping[str, Any],
    queries: Collection[str],
) -> DriverLife:
    said = beat.get("status")
    status: Mapping[str, Any] = said if isinstance(said, dict) else {}
    seen_at = time_or_none(beat.get("at")) or began_at
    about = status.get("queries")
    of_queries: Mapping[str, Any] = about if isinstance(about, dict) else {}
    known = [one for name in queries if isinstance(one := of_queries.get(name), dict)]
    triggered = len(known) == len(queries) and all(one.get("triggered") for one in known)
    committed = any(isinstance(one.get("batch"), int) and one["batch"] >= 0 for one in known)
    idle = triggered and (seen_at - began_at).total_seconds() >= _WORKED_S
    launch_id = details.get("launch_id")
    return DriverLife(
        epoch,
        str(launch_id) if launch_id is not None else None,
        began_at,
        seen_at,
        status,
        end,
        triggered,
        committed or idle,
    )


def stops_of(events: Iterable[JsonDict]) -> set[int]:
    """The epochs of drivers that ended because they were asked to, by the job's events."""
    found = set()
    for event in events:
        asked = event.get("kind") == "stop-asked" or (
            event.get("kind") == "stopped" and event.get("how") in ("boundary", "forced", "killed")
        )
        if asked and isinstance(event.get("epoch"), int):
            found.add(event["epoch"])
    return found


def early_deaths(
    events: Iterable[JsonDict], lives: Iterable[DriverLife]
) -> Iterator[tuple[datetime, JsonDict]]:
    """Drivers that ended before they took the lease, oldest first: when, and the event."""
    had_it = {one.launch_id for one in lives}
    for event in events:
        at = time_or_none(event.get("at"))
        if event.get("kind") == "driver-died" and event.get("launch_id") not in had_it and at is not None:
            yield at, event


def failures_of_job(
    job: str, events: Iterable[JsonDict], lives: Iterable[DriverLife], living: int | None
) -> list[Failure]:
    """Drivers that failed or died, and those that a program replaced, by time.

    A driver that a person stops, or restarts, is not among them.

    Args:
        living: The epoch of the one that lives; None for none.
    """
    known, drivers = list(events), list(lives)
    stops, found = stops_of(known), []
    causes = {
        event.get("launch_id"): str(event["failure"])
        for event in known
        if event.get("kind") == "query-ended" and event.get("failure")
    }
    for one in drivers:
        if one.epoch == living or one.epoch in stops or one.exit_code == 0:
            continue
        how = "died" if one.exit_code is None else f"ended with exit code {one.exit_code}"
        said = causes.get(one.launch_id)
        why = "" if said is None else f": {root_cause(said, job).rstrip('.')}"
        found.append(Failure(one.over_at, one.launch_id or f"epoch {one.epoch}", f"its driver {how}{why}"))
    for at, event in early_deaths(known, drivers):
        found.append(Failure(at, str(event.get("launch_id")), "its driver ended before it took the lease"))
    for event in known:
        moment = time_or_none(event.get("at"))
        if event.get("kind") == "restarted" and event.get("cause") and moment is not None:
            found.append(
                Failure(moment, f"epoch {event.get('epoch')}", f"it was restarted for {event['cause']}")
            )
    return sorted(found, key=lambda one: one.at)
