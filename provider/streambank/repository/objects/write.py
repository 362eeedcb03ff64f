"""Bringing objects into a repository: hashed while they pass, small ones in packs, nothing stored twice."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Container, Iterable, Iterator
from types import TracebackType
from typing import BinaryIO

from streambank.core.errors import ConflictError, NotFoundError
from streambank.repository.digest import digest_of, new_hasher
from streambank.repository.objects.index import INDEX_FOLDER
from streambank.repository.objects.large import object_key
from streambank.repository.objects.packs import (
    MOST_OBJECTS,
    PACK_BYTES,
    SMALL_BYTES,
    Pack,
    PackBuilder,
    PackEntry,
    pack_key,
    seal_pack,
)
from streambank.storage.store import CopiesHeld, HeldFile, Store

INDEX_EVERY_PACKS = 16
"""So often an index file is written on the way: a take that was killed need not move everything again."""
SETTLE_BYTES = 256 << 20
"""So many bytes of large objects are made durable together, for the same reason."""
BUFFER_BYTES = 8 << 20
"""Objects up to this size are hashed before they are written: one that is there is not written at all."""
AGAIN_BYTES = BUFFER_BYTES
"""Larger files of a disk are read again, rather than to wait in a temporary file for their name."""


class ObjectWriter:
    """Adds objects from any number of threads; use it in a `with`, whose end flushes.

    An object may be counted on by a manifest only after `flush` (or the end of the `with`) has returned. That
    holds for those that were there already, too: whoever stored them may have died before their names were
    durable.

    Args:
        has: Whether the repository holds an object of this digest and size.
        publish: Writes an index file for packs that are stored, and takes it into the repository's own index.
        pack_bytes: How large a pack grows.
        condemned: Names that a sweep is going to delete: what would get such a one is stored under another.

    Attributes:
        known_objects: How many were there already.
        damaged: Large objects that are stored again though a file of their size is there.
        rewrite_packs: Packs are stored again, too, though a file of their name and size is there.
    """

    def __init__(
        self,
        store: Store,
        digest_name: str,
        has: Callable[[str, int], bool],
        publish: Callable[[list[Pack]], None],
        *,
        pack_bytes: int = PACK_BYTES,
        condemned: Container[str] = frozenset(),
    ) -> None:
        from streambank.repository.objects.fsync_batch import FsyncBatch  # a DAG parse stores nothing

        self.new_objects = 0
        self.new_bytes = 0
        self.known_objects = 0
        self.damaged: set[str] = set()
        self.rewrite_packs = False
        self._store = store
        self._digest_name = digest_name
        self._has = has
        self._publish = publish
        self._pack_bytes = pack_bytes
        self._settling = FsyncBatch(store)
        self._unsettled_bytes = 0
        self._condemned = condemned
        self._state = threading.Condition()
        self._builder = PackBuilder(digest_name)
        self._added: set[str] = set()
        self._unindexed: list[Pack] = []
        self._found: set[str] = set()  # folders of files that somebody else has written
        self._writing = 0
        self._failure: BaseException | None = None

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._settling.__exit__(kind, error, trace)
            return
        with self._settling:
            self.flush()

    def add(self, data: bytes | Iterable[bytes], size_bytes: int) -> str:
        """Store one object unless it is there.

        Args:
            data: Its bytes, or chunks of them; read once.
            size_bytes: How many there must be.

        Returns:
            Its digest, as `name:hex`.

        Raises:
            ConflictError: There were more or fewer bytes: the file is being written (code `size-changed`).
        """
        if size_bytes > SMALL_BYTES:
            return self._add_large((data,) if isinstance(data, bytes) else data, size_bytes)
        whole = data if isinstance(data, bytes) else b"".join(data)
        _check_size(len(whole), size_bytes)
        return self._add_small(whole)

    def add_file(
        self, file: HeldFile, read: Callable[[BinaryIO], Iterable[bytes]], *, again: bool = False
    ) -> str | None:
        """Store a large file without its bytes waiting anywhere: hashed first, it has its name.

        Where one service holds both sides, it copies the file, and proves that it copied what was hashed.
        Else a file that can be read again goes up while it is, and is hashed once more: other bytes leave
        nothing.

        Args:
            read: Its bytes, from a reader of it.
            again: It is held on a disk: reading it twice gives the same bytes and costs no transfer.

        Returns:
            Its digest; None where this is no way, and nothing was stored.

        Raises:
            ConflictError: It changed meanwhile (code `size-changed`).
            NotFoundError: It went away, or is another one by now.
        """
        size_bytes = file.info.size_bytes
        copy = self._store.copy_of(file) if isinstance(self._store, CopiesHeld) else None
        again = again and self._store.features.spools and size_bytes > AGAIN_BYTES
        if copy is None and not again:
            return None
        hasher, read_bytes = new_hasher(self._digest_name), 0
        with file.open() as reader:
            for chunk in read(reader):
                hasher.update(chunk)
                read_bytes += len(chunk)
                if copy is not None:
                    copy.passed(chunk)
        _check_size(read_bytes, size_bytes)
        digest = f"{self._digest_name}:{hasher.hexdigest()}"
        key = object_key(digest)
        stored = not self._is_there(digest, size_bytes)
        if stored and key in self._condemned:
            return None  # its name is lost, and how it gets another is the matter of `add`
        if stored and not (copy is not None and copy.to(key)):
            if not again:
                return None
            with file.open() as reader:
                self._store.write(key, self._unchanged(read(reader), digest))
        self._count_large(digest, size_bytes, stored)
        return digest

    def _unchanged(self, data: Iterable[bytes], digest: str) -> Iterator[bytes]:
        """Bytes that must have a digest; the end raises where they have not."""
        hasher = new_hasher(self._digest_name)
        for chunk in data:
            hasher.update(chunk)
            yield chunk
        if f"{self._digest_name}:{hasher.hexdigest()}" != digest:
            raise ConflictError(
                "A file changed while it was read: the second read gave other bytes.",
                code="size-changed",
                hint="Try again; a newer batch can be saved as well.",
            )

    def forget(self, digests: Iterable[str]) -> None:
        """Store these objects again when they are added again: a sweep has condemned where they lie."""
        with self._state:
            self._added.difference_update(digests)

    def flush(self) -> None:
        """Store what is gathered, make it durable, then index it."""
        with self._state:
            self._state.wait_for(lambda: self._writing == 0)
            if self._failure is not None:
                raise self._failure
            builder, self._builder = self._builder, PackBuilder(self._digest_name)
            self._writing += 1
        self._write_pack(builder)
        self._index()

    def _add_small(self, data: bytes) -> str:
        digest = digest_of(self._digest_name, data)
        full: PackBuilder | None = None
        with self._state:
            if digest in self._added:
                self.known_objects += 1
                return digest
            self._added.add(digest)
        try:
            known = self._has(digest, len(data))
        except BaseException:
            with self._state:
                self._added.discard(digest)
            raise
        if known:
            with self._state:
                self.known_objects += 1
                self._found.add(INDEX_FOLDER)
            return digest
        with self._state:
            self._builder.add(digest, data)
            self.new_objects += 1
            self.new_bytes += len(data)
            if self._builder.size_bytes >= self._pack_bytes or len(self._builder) >= MOST_OBJECTS:
                full, self._builder = self._builder, PackBuilder(self._digest_name)
                self._writing += 1
        if full is not None:
            self._write_pack(full)
            with self._state:
                due = len(self._unindexed) >= INDEX_EVERY_PACKS
            if due:
                self._index()
        return digest

    def _add_large(self, data: Iterable[bytes], size_bytes: int) -> str:
        hasher = new_hasher(self._digest_name)
        read_bytes = 0
        digest = ""
        stored = False
        pack: Pack | None = None

        def passing() -> Iterator[bytes]:
            nonlocal read_bytes, digest, stored, pack
            for chunk in data:
                hasher.update(chunk)
                read_bytes += len(chunk)
                yield chunk
            _check_size(read_bytes, size_bytes)
            digest = f"{self._digest_name}:{hasher.hexdigest()}"
            stored = not self._is_there(digest, size_bytes)
            if stored and object_key(digest) in self._condemned:
                # It has one name as a separate file, and that one is lost: a new pack has another one.
                entry = PackEntry(digest, 0, size_bytes)
                pack, tail = seal_pack([entry], self._digest_name, uuid.uuid4().hex)
                yield from tail

        def name() -> str | None:
            if pack is not None:
                return pack_key(pack.id)
            return object_key(digest) if stored else None

        chunks: Iterable[bytes] = passing()
        if size_bytes <= BUFFER_BYTES:
            chunks = list(chunks)
            if name() is None:
                with self._state:
                    self.known_objects += 1
                return digest
        with self._settling.files() as files:
            files.write_named(chunks, name)
        due = False
        with self._state:
            if pack is not None:
                self._unindexed.append(pack)
            self._count_large(digest, size_bytes, stored)
            if stored:
                self._unsettled_bytes += size_bytes
                due = self._unsettled_bytes >= SETTLE_BYTES
                if due:
                    self._unsettled_bytes = 0
        if due:
            self._settling.settle()
        return digest

    def _count_large(self, digest: str, size_bytes: int, stored: bool) -> None:
        with self._state:  # which whoever has it may take again
            if stored and digest not in self._added:
                self.new_objects += 1
                self.new_bytes += size_bytes
                self._added.add(digest)
            else:
                self.known_objects += 1

    def _is_there(self, digest: str, size_bytes: int) -> bool:
        """Whether a large object need not be written: this writer has, or it was there and is not damaged."""
        if digest in self._added:
            return True
        if digest in self.damaged or not self._has(digest, size_bytes):
            return False
        with self._state:
            self._found |= {_folder(object_key(digest)), INDEX_FOLDER}
        return True

    def _write_pack(self, builder: PackBuilder) -> None:
        """Store one pack; the caller has counted it in `_writing`."""
        try:
            if len(builder):
                pack, data = builder.finish()
                if pack_key(pack.id) in self._condemned:
                    pack, data = builder.finish(uuid.uuid4().hex)
                write = self.rewrite_packs or not self._stored(pack)
                if write:
                    self._store.write(pack_key(pack.id), data)
                with self._state:
                    self._unindexed.append(pack)
                    if not write:
                        self._found.add(_folder(pack_key(pack.id)))
        except BaseException as error:
            with self._state:
                self._failure = self._failure or error
            raise
        finally:
            with self._state:
                self._writing -= 1
                self._state.notify_all()

    def _stored(self, pack: Pack) -> bool:
        try:
            return self._store.stat(pack_key(pack.id)).size_bytes == pack.size_bytes
        except NotFoundError:
            return False

    def _index(self) -> None:
        with self._state:
            packs, self._unindexed = self._unindexed, []
            found, self._found = self._found, set()
        self._settling.settle()
        if found:
            self._store.settle_names(found)
        if packs:
            self._publish(packs)


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


def _check_size(read_bytes: int, size_bytes: int) -> None:
    if read_bytes != size_bytes:
        raise ConflictError(
            f"A file that should have {size_bytes} bytes gave {read_bytes}: it changed while it was read.",
            code="size-changed",
            hint="Try again; a newer batch can be saved as well.",
        )
