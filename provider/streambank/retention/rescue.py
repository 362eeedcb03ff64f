"""Storing objects again that a savepoint needs and a sweep has condemned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from streambank.core.errors import IntegrityError, NotFoundError
from streambank.repository.objects.digest import digest_of, split_digest
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.objects.read import part_chunks
from streambank.repository.repository import Repository


@dataclass(slots=True)
class Rescued:
    """What was stored again.

    Attributes:
        objects: How many objects.
        bytes: How many bytes they have.
        failed: Objects that could not be read, and why.
    """

    objects: int = 0
    bytes: int = 0
    failed: dict[str, IntegrityError] = field(default_factory=dict)

    def add(self, other: Rescued) -> None:
        """Count another rescue in."""
        self.objects += other.objects
        self.bytes += other.bytes
        self.failed |= other.failed


def rescue(repository: Repository, digests: Iterable[str]) -> Rescued:
    """Store objects where they last, from wherever they still are; those that last already are passed over.

    Args:
        repository: Where they are.
        digests: Which.
    """
    done = Rescued()
    with repository.writer() as writer:
        wanted: dict[str, int] = {}
        for digest in digests:
            if not repository.objects.lasting_places(digest):
                try:
                    wanted[digest] = repository.object_size(digest)
                except IntegrityError as error:
                    done.failed[digest] = error
        small = [digest for digest, size_bytes in wanted.items() if size_bytes <= SMALL_BYTES]
        for digest, data in repository.read_objects(small):
            if isinstance(data, IntegrityError):
                done.failed[digest] = data
            else:
                writer.add(data, len(data))
        for digest, size_bytes in wanted.items():
            if size_bytes > SMALL_BYTES:
                try:
                    writer.add(repository.object_chunks(digest), size_bytes)
                except IntegrityError as error:
                    done.failed[digest] = error
    done.objects, done.bytes = writer.new_objects, writer.new_bytes
    return done


def is_intact(repository: Repository, digest: str) -> bool:
    """Whether an object lies, with each of its bytes, in a place that no sweep has condemned."""
    algorithm = split_digest(digest)[0]
    for place in repository.objects.lasting_places(digest):
        try:
            if digest_of(algorithm, part_chunks(repository.store, place)) == digest:
                return True
        except NotFoundError:
            continue  # it went away since it was looked for
    return False
