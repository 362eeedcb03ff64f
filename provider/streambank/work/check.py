"""Hashing the objects of a repository, as a `Work`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from streambank.core.errors import FormatError, IntegrityError, StorageError, StreambankError
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import Repository
from streambank.storage.threads import at_once
from streambank.work.executor import Executor, Work
from streambank.work.pace import UNLIMITED, Meter, RateLimit
from streambank.work.plan_lines import read_error
from streambank.work.same_location import portable, same_repository

if TYPE_CHECKING:
    from typing_extensions import Self
from streambank.work.damage import damaged_objects


@dataclass(frozen=True, slots=True)
class ObjectsTask:
    """One large object, or small ones that lie near each other."""

    objects: tuple[tuple[str, int], ...]

    @property
    def files(self) -> int:
        return len(self.objects)

    @property
    def size_bytes(self) -> int:
        return sum(size_bytes for _, size_bytes in self.objects)

    def to_dict(self) -> dict[str, Any]:
        return {"objects": dict(self.objects)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(tuple(data["objects"].items()))


def object_tasks(repository: Repository, objects: Mapping[str, int]) -> list[ObjectsTask]:
    """The tasks that read every byte of some objects, each once: small ones first, then the large ones."""
    small = {digest: size_bytes for digest, size_bytes in objects.items() if size_bytes <= SMALL_BYTES}
    near = grouped(repository, [(digest, size_bytes, digest) for digest, size_bytes in small.items()])
    tasks = [ObjectsTask(tuple((digest, small[digest]) for digest in group)) for group in near]
    tasks += [ObjectsTask(((digest, size),)) for digest, size in objects.items() if size > SMALL_BYTES]
    return tasks


Flaws = tuple[tuple[str, StreambankError], ...]
"""Digests of objects that are not what was stored, and what is wrong with each."""


@dataclass(eq=False)
class Checking(Work[ObjectsTask, Flaws]):
    """Reads objects, and compares their digests."""

    kind = "check"

    repository: Repository
    rate: RateLimit = UNLIMITED
    also: Set[str] = frozenset()

    def run(self, task: ObjectsTask) -> Flaws:
        return tuple(damaged_objects(self.repository, dict(task.objects), rate=self.rate, also=self.also))

    def at_once(self) -> int:
        return at_once(self.repository.store)

    # For machines elsewhere

    def header(self) -> dict[str, Any]:
        return {
            "repository": portable(self.repository.store.uri),
            "repository_id": self.repository.id,
            "also": sorted(self.also),
        }

    @classmethod
    @contextmanager
    def opened(cls, header: Mapping[str, Any]) -> Iterator[Self]:
        repository = same_repository(header["repository"], header["repository_id"])
        yield cls(repository, also=frozenset(header["also"]))

    @classmethod
    def read_task(cls, data: Mapping[str, Any]) -> ObjectsTask:
        return ObjectsTask.from_dict(data)

    @classmethod
    def write_outcome(cls, outcome: Flaws) -> dict[str, Any]:
        return {"flaws": {digest: error.to_dict() for digest, error in outcome}} if outcome else {}

    @classmethod
    def read_outcome(cls, task: ObjectsTask, data: Mapping[str, Any]) -> Flaws:
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


GROUP_BYTES = 32 << 20
GROUP_FILES = 5000

W = TypeVar("W")


def grouped(repository: Repository, wanted: Sequence[tuple[str, int, W]]) -> Iterator[list[W]]:
    """Things that lie in small objects, in groups."""

    def place(item: tuple[str, int, W]) -> tuple[str, int]:
        try:
            location = repository.objects.locate(item[0])
        except (IntegrityError, FormatError):
            return "", 0  # whoever reads it says what is wrong
        return location.key, location.offset

    group: list[W] = []
    group_bytes = 0
    for _, size_bytes, thing in sorted(wanted, key=place):
        if group and (group_bytes + size_bytes > GROUP_BYTES or len(group) >= GROUP_FILES):
            yield group
            group, group_bytes = [], 0
        group.append(thing)
        group_bytes += size_bytes
    if group:
        yield group
