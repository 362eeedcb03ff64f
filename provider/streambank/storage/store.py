"""The contract of a store: a flat set of named byte strings under one root, local or remote.

Keys are relative POSIX paths (`commits/12`, `state/0/1/3.zip`). They are checked on the way in and on the way
out of `list`: no empty part, no `.` or `..`, no backslash, no control character, not absolute. A store never
follows a symbolic link that leaves its root.

Every foreign exception is translated here, at the edge:

* a key that is not there: `NotFoundError`
* an exclusive create of a key that is there: `ConflictError` (code `exists`)
* anything else the environment does (permission, full disk, network): `StorageError`

`tests/streambank/storage/` holds one suite that each store passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import BinaryIO, Protocol, TypeVar, cast, runtime_checkable

from streambank.core.choices import LockMode
from streambank.core.errors import ConflictError, NotFoundError, StorageError
from streambank.storage.names import check_prefix

CHUNK_BYTES = 1 << 20
"""How many bytes are read or written at a time."""
MAX_RECORD_BYTES = 16 << 20
"""Of a file that is decoded in one go: a record, a mark, a file of progress lines."""


def missing_error(what: str) -> NotFoundError:
    """What every store says of a key that is not there."""
    return NotFoundError(
        f"There is no file {what}.",
        code="no-such-file",
        hint="It was removed, or never existed. Look at what is there, and try again.",
    )


def exists_error(what: str) -> ConflictError:
    """What every store says to an exclusive create of a key that is there."""
    return ConflictError(
        f"{what} is there already.",
        code="exists",
        hint="Somebody else wrote it first: look at it before you try again.",
    )


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One stored file as a listing or a stat shows it.

    Attributes:
        mtime_ns: Last change in nanoseconds since the epoch; 0 where the store has none.
        identity: An opaque token that changes whenever the bytes may have changed: inode, size and nanosecond
            mtime on a local disk, ETag or version on an object store. Equal path and identity mean equal
            bytes.
        names: How many names share these very bytes (hard links); 1 where there is no such thing.
    """

    path: str
    size_bytes: int
    mtime_ns: int
    identity: str
    names: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a write has left that was broken off, or that is going on: no listing shows it.

    Attributes:
        key: Where it lies, for people: a temporary file, or the object that an upload was to become.
        upload: What a service calls the upload; empty for a temporary file.
    """

    key: str
    size_bytes: int
    upload: str = ""


REMOTE_AT_ONCE = 8
"""How many files of a service are best worked on at the same time: it answers in tens of milliseconds, and
each may wait in memory with up to 32 MB."""


@dataclass(frozen=True, slots=True)
class Features:
    """What a store can do beyond the contract; callers choose their way by these, never by the scheme.

    Attributes:
        holds: `hold` keeps bytes readable after somebody deletes the name (open descriptors).
        links: `link_from` can share bytes between two local stores on one file system.
        hidden_checksums: Hadoop's `.name.crc` files may lie beside each file; they are never carried along.
        fsync: A finished `write` survives a power cut; False for the view that `bulk` gives.
        identity_of_bytes: An identity stands for the bytes alone: writing equal ones again may keep it.
        spools: `write_named` lets many bytes wait in a temporary file, since nothing here can be renamed.
        scans: It is a `ScanningStore`: many files are listed and looked at for a fraction of the work.
        remote: Every call is a request, and a page of a listing takes no longer than `stat` of one file.
        at_once: How many files are best worked on at the same time: a service answers late, a disk at once.
    """

    holds: bool = False
    links: bool = False
    hidden_checksums: bool = False
    fsync: bool = False
    identity_of_bytes: bool = False
    spools: bool = False
    scans: bool = False
    remote: bool = False
    at_once: int = 4


class HeldFile(Protocol):
    """A file kept readable, by an open descriptor where the store can do that."""

    @property
    def info(self) -> FileInfo:
        """The file as it was when it was held."""

    def open(self) -> AbstractContextManager[BinaryIO]:
        """A fresh reader at byte 0, of the bytes that were held.

        Raises:
            NotFoundError: The file went away (only stores without `Features.holds`).
        """

    def current(self) -> FileInfo:
        """Stat of the held file now, to see whether somebody wrote to it meanwhile."""

    def close(self) -> None:
        """Let go; may be called twice."""


class Readable(Protocol):
    """Files that can be read by name: a store, or a savepoint where it lies."""

    def read(self, path: str, /) -> bytes:
        """All bytes of a file.

        Raises:
            NotFoundError: There is no such file.
        """


@runtime_checkable
class Store(Protocol):
    """A root under which files are listed, read, created and deleted. Safe to use from several threads.

    What has a body here is what a plain store does: one on which a finished write is durable by itself and no
    bytes can be shared, and of which a write that breaks off leaves nothing, nor any directory.
    """

    @property
    def uri(self) -> str:
        """The root as a URI without credentials, for messages and manifests: `file:///data/ck`."""

    @property
    def features(self) -> Features:
        """What this store can do beyond the contract."""

    def child(self, prefix: str) -> Store:
        """A store of the same kind rooted at `prefix` below this one."""

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        """Every file whose key is `prefix` + "/" + anything (all for ""), recursively, in no promised order.

        A prefix that does not exist lists nothing. Files that vanish while listing are left out. Directories,
        object stores' directory markers and temporary files of this store itself are never listed.
        """

    def names(self, prefix: str = "") -> Sequence[str]:
        """Sorted names (files and "directories") directly below `prefix`; empty where there is none."""

    def stat(self, key: str) -> FileInfo:
        """One file.

        Raises:
            NotFoundError: There is no such file.
        """

    def exists(self, key: str) -> bool:
        try:
            self.stat(key)
        except NotFoundError:
            return False
        return True

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file, `length` at most (all to the end for None).

        Raises:
            NotFoundError: There is no such file.
        """

    def open(self, key: str) -> AbstractContextManager[BinaryIO]:
        """A reader of a file's bytes, closed at the end of the `with`.

        Raises:
            NotFoundError: There is no such file.
        """

    def hold(self, key: str) -> HeldFile:
        """Keep a file readable until `close`, whatever happens to its name where `Features.holds`.

        Raises:
            NotFoundError: There is no such file.
        """
        return RememberedFile(self, self.stat(key))

    def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
        """Create or replace a file at once: readers see the old bytes, or all of the new ones, never a part.

        Args:
            data: The bytes, or chunks of them. If the iterable raises, nothing is left under the key.
            exclusive: Refuse where the key is there already. Of many racing writers exactly one wins.

        Raises:
            ConflictError: `exclusive`, and the key is there (code `exists`).
        """

    def write_named(self, data: Iterable[bytes], name: Callable[[], str | None]) -> None:
        """Create or replace a file whose key is known only once its bytes have passed, as a digest is.

        Args:
            data: Chunks. If the iterable raises, nothing is left.
            name: Called once, after the last chunk; the key, or None to drop what was written.
        """

    @contextmanager
    def bulk(self) -> Iterator[Store]:
        """Many writes that become durable together, which costs far less than one by one.

            with store.bulk() as files:
                files.write("offsets/1", ...)
                files.write("commits/1", ...)
            store.write("metadata", ...)  # may rely on both

        Gives a view of this store, to be used inside the `with` only. What is written, copied, linked or
        renamed through it has every promise of the contract but one: a power cut before the end of the `with`
        may take it away, or leave a name with a part of its bytes or none. After the end all of it is as
        durable as this store's own writes are. A `with` that is left by an error promises nothing.

        What `write_named` creates is never there in part, at no moment: where a write is not durable at once,
        its name comes only with the end of the `with`, after its bytes are. So a name that says what is in
        the file, as a digest does, never lies, and of what was named once nothing has to be written again.

        Raises:
            StorageError: At the end: something did not reach the disk. What was written must be given up.
        """
        yield self

    def settle_names(self, folders: Iterable[str]) -> None:
        """Make the names of files in some folders as durable as those of finished writes, whoever wrote them.

        A file is seen a moment before its name is durable, and its writer may die in that moment. Who counts
        on files of others asks for this before anything that rests on it; what is not there is no error.
        """
        return None

    def copy_from(self, source: Store, source_key: str, key: str) -> bool:
        """Copy without the bytes passing through this process; if False, the caller reads and writes."""
        return False

    def link_from(self, source: Store, source_key: str, key: str) -> bool:
        """Share the bytes of another store's file (a hard link), if it can: one changes with the other."""
        return False

    def delete(self, key: str) -> None:
        """Remove a file; one that is not there is no error."""

    def rename(self, key: str, new_key: str) -> None:
        """Move one file inside the store; atomic on local disks, copy and delete elsewhere.

        Raises:
            NotFoundError: There is no such file.
            ConflictError: `new_key` is there already (code `exists`).
        """

    def leftovers(self, before_ns: int) -> Iterator[Leftover]:
        """What unfinished writes below this root have left, in no promised order.

        Args:
            before_ns: Only those that nobody has added a byte to since then, by the clock of the storage, in
                nanoseconds since the epoch. So choose it longer ago than a living writer may pause.
        """
        return iter(())

    def discard(self, leftover: Leftover) -> None:
        """Remove what `leftovers` gave; one that is gone is no error. Its writer, if it lives, fails."""
        return None

    def prune(self, prefix: str = "") -> None:
        """Remove empty directories below `prefix`, and that one itself; nothing where there are none."""
        check_prefix(prefix)


class RememberedFile:
    """A file that is remembered by its identity; see `HeldFile`. Nothing keeps it from being deleted."""

    def __init__(self, store: Store, info: FileInfo) -> None:
        self._store = store
        self._info = info

    @property
    def info(self) -> FileInfo:
        return self._info

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """See `HeldFile.open`; a file that was written again meanwhile counts as gone."""
        if self.current().identity != self._info.identity:
            raise missing_error(f"{self._store.uri}/{self._info.path} as it was before")
        with self._store.open(self._info.path) as reader:
            yield reader

    def current(self) -> FileInfo:
        return self._store.stat(self._info.path)

    def close(self) -> None:
        """See `HeldFile.close`."""


class ServiceCopy(Protocol):
    """A copy of a held file that a service is about to make, while the file is read here to be hashed."""

    def passed(self, data: bytes) -> None:
        """Take note of the file's next bytes: what will be copied has to be these."""

    def to(self, key: str) -> bool:
        """Create or replace a file, once all bytes have passed: True if that is proven, else there is none.

        Raises:
            NotFoundError: The held file went away, or is another one by now.
            StorageError: Neither this nor anything else works at the moment.
        """


@runtime_checkable
class CopiesHeld(Protocol):
    """A store whose service copies files that are read here anyway."""

    def copy_of(self, file: HeldFile) -> ServiceCopy | None:
        """The copy of a held file; None where the service cannot make it, or it is not worth the requests."""


@dataclass(frozen=True, slots=True)
class Lock:
    """What keeps a file from being deleted."""

    until: datetime
    mode: LockMode

    def both(self, other: Lock) -> Lock:
        """What holds where each of two is asked for."""
        modes = {self.mode, other.mode}
        return Lock(max(self.until, other.until), "compliance" if "compliance" in modes else "governance")


@runtime_checkable
class Overwriting(Protocol):
    """A store that can put other bytes into the place of those that a file has, which takes no room."""

    def overwrite(self, key: str, data: bytes) -> None:
        """Replace what a file says where it lies: a reader may see a part of the old and of the new bytes.

        It is for a disk without room, where `write` fails: no file is created, and none gets longer. So what
        is shorter than the file is filled up with spaces, before its last byte.

        Raises:
            NotFoundError: There is no such file.
            StorageError: It cannot be written to, or `data` is longer (code `disk-full`).
        """


@runtime_checkable
class Locking(Protocol):
    """A store whose service may keep a version of a file from being deleted before a date."""

    def takes_locks(self) -> bool:
        """Whether files here can be locked."""

    def lock(self, key: str, lock: Lock) -> None:
        """Lock a file as it is now; a lock that ends later stays as it is.

        Raises:
            NotFoundError: There is no such file.
        """

    def lock_of(self, key: str) -> Lock | None:
        """The lock of a file, which may have ended; None where it has none.

        Raises:
            NotFoundError: There is no such file.
        """


@dataclass(frozen=True, slots=True)
class Covered:
    """A file that cannot be seen: a delete marker was laid over it, at a time by the service's clock."""

    key: str
    marker: str
    deleted_at: datetime
    size_bytes: int


@runtime_checkable
class Versioned(Protocol):
    """A store whose service may keep what is deleted as an older version, below a delete marker."""

    def keeps_versions(self) -> bool:
        """Whether what is deleted here is kept; so, too, where these credentials may not ask."""

    def covered(self, prefix: str = "") -> Iterator[Covered]:
        """Every file that a delete marker covers, with a key that begins so, if it ever was."""

    def uncover(self, file: Covered) -> None:
        """Remove that marker, and nothing else: no version of a file. One that is gone is no error."""


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """An enabled rule by which a service changes objects by itself.

    Attributes:
        prefix: What the keys that it is about begin with, from the root of the bucket; empty for all.
        tagged: Whether it is only about objects with some tag; neither Spark nor Streambank sets one.
    """

    name: str
    prefix: str
    tagged: bool
    does: tuple[str, ...]


@runtime_checkable
class Served(Protocol):
    """A store whose service has rules and its own clock."""

    @property
    def prefix(self) -> str:
        """What every key of this store begins with, from the root of the bucket."""

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...]:
        """Rules that delete objects, or make them unreadable, anywhere in the bucket."""

    def server_time(self) -> datetime:
        """The time by the service's clock, to the second."""


Row = tuple[str, int, int, int, int]
"""A file of a folder: name, inode, size, mtime in nanoseconds, how many names it has."""


class ScanningStore(Store, Protocol):
    """A store with `Features.scans`: it gives many files at once, without an object for each."""

    def scan(self, prefix: str = "") -> Iterator[tuple[str, Sequence[Row]]]:
        """What `list` gives, folder by folder: several times as fast where there are many files.

        Yields:
            A folder, and a row for each file directly in it.
        """

    def look(self, keys: Iterable[str]) -> dict[str, FileInfo]:
        """What `stat` says of many files, for a third of the work; ask `stat` about what is left out."""


def scanning(store: Store) -> ScanningStore | None:
    """The store as one that scans; None where it does not."""
    return cast(ScanningStore, store) if store.features.scans else None


Opener = Callable[[str], Store]
"""Turns a location as users write it (a path or a URI) into a store."""


CORRUPT = "corrupt-transfer"
"""Code of the error of bytes that did not arrive as they were stored."""
TRANSFER_ATTEMPTS = 3

T = TypeVar("T")


def stat_or_none(store: Store, key: str) -> FileInfo | None:
    """One file; None where there is none."""
    try:
        return store.stat(key)
    except NotFoundError:
        return None


def chunks(reader: BinaryIO, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The rest of a file, in chunks of at most `size_bytes`."""
    while chunk := reader.read(size_bytes):
        yield chunk


def read_record(store: Store, key: str, most_bytes: int = MAX_RECORD_BYTES) -> bytes:
    """A small file, whole; of one that is larger than any record one byte more than `most_bytes`.

    Who decodes it refuses it then, and what was put in the place of a record does not fill the memory.

    Raises:
        NotFoundError: There is no such file.
    """
    with store.open(key) as reader:
        return reader.read(most_bytes + 1)


def undamaged(move: Callable[[], T]) -> T:
    """Move a file's bytes, again from the beginning where they were damaged on their way.

    A store checks what fits in memory before anybody sees it. Of a larger file it knows only at the end that
    something was wrong with it, when most of the bytes have passed on already: then all of them go again.

    Args:
        move: Opens the file, reads it to its end and leaves nothing behind where that fails.

    Raises:
        StorageError: It was so each time (code `corrupt-transfer`).
    """
    for _ in range(TRANSFER_ATTEMPTS - 1):
        try:
            return move()
        except StorageError as error:
            if error.code != CORRUPT:
                raise
    return move()
