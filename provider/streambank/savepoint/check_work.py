"""Hashing the objects of a repository, as a `Work`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from streambank.errors import StreambankError
from streambank.savepoint.executing import Work
from streambank.savepoint.executing_lines import read_error
from streambank.savepoint.grouping import grouped
from streambank.savepoint.hashing import damaged_objects
from streambank.savepoint.packs import SMALL_BYTES
from streambank.savepoint.rate import UNLIMITED, RateLimit
from streambank.savepoint.repository import Repository
from streambank.savepoint.sharing import portable, same_repository

Flaws = tuple[tuple[str, StreambankError], ...]
"""Digests of objects that are not what was stored, and what is wrong with each."""


@dataclass(frozen=True, slots=True)
class CheckTask:
    """One large object, or small ones that lie near each other.

    Attributes:
        objects: Digest and size of each.
    """

    objects: tuple[tuple[str, int], ...]

    @property
    def files(self) -> int:
        """How many objects."""
        return len(self.objects)

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return sum(size_bytes for _, size_bytes in self.objects)

    def to_dict(self) -> dict[str, Any]:
        """The task as JSON."""
        return {"objects": dict(self.objects)}


def check_tasks(repository: Repository, objects: Mapping[str, int]) -> list[CheckTask]:
    """The tasks that read every byte of some objects, each once.

    Args:
        repository: Where they are.
        objects: Digest and size of each.
    """
    small = {digest: size_bytes for digest, size_bytes in objects.items() if size_bytes <= SMALL_BYTES}
    near = grouped(repository, [(digest, size_bytes, digest) for digest, size_bytes in small.items()])
    tasks = [CheckTask(tuple((digest, small[digest]) for digest in group)) for group in near]
    tasks += [CheckTask(((digest, size),)) for digest, size in objects.items() if size > SMALL_BYTES]
    return tasks


class Checking(Work[CheckTask, Flaws]):
    """Reads objects, and compares their digests.

    Args:
        repository: Where they are.
        rate: How fast they may be read here; it does not go to machines elsewhere.
    """

    kind = "check"

    def __init__(self, repository: Repository, rate: RateLimit = UNLIMITED) -> None:
        self._repository = repository
        self._rate = rate

    def run(self, task: CheckTask) -> Flaws:
        """See `Work.run`."""
        return tuple(damaged_objects(self._repository, dict(task.objects), rate=self._rate))

    # For machines elsewhere

    def header(self) -> dict[str, Any]:
        """See `Work.header`."""
        return {"repository": portable(self._repository.store.uri), "repository_id": self._repository.id}

    @classmethod
    @contextmanager
    def opened(cls, header: Mapping[str, Any]) -> Iterator[Self]:
        """See `Work.opened`."""
        yield cls(same_repository(header["repository"], header["repository_id"]))

    @classmethod
    def read_task(cls, data: Mapping[str, Any]) -> CheckTask:
        """See `Work.read_task`."""
        return CheckTask(tuple(data["objects"].items()))

    @classmethod
    def write_outcome(cls, outcome: Flaws) -> dict[str, Any]:
        """See `Work.write_outcome`."""
        return {"flaws": {digest: error.to_dict() for digest, error in outcome}} if outcome else {}

    @classmethod
    def read_outcome(cls, task: CheckTask, data: Mapping[str, Any]) -> Flaws:
        """See `Work.read_outcome`."""
        return tuple((digest, read_error(error)) for digest, error in data.get("flaws", {}).items())
