"""Reading objects through to see whether they are what was stored; whoever looks for damage uses this.

A take or the writing half of a restore ends where the disk fails, since nothing can be said then. A full
verification finds what a bad sector has taken, so that `latest-good` goes on to the savepoint before it; what
this user may not read is no damage to it. For a replica, a repair and a sampled verification both are one
file's matter, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass

from streambank.core.errors import FormatError, IntegrityError, StorageError, StreambankError
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.objects.read import ObjectLocation
from streambank.repository.repository import Repository
from streambank.storage.threads import each
from streambank.work.pace import UNLIMITED, Meter, RateLimit

DAMAGE = (IntegrityError, FormatError)
BAD_SECTOR: Set[str] = frozenset({"io-error"})
"""Codes of storage errors that say that the bytes of a file are lost."""
BAD_DISK: Set[str] = BAD_SECTOR | {"no-permission"}
"""Codes of storage errors that are about one file."""


def is_damage(error: StreambankError, also: Set[str] = BAD_DISK) -> bool:
    """Whether an error (by its code, or one of `also`) is about this one file: others may well be read."""
    return isinstance(error, DAMAGE) or (isinstance(error, StorageError) and error.code in also)


@dataclass(eq=False)
class Reading:
    """One object of a repository as it is read, which remembers whether reading it was what failed."""

    repository: Repository
    digest: str
    also: Set[str] = BAD_DISK
    rate: RateLimit = UNLIMITED
    error: StreambankError | None = None

    def location(self) -> ObjectLocation:
        """Where it lies.

        Raises:
            IntegrityError, FormatError: It is not there; also in `error`.
        """
        try:
            return self.repository.objects.locate(self.digest)
        except DAMAGE as error:
            self.error = error
            raise

    def chunks(self) -> Iterator[bytes]:
        """Its bytes; the last step compares the digest.

        Raises:
            IntegrityError, FormatError, StorageError: What is in `error` then, where it is about this file.
        """
        with self._remembering():
            for chunk in self.repository.objects.chunks(self.digest):
                self.rate.spend(len(chunk))
                yield chunk

    def hash(self) -> None:
        """Read it through and compare its digest.

        Raises:
            IntegrityError, FormatError, StorageError: What is in `error` then, where it is about this file.
        """
        with self._remembering():
            self.repository.objects.hash(self.digest, self.rate.spend)

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except (*DAMAGE, StorageError) as error:
            if is_damage(error, self.also):
                self.error = error
            raise


def read_small(
    repository: Repository,
    objects: Mapping[str, int],
    also: Set[str] = BAD_DISK,
    rate: RateLimit = UNLIMITED,
) -> Iterator[tuple[str, bytes | StreambankError]]:
    """Small objects, read pack by pack, each as its bytes or what is wrong with it."""
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
    """Objects that are not what was stored, found by reading all; errors not of `also` are raised.

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
