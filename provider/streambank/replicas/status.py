"""How far each replica is: per job the newest savepoint, the newest verified one, and what it all costs.

Which bytes of a repository each job and savepoint holds alone, and which it shares.

Same bytes are kept once, so the sizes of savepoints do not add up. Alone is what nobody else names: that much
would be free if this one were gone. Shared is the rest of what it names.

What keeping bytes costs a month, from a table that can be edited.

    currency = "$"

    [per_gb_month]
    file = 0.10                     # by the scheme of a location,
    s3 = 0.023                      # s3a:// is s3:// here
    "s3://archive/streambank" = 0.004   # or by its beginning: the longest one that fits counts

A gigabyte is 10^9 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from streambank.core.errors import (
    FormatError,
    InputError,
    IntegrityError,
    NotFoundError,
    StorageError,
    StreambankError,
)
from streambank.core.python310 import parse_toml
from streambank.core.units import to_json_time
from streambank.repository.catalog import SavepointSummary
from streambank.repository.digest import split_digest
from streambank.repository.repository import Repository
from streambank.storage.locations import scheme_of
from streambank.storage.store import Opener

_NOT_STORED_HERE = frozenset({"jobs", "lost+found"})


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job in one repository.

    Attributes:
        job: `job` or `job/query`.
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
        location: Its URI, or the location as it was given.
        role: `repository` or `replica`.
        error: Why it cannot be read; what follows is empty then.
        jobs: Each job that it or the first repository has savepoints of.
        stored_bytes: All its files, those that no savepoint needs any more among them.
        named_bytes: The objects that savepoints need, each counted once.
    """

    location: str
    role: str
    error: StreambankError | None = None
    jobs: tuple[JobStatus, ...] = ()
    stored_bytes: int = 0
    named_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """All places, as they were at one moment.

    Attributes:
        at: When, in UTC, by this machine's clock; ages are up to then.
        places: The repository, then its replicas in the order they were named.
    """

    at: datetime
    places: tuple[PlaceStatus, ...]

    @property
    def ok(self) -> bool:
        """Whether each place, and each savepoint in it, can be read."""
        return not any(place.error or any(job.damaged for job in place.jobs) for place in self.places)

    def to_dict(self, prices: Prices | None = None) -> dict[str, Any]:
        """The status as JSON.

        Args:
            prices: Tell what it costs, too.
        """
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

    def _job(self, place: PlaceStatus, job: JobStatus, prices: Prices | None) -> dict[str, Any]:
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

    Args:
        repository: Location of the first one.

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
) -> JobStatus:
    errors = {each.savepoint: each.error or damaged.get((job, each.savepoint)) for each in summaries}
    # One that was deleted between the listing and the look at it is neither.
    whole = tuple(each for each in summaries if errors[each.savepoint] is None)
    bad = tuple(
        SavepointSummary(savepoint=each.savepoint, job=job, error=errors[each.savepoint])
        for each in summaries
        if errors[each.savepoint] is not None and not isinstance(errors[each.savepoint], NotFoundError)
    )
    return JobStatus(
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


_SEVERAL = -1


@dataclass(frozen=True, slots=True)
class Shares:
    """The bytes of one job or savepoint, each object counted once.

    Attributes:
        alone_bytes: Of objects that only it names.
        shared_bytes: Of objects that others name, too.
    """

    alone_bytes: int = 0
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Sharing:
    """Who shares what in one repository.

    Attributes:
        named_bytes: Of all objects that any savepoint names, each counted once.
        jobs: The shares of each job.
        savepoints: The shares of each savepoint, by job and id.
    """

    named_bytes: int
    jobs: Mapping[str, Shares]
    savepoints: Mapping[tuple[str, str], Shares]


class Sharers:
    """Collects who names what, one savepoint after the other, in some 100 bytes for each object."""

    def __init__(self) -> None:
        self._jobs: list[str] = []
        self._savepoints: list[tuple[str, str]] = []
        self._numbers: dict[str, int] = {}
        self._owners: dict[bytes, tuple[int, int, int]] = {}  # digest -> size, savepoint, job
        self._named: list[int] = []  # of each savepoint: bytes
        self._named_by_job: list[int] = []
        self._seen: set[bytes] = set()  # what the job that is being taken in has named so far

    def add(self, job: str, savepoint: str, objects: Iterable[tuple[str, int]]) -> None:
        """Take in a savepoint; those of one job follow each other.

        Args:
            objects: Digest and size of what it names, each digest once.
        """
        mine = len(self._savepoints)
        self._savepoints.append((job, savepoint))
        self._named.append(0)
        number = self._numbers.setdefault(job, len(self._jobs))
        if number == len(self._jobs):
            self._jobs.append(job)
            self._named_by_job.append(0)
            self._seen.clear()
        for digest, size_bytes in objects:
            self._named[mine] += size_bytes
            raw = bytes.fromhex(split_digest(digest)[1])
            if raw not in self._seen:
                self._seen.add(raw)
                self._named_by_job[number] += size_bytes
            before = self._owners.get(raw)
            if before is None:
                self._owners[raw] = size_bytes, mine, number
            else:
                self._owners[raw] = size_bytes, _SEVERAL, number if before[2] == number else _SEVERAL

    def result(self) -> Sharing:
        """Who shares what, of all that was taken in."""
        alone = [0] * len(self._savepoints)
        alone_by_job = [0] * len(self._jobs)
        for size_bytes, savepoint, job in self._owners.values():
            if savepoint != _SEVERAL:
                alone[savepoint] += size_bytes
            if job != _SEVERAL:
                alone_by_job[job] += size_bytes
        return Sharing(
            named_bytes=sum(size_bytes for size_bytes, _, _ in self._owners.values()),
            jobs={
                job: Shares(alone_by_job[number], self._named_by_job[number] - alone_by_job[number])
                for job, number in self._numbers.items()
            },
            savepoints={
                which: Shares(alone[number], self._named[number] - alone[number])
                for number, which in enumerate(self._savepoints)
            },
        )


DEFAULT_PRICES: Mapping[str, float] = {"file": 0.10, "hdfs": 0.03, "s3": 0.023}
"""Per GB and month, in dollars: a local SSD, HDFS with three copies on disks, Amazon S3 Standard."""
GB = 10**9


@dataclass(frozen=True, slots=True)
class Prices:
    """What a gigabyte costs a month in each place.

    Attributes:
        per_gb_month: Price by scheme, or by the beginning of a location.
    """

    per_gb_month: Mapping[str, float] = field(default_factory=lambda: DEFAULT_PRICES)
    currency: str = "$"

    def per_month(self, location: str, size_bytes: int) -> float | None:
        """What keeping some bytes in a place costs a month; None where the table has no price for it.

        Args:
            location: URI of the repository.
            size_bytes: How many bytes.
        """
        price = self._price(_spelled(location))
        return None if price is None else price * size_bytes / GB

    def _price(self, location: str) -> float | None:
        places = [
            place
            for place in self.per_gb_month
            if "://" in place and (location + "/").startswith(place.rstrip("/") + "/")
        ]
        if places:
            return self.per_gb_month[max(places, key=len)]
        return self.per_gb_month.get(scheme_of(location))


def load_prices(file: Path) -> Prices:
    """The table in a TOML file; schemes that it leaves out keep their default prices.

    Raises:
        InputError: It cannot be read, or says something else (code `bad-prices`).
    """
    try:
        found = parse_toml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _bad(file, str(error)) from error
    if unknown := sorted(found.keys() - {"currency", "per_gb_month"}):
        raise _bad(file, f"{unknown[0]} is not known")
    currency, table = found.get("currency", "$"), found.get("per_gb_month", {})
    if not isinstance(currency, str) or not isinstance(table, dict):
        raise _bad(file, "currency must be a text, and per_gb_month a table")
    for place, price in table.items():
        if not _is_price(price):
            raise _bad(file, f"the price of {place} must be a number of at least 0")
    given = {_spelled(place): float(price) for place, price in table.items()}
    return Prices({**DEFAULT_PRICES, **given}, currency)


def _is_price(price: Any) -> bool:
    return isinstance(price, int | float) and not isinstance(price, bool) and 0 <= price < float("inf")


def _spelled(place: str) -> str:
    """A location as the table has it: the objects of s3a:// are those of s3://."""
    return re.sub(r"\As3a(?=://|\Z)", "s3", place)


def _bad(file: Path, why: str) -> InputError:
    return InputError(
        f"The price table {file} cannot be used: {why}.",
        code="bad-prices",
        hint='Write a table [per_gb_month] with lines such as s3 = 0.023 or "s3://archive" = 0.004.',
    )
