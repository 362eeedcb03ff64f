"""Hashing the objects of a repository, as a `Work`.

Reading objects through to see whether they are what was stored; whoever looks for damage uses this.

A take or the writing half of a restore ends where the disk fails, since nothing can be said then. A full
verification finds what a bad sector has taken, so that `latest-good` goes on to the savepoint before it; what
this user may not read is no damage to it. For a replica, a repair and a sampled verification both are one
file's matter, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from streambank.core.errors import FormatError, IntegrityError, StorageError, StreambankError
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.objects.read import ObjectLocation
from streambank.repository.repository import Repository
from streambank.storage.threads import at_once, each
from streambank.work.executor import Executor, Work
from streambank.work.pace import UNLIMITED, Meter, RateLimit
from streambank.work.plan_lines import read_error
from streambank.work.same_location import portable, same_repository

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class ObjectsTask:
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
        return {"objects": dict(self.objects)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(tuple(data["objects"].items()))


def object_tasks(repository: Repository, objects: Mapping[str, int]) -> list[ObjectsTask]:
    """The tasks that read every byte of some objects, each once: small ones first, then the large ones.

    Args:
        objects: Digest and size of each.
    """
    small = {digest: size_bytes for digest, size_bytes in objects.items() if size_bytes <= SMALL_BYTES}
    near = grouped(repository, [(digest, size_bytes, digest) for digest, size_bytes in small.items()])
    tasks = [ObjectsTask(tuple((digest, small[digest]) for digest in group)) for group in near]
    tasks += [ObjectsTask(((digest, size),)) for digest, size in objects.items() if size > SMALL_BYTES]
    return tasks


Flaws = tuple[tuple[str, StreambankError], ...]
"""Digests of objects that are not what was stored, and what is wrong with each."""


class Checking(Work[ObjectsTask, Flaws]):
    """Reads objects, and compares their digests.

    Args:
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
        return tuple(damaged_objects(self._repository, dict(task.objects), rate=self._rate, also=self._also))

    def at_once(self) -> int:
        return at_once(self._repository.store)

    # For machines elsewhere

    def header(self) -> dict[str, Any]:
        return {
            "repository": portable(self._repository.store.uri),
            "repository_id": self._repository.id,
            "also": sorted(self._also),
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

    Args:
        objects: Digest and size of each.
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


DAMAGE = (IntegrityError, FormatError)
BAD_SECTOR: Set[str] = frozenset({"io-error"})
"""Codes of storage errors that say that the bytes of a file are lost."""
BAD_DISK: Set[str] = BAD_SECTOR | {"no-permission"}
"""Codes of storage errors that are about one file."""


def is_damage(error: StreambankError, also: Set[str] = BAD_DISK) -> bool:
    """Whether an error of reading is about this one file, so that others may well be read.

    Args:
        error: What was raised.
        also: Codes of storage errors that count as damage.
    """
    return isinstance(error, DAMAGE) or (isinstance(error, StorageError) and error.code in also)


class Reading:
    """One object of a repository as it is read, which remembers whether reading it was what failed.

    Args:
        also: Codes of storage errors that count as damage.
        rate: How fast it may be read.

    Attributes:
        error: Why it cannot be read.
    """

    def __init__(
        self,
        repository: Repository,
        digest: str,
        also: Set[str] = BAD_DISK,
        rate: RateLimit = UNLIMITED,
    ) -> None:
        self.digest = digest
        self.error: StreambankError | None = None
        self._repository = repository
        self._also = also
        self._rate = rate

    def location(self) -> ObjectLocation:
        """Where it lies.

        Raises:
            IntegrityError, FormatError: It is not there; also in `error`.
        """
        try:
            return self._repository.objects.locate(self.digest)
        except DAMAGE as error:
            self.error = error
            raise

    def chunks(self) -> Iterator[bytes]:
        """Its bytes; the last step compares the digest.

        Raises:
            IntegrityError, FormatError, StorageError: What is in `error` then, where it is about this file.
        """
        with self._remembering():
            for chunk in self._repository.objects.chunks(self.digest):
                self._rate.spend(len(chunk))
                yield chunk

    def hash(self) -> None:
        """Read it through and compare its digest.

        Raises:
            IntegrityError, FormatError, StorageError: What is in `error` then, where it is about this file.
        """
        with self._remembering():
            self._repository.objects.hash(self.digest, self._rate.spend)

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except (*DAMAGE, StorageError) as error:
            if is_damage(error, self._also):
                self.error = error
            raise


def read_small(
    repository: Repository,
    objects: Mapping[str, int],
    also: Set[str] = BAD_DISK,
    rate: RateLimit = UNLIMITED,
) -> Iterator[tuple[str, bytes | StreambankError]]:
    """Small objects, read pack by pack, each as its bytes or what is wrong with it.

    Args:
        objects: Digest and size of each.
        also: Codes of storage errors that count as damage.
        rate: How fast they may be read.
    """
    left = dict(objects)
    try:
        for digest, data in repository.objects.read_many(objects):
            del left[digest]
            rate.spend(objects[digest])
            yield digest, data
    except (FormatError, StorageError) as error:
        if not is_damage(error, also):
            raise
        if len(objects) == 1:
            yield from ((digest, error) for digest in left)
        else:  # one by one, so that only those are lost that lie there
            for digest, size_bytes in list(left.items()):
                yield from read_small(repository, {digest: size_bytes}, also, rate)


def damaged_objects(
    repository: Repository,
    objects: Mapping[str, int],
    *,
    parallel: int = 1,
    rate: RateLimit = UNLIMITED,
    meter: Meter | None = None,
    also: Set[str] = frozenset(),
) -> Iterator[tuple[str, StreambankError]]:
    """Objects that are not what was stored, found by reading all of them.

    Args:
        objects: Digest and size of each.
        parallel: How many large ones are read at once.
        rate: How fast they may be read.
        meter: Told about each one that is done with.
        also: Codes of storage errors that count as damage; any other one is raised.

    Raises:
        StorageError: The place, or in it something else than what `also` names, cannot be read.
    """

    def done(digest: str) -> None:
        if meter is not None:
            meter.add(1, objects[digest])

    def read(digest: str) -> StreambankError | None:
        reading = Reading(repository, digest, also, rate)
        try:
            reading.hash()
        except (*DAMAGE, StorageError):
            if reading.error is None:
                raise
        return reading.error

    small = {digest: size_bytes for digest, size_bytes in objects.items() if size_bytes <= SMALL_BYTES}
    for digest, data in read_small(repository, small, also, rate):
        done(digest)
        if not isinstance(data, bytes):
            yield digest, data
    large = [digest for digest, size_bytes in objects.items() if size_bytes > SMALL_BYTES]
    for digest, error in zip(large, each(read, large, parallel), strict=True):
        done(digest)
        if error is not None:
            yield digest, error


GROUP_BYTES = 32 << 20
GROUP_FILES = 5000

W = TypeVar("W")


def grouped(repository: Repository, wanted: Sequence[tuple[str, int, W]]) -> Iterator[list[W]]:
    """Things that lie in small objects, in groups.

    Args:
        repository: Where the objects are; one that cannot be found is no matter here.
        wanted: Digest and size of an object, and the thing.
    """

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
