"""How far each replica is: per job the newest savepoint, the newest verified one, and what it all costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streambank.core.errors import FormatError, IntegrityError, NotFoundError, StorageError, StreambankError
from streambank.core.units import to_json_time
from streambank.replicas.prices import Prices
from streambank.replicas.sharing import Sharers, Shares, Sharing
from streambank.repository.catalog import SavepointSummary
from streambank.repository.repository import Repository
from streambank.storage.store import Opener

_NOT_STORED_HERE = frozenset({"jobs", "lost+found"})


@dataclass(frozen=True, slots=True)
class PlaceJobStatus:
    """One job in one repository.

    Attributes:
        savepoints: Its savepoints that can be read, oldest first.
        damaged: Those that cannot be, each with what is wrong.
        lacking: How many savepoints the first repository lists and this one does not.
        shares: Its bytes, alone and shared with other jobs of the same repository.
        shares_by_savepoint: The bytes of each savepoint, alone and shared with any other.
    """

    job: str
    savepoints: tuple[SavepointSummary, ...]
    damaged: tuple[SavepointSummary, ...]
    lacking: int
    shares: Shares
    shares_by_savepoint: tuple[Shares, ...]

    @property
    def newest(self) -> SavepointSummary | None:
        """The savepoint that was taken last."""
        return self.savepoints[-1] if self.savepoints else None

    @property
    def newest_verified(self) -> SavepointSummary | None:
        """The last one of those whose last verification found nothing: how much may be lost is its age."""
        return next(
            (each for each in reversed(self.savepoints) if each.verified_ok and not each.rejected), None
        )


@dataclass(frozen=True, slots=True)
class PlaceStatus:
    """One repository: the first one, or a replica.

    Attributes:
        role: `repository` or `replica`.
        error: Why it cannot be read; what follows is empty then.
        jobs: Each job that it or the first repository has savepoints of.
        stored_bytes: All its files, those that no savepoint needs any more among them.
        named_bytes: The objects that savepoints need, each counted once.
    """

    location: str
    role: str
    error: StreambankError | None = None
    jobs: tuple[PlaceJobStatus, ...] = ()
    stored_bytes: int = 0
    named_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """All places, as they were at one moment.

    Attributes:
        at: When, in UTC, by this machine's clock; ages are up to then.
    """

    at: datetime
    places: tuple[PlaceStatus, ...]

    @property
    def ok(self) -> bool:
        """Whether each place, and each savepoint in it, can be read."""
        return not any(place.error or any(job.damaged for job in place.jobs) for place in self.places)

    def to_dict(self, prices: Prices | None = None) -> dict[str, Any]:
        """The status as JSON."""
        return {
            "ok": self.ok,
            "at": to_json_time(self.at),
            "currency": prices.currency if prices else None,
            "places": [self._place(place, prices) for place in self.places],
        }

    def _place(self, place: PlaceStatus, prices: Prices | None) -> dict[str, Any]:
        return {
            "location": place.location,
            "role": place.role,
            "error": place.error.to_dict() if place.error else None,
            "stored_bytes": place.stored_bytes,
            "named_bytes": place.named_bytes,
            "cost_month": _cost(prices, place, place.stored_bytes),
            "jobs": [self._job(place, job, prices) for job in place.jobs],
        }

    def _job(self, place: PlaceStatus, job: PlaceJobStatus, prices: Prices | None) -> dict[str, Any]:
        return {
            "job": job.job,
            "count": len(job.savepoints),
            "lacking": job.lacking,
            "newest": self._summary(job.newest),
            "newest_verified": self._summary(job.newest_verified),
            "alone_bytes": job.shares.alone_bytes,
            "shared_bytes": job.shares.shared_bytes,
            "alone_cost_month": _cost(prices, place, job.shares.alone_bytes),
            "damaged": [
                {"savepoint": each.savepoint, **(each.error.to_dict() if each.error else {})}
                for each in job.damaged
            ],
            "savepoints": [
                {
                    **(self._summary(each) or {}),
                    "pinned": each.pinned,
                    "alone_bytes": shares.alone_bytes,
                    "shared_bytes": shares.shared_bytes,
                    "alone_cost_month": _cost(prices, place, shares.alone_bytes),
                }
                for each, shares in zip(job.savepoints, job.shares_by_savepoint, strict=True)
            ],
        }

    def _summary(self, each: SavepointSummary | None) -> dict[str, Any] | None:
        if each is None or each.taken_at is None:
            return None
        found = each.to_dict()
        names = ("savepoint", "batch", "taken_at", "verified_at", "verified_level", "hashed_since")
        age_s = round((self.at - each.taken_at).total_seconds(), 3)
        return {name: found[name] for name in names} | {"age_s": age_s}


def status(opener: Opener, repository: str, replicas: Sequence[str], at: datetime) -> Status:
    """Look at a repository and its replicas. Only reads.

    Raises:
        InputError: One of them is no location.
    """
    first = _look(opener, repository, "repository", {})
    known = {job.job: {each.savepoint for each in job.savepoints} for job in first.jobs}
    return Status(at, (first, *(_look(opener, location, "replica", known) for location in replicas)))


def _look(opener: Opener, location: str, role: str, known: dict[str, set[str]]) -> PlaceStatus:
    try:
        store = opener(location)
        repository = Repository.open(store)
        found: dict[str, list[SavepointSummary]] = {job: [] for job in known}
        for summary in repository.manifests():
            found.setdefault(summary.job, []).append(summary)
        damaged, sharing = _sharing(repository, found)
        jobs = tuple(_job(job, found[job], damaged, sharing, known.get(job, set())) for job in sorted(found))
        parts = [name for name in store.names() if name not in _NOT_STORED_HERE]
        stored = sum(info.size_bytes for part in parts for info in store.list(part))
        return PlaceStatus(store.uri, role, None, jobs, stored, sharing.named_bytes)
    except (NotFoundError, FormatError, IntegrityError, StorageError) as error:
        return PlaceStatus(location, role, error)


def _sharing(
    repository: Repository, found: dict[str, list[SavepointSummary]]
) -> tuple[dict[tuple[str, str], StreambankError], Sharing]:
    """Who shares what, and savepoints of which only the head can be read."""
    sharers = Sharers()
    damaged: dict[tuple[str, str], StreambankError] = {}
    for job, summaries in found.items():
        for summary in summaries:
            if summary.error is not None:
                continue
            try:
                manifest = repository.load(job, summary.savepoint)
            except (NotFoundError, IntegrityError, FormatError) as error:
                damaged[job, summary.savepoint] = error
                continue
            sharers.add(job, summary.savepoint, manifest.objects().items())
    return damaged, sharers.result()


def _job(
    job: str,
    summaries: Sequence[SavepointSummary],
    damaged: dict[tuple[str, str], StreambankError],
    sharing: Sharing,
    known: set[str],
) -> PlaceJobStatus:
    errors = {each.savepoint: each.error or damaged.get((job, each.savepoint)) for each in summaries}
    # One that was deleted between the listing and the look at it is neither.
    whole = tuple(each for each in summaries if errors[each.savepoint] is None)
    bad = tuple(
        SavepointSummary(savepoint=each.savepoint, job=job, error=errors[each.savepoint])
        for each in summaries
        if errors[each.savepoint] is not None and not isinstance(errors[each.savepoint], NotFoundError)
    )
    return PlaceJobStatus(
        job=job,
        savepoints=whole,
        damaged=bad,
        lacking=len(known - {each.savepoint for each in summaries}),
        shares=sharing.jobs.get(job, Shares()),
        shares_by_savepoint=tuple(sharing.savepoints[job, each.savepoint] for each in whole),
    )


def _cost(prices: Prices | None, place: PlaceStatus, size_bytes: int) -> float | None:
    cost = prices.per_month(place.location, size_bytes) if prices else None
    return None if cost is None else round(cost, 6)
