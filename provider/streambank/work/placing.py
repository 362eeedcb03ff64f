"""Bringing one large object of a repository to its place in a restored checkpoint, hashed on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from streambank.repository.entry import FileEntry
from streambank.repository.objects.read import CheckedReader, ObjectLocation
from streambank.repository.repository import Repository
from streambank.storage.chunks import undamaged
from streambank.storage.store import CHUNK_BYTES, Store
from streambank.work.pace import UNLIMITED, RateLimit


def place_large(
    repository: Repository,
    files: Store,
    entry: FileEntry,
    rate: RateLimit = UNLIMITED,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write a large file of a savepoint.

    Args:
        repository: Where its object is.
        files: Where it goes.
        entry: What the manifest says about it.
        rate: How fast the repository may be read.
        check: Called at the last moment at which the file can still be left out, which it is where this
            raises: when all bytes have passed, or before a service is asked to copy them.

    Raises:
        IntegrityError: The object is missing or damaged.
        StorageError: The environment failed.
    """
    if not _copied_by_the_service(repository, files, entry, check):
        undamaged(lambda: files.write(entry.path, _read(repository, entry, rate, check)))


def _read(
    repository: Repository, entry: FileEntry, rate: RateLimit, check: Callable[[], None]
) -> Iterator[bytes]:
    for chunk in repository.object_chunks(entry.digest):
        rate.spend(len(chunk))
        yield chunk
    check()


def _copied_by_the_service(
    repository: Repository, files: Store, entry: FileEntry, check: Callable[[], None]
) -> bool:
    """Let a service that holds both sides copy the object, and hash what arrived; whether that was done."""
    if files.features.holds:  # a local disk: there reading and writing in one go is the cheaper way
        return False
    place = repository.object_location(entry.digest)
    if place.kind != "object":
        return False
    check()
    if not files.copy_from(repository.store, place.key, entry.path):
        return False
    undamaged(lambda: _check_digest(files, entry, place))
    return True


def _check_digest(files: Store, entry: FileEntry, place: ObjectLocation) -> None:
    with files.open(entry.path) as reader:
        checked = CheckedReader(reader, entry.digest, place)
        while checked.read(CHUNK_BYTES):
            pass
