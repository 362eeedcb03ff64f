"""A store in this process's memory: for tests, trials and examples (`memory://name`)."""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from streambank.storage.names import check_key, check_prefix
from streambank.storage.store import (
    Features,
    FileInfo,
    HeldFile,
    RememberedFile,
    Store,
    exists_error,
    missing_error,
)

_spaces: dict[str, _Space] = {}
_spaces_lock = threading.Lock()


@dataclass(slots=True)
class _Entry:
    data: bytes
    mtime_ns: int
    serial: int


@dataclass(slots=True)
class _Space:
    """The files of one name, shared by every store opened on it."""

    entries: dict[str, _Entry] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    serials: Iterator[int] = field(default_factory=lambda: itertools.count(1))


def open_location(uri: str) -> MemoryStore:
    """The store at `memory://name[/prefix]`; the same name is the same store, all over the process."""
    name, _, prefix = uri.removeprefix("memory://").partition("/")
    store = MemoryStore(name)
    return store.child(prefix) if prefix else store


class MemoryStore(Store):
    """Files in a dictionary, with the same promises as the durable stores but durability.

    Args:
        holds: Whether held files outlive their deletion, as on a local disk; False behaves like an object
            store.
    """

    def __init__(self, name: str | None = None, *, holds: bool = True) -> None:
        if name is None:
            self._space = _Space()
        else:
            with _spaces_lock:
                self._space = _spaces.setdefault(name, _Space())
        self._root = f"memory://{name or 'private'}"
        self._prefix = ""
        self._features = Features(holds=holds)

    @property
    def uri(self) -> str:
        return f"{self._root}/{self._prefix}".rstrip("/")

    @property
    def features(self) -> Features:
        return self._features

    def child(self, prefix: str) -> MemoryStore:
        child = MemoryStore.__new__(MemoryStore)
        child._space, child._root, child._features = self._space, self._root, self._features
        child._prefix = self._prefix + check_key(prefix) + "/"
        return child

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        start = self._prefix + (check_prefix(prefix) + "/" if prefix else "")
        with self._space.lock:
            found = [(full, entry) for full, entry in self._space.entries.items() if full.startswith(start)]
        for full, entry in found:
            yield _info(full.removeprefix(self._prefix), entry)

    def names(self, prefix: str = "") -> Sequence[str]:
        skip = len(prefix) + 1 if prefix else 0
        return sorted({info.path[skip:].partition("/")[0] for info in self.list(prefix)})

    def stat(self, key: str) -> FileInfo:
        return _info(key, self._entry(key))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        data = self._entry(key).data
        return data[offset:] if length is None else data[offset : offset + length]

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        with io.BytesIO(self._entry(key).data) as reader:
            yield reader

    def hold(self, key: str) -> HeldFile:
        entry = self._entry(key)
        return _Held(self, _info(key, entry), entry.data) if self._features.holds else super().hold(key)

    def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
        full = self._full(key)
        whole = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        with self._space.lock:
            if exclusive and full in self._space.entries:
                raise exists_error(f"{self.uri}/{key}")
            self._put(key, whole)

    def write_named(self, data: Iterable[bytes], name: Callable[[], str | None]) -> None:
        whole = b"".join(data)
        key = name()
        if key is None:
            return
        with self._space.lock:
            self._put(key, whole)

    def copy_from(self, source: Store, source_key: str, key: str) -> bool:
        if not isinstance(source, MemoryStore):
            return False
        data = source._entry(source_key).data
        with self._space.lock:
            self._put(key, data)
        return True

    def delete(self, key: str) -> None:
        with self._space.lock:
            self._space.entries.pop(self._full(key), None)

    def rename(self, key: str, new_key: str) -> None:
        with self._space.lock:
            entry = self._entry(key)
            if self._full(new_key) in self._space.entries:
                raise exists_error(f"{self.uri}/{new_key}")
            self._space.entries[self._full(new_key)] = entry
            del self._space.entries[self._full(key)]

    def _full(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _put(self, key: str, data: bytes) -> None:
        self._space.entries[self._full(key)] = _Entry(data, time.time_ns(), next(self._space.serials))

    def _entry(self, key: str) -> _Entry:
        with self._space.lock:
            entry = self._space.entries.get(self._full(key))
        if entry is None:
            raise missing_error(f"{self.uri}/{key}")
        return entry


class _Held(RememberedFile):
    def __init__(self, store: Store, info: FileInfo, data: bytes) -> None:
        super().__init__(store, info)
        self._data = data

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        with io.BytesIO(self._data) as reader:
            yield reader

    def current(self) -> FileInfo:
        return self.info


def _info(key: str, entry: _Entry) -> FileInfo:
    return FileInfo(key, len(entry.data), entry.mtime_ns, f"m{entry.serial}")
