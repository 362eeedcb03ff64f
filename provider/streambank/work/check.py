"""Hashing the objects of a repository, as a `Work`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, Self

from streambank.core.errors import StorageError, StreambankError
from streambank.repository.repository import Repository
from streambank.storage.threads import at_once
from streambank.work.executor import Executor, Work
from streambank.work.hashing import damaged_objects
from streambank.work.object_tasks import ObjectsTask, object_tasks
from streambank.work.pace import UNLIMITED, RateLimit
from streambank.work.plan_lines import read_error
from streambank.work.progress import Meter
from streambank.work.same_location import portable, same_repository

Flaws = tuple[tuple[str, StreambankError], ...]
"""Digests of objects that are not what was stored, and what is wrong with each."""


class Checking(Work[ObjectsTask, Flaws]):
    """Reads objects, and compares their digests.

    Args:
        repository: Where they are.
        rate: How fast they may be read here; it does not go to machines elsewhere.
        also: Codes of storage errors that are flaws too; any other one is raised.
    """

    kind = "check"

    def __init__(
        self, repository: Repository, rate: RateLimit = UNLIMITED, also: Set[str] = frozenset()
    ) -> None:
        self._repository = repository
        self._rate = rate
        self._also = also

    def run(self, task: ObjectsTask) -> Flaws:
        """See `Work.run`."""
        return tuple(damaged_objects(self._repository, dict(task.objects), rate=self._rate, also=self._also))

    def at_once(self) -> int:
        """See `Work.at_once`."""
        return at_once(self._repository.store)

    # For machines elsewhere

    def header(self) -> dict[str, Any]:
        """See `Work.header`."""
        return {
            "repository": portable(self._repository.store.uri),
            "repository_id": self._repository.id,
            "also": sorted(self._also),
        }

    @classmethod
    @contextmanager
    def opened(cls, header: Mapping[str, Any]) -> Iterator[Self]:
        """See `Work.opened`."""
        repository = same_repository(header["repository"], header["repository_id"])
        yield cls(repository, also=frozenset(header["also"]))

    @classmethod
    def read_task(cls, data: Mapping[str, Any]) -> ObjectsTask:
        """See `Work.read_task`."""
        return ObjectsTask.from_dict(data)

    @classmethod
    def write_outcome(cls, outcome: Flaws) -> dict[str, Any]:
        """See `Work.write_outcome`."""
        return {"flaws": {digest: error.to_dict() for digest, error in outcome}} if outcome else {}

    @classmethod
    def read_outcome(cls, task: ObjectsTask, data: Mapping[str, Any]) -> Flaws:
        """See `Work.read_outcome`."""
        return tuple((digest, read_error(error)) for digest, error in data.get("flaws", {}).items())


def check_objects(
    repository: Repository,
    objects: Mapping[str, int],
    executor: Executor,
    *,
    meter: Meter,
    rate: RateLimit = UNLIMITED,
    also: Set[str] = frozenset(),
) -> dict[str, StreambankError]:
    """Read objects, whoever does it: those that are not what was stored, and what is wrong with each.

    What could not be read, rather than was read and is wrong, is looked at once more by this process: a
    device may fail for a moment, and what only another machine may not read is not damaged.

    Args:
        repository: Where they are.
        objects: Digest and size of each.
        executor: Who reads them.
        meter: Told about what is done with.
        rate: How fast this process may read.
        also: Codes of storage errors that are flaws too.

    Raises:
        StorageError: The place, or in it something else than what `also` names, cannot be read.
    """
    found: dict[str, StreambankError] = {}

    def done(task: ObjectsTask, flaws: Flaws) -> None:
        found.update(flaws)
        meter.add(task.files, task.size_bytes)

    work = Checking(repository, rate, also)
    executor.run(work, object_tasks(repository, objects), done)
    doubtful = {digest: objects[digest] for digest, error in found.items() if isinstance(error, StorageError)}
    whole = doubtful.keys() - dict(damaged_objects(repository, doubtful, rate=rate, also=also)).keys()
    return {digest: error for digest, error in found.items() if digest not in whole}
