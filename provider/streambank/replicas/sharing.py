"""Which bytes of a repository each job and savepoint holds alone, and which it shares.

Same bytes are kept once, so the sizes of savepoints do not add up. Alone is what nobody else names: that much
would be free if this one were gone. Shared is the rest of what it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streambank.repository.digest import split_digest

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
