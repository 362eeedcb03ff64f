"""Reading a repository in which single files may be damaged, gone, or on a bad place of the disk.

A take, a restore or a verification ends where the disk fails, since nothing can be said then. A replica and a
repair are there for that very case: one file that cannot be read is one file's matter, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streambank.errors import FormatError, IntegrityError, StorageError, StreambankError
from streambank.savepoint.packs import SMALL_BYTES
from streambank.savepoint.progress import Meter
from streambank.savepoint.reading import ObjectLocation
from streambank.savepoint.repository import Repository
from streambank.savepoint.threads import each

DAMAGE = (IntegrityError, FormatError)
BAD_DISK = frozenset({"io-error", "no-permission"})
"""Codes of storage errors that are about one file."""


def is_damage(error: StreambankError) -> bool:
    """Whether an error of reading is about this one file, so that others may well be read."""
    return isinstance(error, DAMAGE) or (isinstance(error, StorageError) and error.code in BAD_DISK)


class Reading:
    """One object of a repository as it is read, which remembers whether reading it was what failed.

    Attributes:
        digest: Which.
        error: Why it cannot be read.
    """

    def __init__(self, repository: Repository, digest: str) -> None:
        self.digest = digest
        self.error: StreambankError | None = None
        self._repository = repository

    def location(self) -> ObjectLocation:
        """Where it lies.

        Raises:
            IntegrityError, FormatError: It is not there; also in `error`.
        """
        try:
            return self._repository.object_location(self.digest)
        except DAMAGE as error:
            self.error = error
            raise

    def chunks(self) -> Iterator[bytes]:
        """Its bytes; the last step compares the digest.

        Raises:
            IntegrityError, FormatError, StorageError: What is in `error` then, where it is about this file.
        """
        try:
            yield from self._repository.object_chunks(self.digest)
        except (*DAMAGE, StorageError) as error:
            if is_damage(error):
                self.error = error
            raise


def read_small(
    repository: Repository, objects: Mapping[str, int]
) -> Iterator[tuple[str, bytes | StreambankError]]:
    """Small objects, read pack by pack, each as its bytes or what is wrong with it.

    Raises:
        StorageError: The place as a whole cannot be read.
    """
    left = dict(objects)
    try:
        for digest, data in repository.read_objects(objects):
            del left[digest]
            yield digest, data
    except (FormatError, StorageError) as error:
        if not is_damage(error):
            raise
        if len(objects) == 1:
            yield from ((digest, error) for digest in left)
        else:  # one by one, so that only those are lost that lie there
            for digest, size_bytes in list(left.items()):
                yield from read_small(repository, {digest: size_bytes})


def unreadable(
    repository: Repository, objects: Mapping[str, int], *, parallel: int, meter: Meter
) -> Iterator[tuple[str, StreambankError]]:
    """Objects that are not what was stored, found by reading all of them.

    Raises:
        StorageError: The place as a whole cannot be read.
    """
    small = {digest: size_bytes for digest, size_bytes in objects.items() if size_bytes <= SMALL_BYTES}
    for digest, data in read_small(repository, small):
        meter.add(1, objects[digest])
        if not isinstance(data, bytes):
            yield digest, data

    def read(digest: str) -> StreambankError | None:
        reading = Reading(repository, digest)
        try:
            for _ in reading.chunks():
                pass  # the last step compares the digest
        except (*DAMAGE, StorageError):
            if reading.error is None:
                raise
        meter.add(1, objects[digest])
        return reading.error

    large = [digest for digest, size_bytes in objects.items() if size_bytes > SMALL_BYTES]
    for digest, error in zip(large, each(read, large, parallel), strict=True):
        if error is not None:
            yield digest, error
