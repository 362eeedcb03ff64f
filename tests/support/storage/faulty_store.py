"""A store that fails on order: the one way in which tests make crashes, full disks and bad bytes happen.

    store = FaultyStore(LocalStore(folder), Fault("crash-before", call=7))
    with pytest.raises(SimulatedCrash):
        take(...)
    store.assert_fired()

Every call of the contract is counted and recorded in `store.calls`, so that a test can first run undisturbed
and then once for each call. After a crash the store is dead: whatever is called later, in a `finally` for
example, crashes too, as nothing runs in a process that was killed.

The end of a `bulk` is a separate call, `settle`.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Literal, TypeVar
from unittest.mock import patch

import pytest

from streambank.core.errors import StorageError
from streambank.storage.local import trees
from streambank.storage.store import Features, FileInfo, HeldFile, Leftover, Store

Kind = Literal[
    "crash-before",  # the process ends before the call has any effect
    "crash-after",  # it ends after the call has had its whole effect
    "crash-during",  # it ends while the data of a write is passing
    "power-cut",  # a crash after it, which also takes what was written in bulk and is not settled
    "error",  # the call fails and has no effect
    "lost-reply",  # the call has its effect, and fails all the same
    "full",  # the disk is full after half of the data of a write
    "denied",  # no permission
    "short-read",  # the last byte is missing
    "flip",  # one bit in the middle is another one
]
WRITES = frozenset(
    {"write", "write_named", "copy_from", "link_from", "delete", "rename", "prune", "discard", "settle"}
)
"""Calls that change something."""
PASSING = frozenset({"write", "write_named"})
"""Calls through which data passes; a crash during any other one is a crash before it."""
READS = frozenset({"read", "open", "held.open"})
"""Calls that give bytes."""
T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The process was killed here; not an Exception, so that nothing handles it by mistake."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, which happens once.

    Attributes:
        call: To which of the matching calls, counted from 1.
        operations: Only these calls match; all of them where empty.
        key: Only calls whose key contains this match.
    """

    kind: Kind
    call: int = 1
    operations: frozenset[str] = frozenset()
    key: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    operation: str
    key: str


@dataclass(slots=True)
class _Plan:
    """What all stores made from one FaultyStore share."""

    faults: tuple[Fault, ...]
    calls: list[Call] = field(default_factory=list)
    fired: list[Fault] = field(default_factory=list)
    matched: dict[Fault, int] = field(default_factory=dict)
    dead: bool = False
    unsettled: list[tuple[Store, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_fault(self, operation: str, key: str) -> Fault | None:
        with self.lock:
            if self.dead:
                raise SimulatedCrash(f"{operation} {key}, after the crash")
            self.calls.append(Call(operation, key))
            chosen = None
            for fault in self.faults:
                if fault.key not in key or (fault.operations and operation not in fault.operations):
                    continue
                self.matched[fault] = self.matched.get(fault, 0) + 1
                if self.matched[fault] == fault.call and chosen is None:
                    chosen = fault
                    self.fired.append(fault)
            return chosen

    def crash(self, operation: str, key: str) -> SimulatedCrash:
        with self.lock:
            self.dead = True
        return SimulatedCrash(f"{operation} {key}")

    def lose_unsettled(self) -> None:
        """Of what never reached the disk every other file is empty, and the rest is not there."""
        for number, (store, key) in enumerate(self.unsettled):
            store.delete(key)
            if number % 2 == 0:
                store.write(key, b"")


class FaultyStore:
    """A store around another one that counts calls and fails as planned."""

    def __init__(self, inner: Store, *faults: Fault) -> None:
        self.inner = inner
        self._plan = _Plan(faults)
        self._in_bulk = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)  # `root` of a local store, for example

    @property
    def calls(self) -> Sequence[Call]:
        return self._plan.calls

    @property
    def fired(self) -> Sequence[Fault]:
        return self._plan.fired

    def assert_fired(self) -> None:
        """Fail unless every fault has happened: a test of a fault that never came proves nothing."""
        missing = [fault for fault in self._plan.faults if fault not in self._plan.fired]
        assert not missing, f"never happened: {missing}; calls: {self._plan.calls}"

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def features(self) -> Features:
        return replace(self.inner.features, scans=False)  # a fault is for one call, about one file

    def child(self, prefix: str) -> FaultyStore:
        return self._around(self.inner.child(prefix), in_bulk=self._in_bulk)

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        return iter(self._do("list", prefix, lambda: [*self.inner.list(prefix)]))

    def names(self, prefix: str = "") -> Sequence[str]:
        return self._do("names", prefix, lambda: self.inner.names(prefix))

    def stat(self, key: str) -> FileInfo:
        return self._do("stat", key, lambda: self.inner.stat(key))

    def exists(self, key: str) -> bool:
        return self._do("exists", key, lambda: self.inner.exists(key))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._do_read("read", key, lambda: self.inner.read(key, offset, length))

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        with self._open("open", key, lambda: self.inner.open(key)) as reader:
            yield reader

    def hold(self, key: str) -> FaultyHeld:
        return FaultyHeld(self, key, self._do("hold", key, lambda: self.inner.hold(key)))

    def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
        fault = self._before("write", key)
        spoilt = self._spoil(fault, "write", key, data)

        def act() -> None:
            self.inner.write(key, spoilt, exclusive=exclusive)
            self._note_written(key)

        self._after(fault, "write", key, act)

    def write_named(self, data: Iterable[bytes], name: Callable[[], str | None]) -> None:
        fault = self._before("write_named", "")
        spoilt = self._spoil(fault, "write_named", "", data)
        chunks = (spoilt,) if isinstance(spoilt, bytes) else spoilt

        key: str | None = None

        def named() -> str | None:
            nonlocal key
            key = name()
            return key

        def act() -> None:
            self.inner.write_named(chunks, named)
            if key is not None:
                self._note_written(key)

        self._after(fault, "write_named", "", act)

    @contextmanager
    def bulk(self) -> Iterator[FaultyStore]:
        with self.inner.bulk() as inner:
            yield self._around(inner, in_bulk=True)
            fault = self._before("settle", "")
        self._after(fault, "settle", "", self._plan.unsettled.clear)

    def settle_names(self, folders: Iterable[str]) -> None:
        wanted = sorted(folders)
        self._do("settle_names", " ".join(wanted), lambda: self.inner.settle_names(wanted))

    def copy_from(self, source: Store, source_key: str, key: str) -> bool:
        inner = source.inner if isinstance(source, FaultyStore) else source

        def act() -> bool:
            done = self.inner.copy_from(inner, source_key, key)
            if done:
                self._note_written(key)
            return done

        return self._do("copy_from", key, act)

    def link_from(self, source: Store, source_key: str, key: str) -> bool:
        inner = source.inner if isinstance(source, FaultyStore) else source

        def act() -> bool:
            done = self.inner.link_from(inner, source_key, key)
            if done:
                self._note_written(key)
            return done

        return self._do("link_from", key, act)

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self.inner.delete(key))

    def rename(self, key: str, new_key: str) -> None:
        def act() -> None:
            self.inner.rename(key, new_key)
            self._note_written(new_key)

        self._do("rename", key, act)

    def leftovers(self, before_ns: int) -> Iterator[Leftover]:
        return iter(self._do("leftovers", "", lambda: [*self.inner.leftovers(before_ns)]))

    def discard(self, leftover: Leftover) -> None:
        self._do("discard", leftover.key, lambda: self.inner.discard(leftover))

    def prune(self, prefix: str = "") -> None:
        self._do("prune", prefix, lambda: self.inner.prune(prefix))

    def _around(self, inner: Store, *, in_bulk: bool) -> FaultyStore:
        other = FaultyStore(inner)
        other._plan, other._in_bulk = self._plan, in_bulk
        return other

    def _note_written(self, key: str) -> None:
        if self._in_bulk:
            self._plan.unsettled.append((self.inner, key))

    def _do(self, operation: str, key: str, act: Callable[[], T]) -> T:
        return self._after(self._before(operation, key), operation, key, act)

    def _do_read(self, operation: str, key: str, act: Callable[[], bytes]) -> bytes:
        fault = self._before(operation, key)
        data = self._after(fault, operation, key, act)
        if fault is not None and fault.kind in ("short-read", "flip"):
            return _corrupt(fault.kind, data)
        return data

    @contextmanager
    def _open(
        self, operation: str, key: str, act: Callable[[], AbstractContextManager[BinaryIO]]
    ) -> Iterator[BinaryIO]:
        fault = self._before(operation, key)
        if fault is not None and fault.kind in ("short-read", "flip"):
            with act() as reader:
                yield io.BytesIO(_corrupt(fault.kind, reader.read()))
            return
        with self._after(fault, operation, key, act) as reader:
            yield reader

    def _before(self, operation: str, key: str) -> Fault | None:
        fault = self._plan.next_fault(operation, key)
        if fault is None:
            return None
        if fault.kind == "crash-before" or (fault.kind == "crash-during" and operation not in PASSING):
            raise self._plan.crash(operation, key)
        if fault.kind == "error":
            raise StorageError(f"{operation} of {key!r} failed on order.", code="io-error")
        if fault.kind == "denied":
            raise StorageError(f"{operation} of {key!r} was denied on order.", code="no-permission")
        return fault

    def _after(self, fault: Fault | None, operation: str, key: str, act: Callable[[], T]) -> T:
        try:
            result = act()
        finally:
            if fault is not None and fault.kind == "power-cut":
                self._plan.lose_unsettled()
            if fault is not None and fault.kind in ("crash-after", "power-cut"):
                raise self._plan.crash(operation, key)
        if fault is not None and fault.kind == "lost-reply":
            raise StorageError(f"The reply to {operation} of {key!r} was lost on order.", code="io-error")
        return result

    def _spoil(
        self, fault: Fault | None, operation: str, key: str, data: bytes | Iterable[bytes]
    ) -> bytes | Iterable[bytes]:
        """The data of a write, which breaks off in the middle where that was ordered."""
        if fault is None or fault.kind not in ("crash-during", "full"):
            return data
        chunks = [data] if isinstance(data, bytes) else data

        def broken() -> Iterator[bytes]:
            for chunk in chunks:
                yield chunk[: len(chunk) // 2]
                break
            if fault.kind == "full":
                raise StorageError(f"{key} cannot be written: the disk is full, on order.", code="disk-full")
            raise self._plan.crash(operation, key)

        return broken()


class FaultyHeld:
    """A held file of a FaultyStore; opening and looking again are separate calls."""

    def __init__(self, store: FaultyStore, key: str, inner: HeldFile) -> None:
        self._store = store
        self._key = key
        self._inner = inner

    @property
    def info(self) -> FileInfo:
        return self._inner.info

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        with self._store._open("held.open", self._key, self._inner.open) as reader:
            yield reader

    def current(self) -> FileInfo:
        return self._store._do("held.current", self._key, self._inner.current)

    def close(self) -> None:
        self._inner.close()


def _corrupt(kind: str, data: bytes) -> bytes:
    if kind == "short-read" or not data:
        return data[:-1]
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


@contextmanager
def removing_through(store: FaultyStore) -> Iterator[None]:
    """What is removed of directories of this machine passes through a store's faults, too, as `delete`."""

    def through(act: Callable[..., None]) -> Callable[..., None]:
        def called(name: str, **how: Any) -> None:
            if sys._getframe(1).f_globals["__name__"] != trees.__name__:
                return act(name, **how)
            return store._do("delete", name, lambda: act(name, **how))

        return called

    with patch.object(os, "unlink", through(os.unlink)), patch.object(os, "rmdir", through(os.rmdir)):
        yield


@contextmanager
def killed_at(patching: pytest.MonkeyPatch, *target: Any) -> Iterator[None]:
    """What the block does is killed as it is about to call something, named as `setattr` takes it."""

    def die(*args: object, **options: object) -> None:
        raise SimulatedCrash(str(target))

    with patching.context() as patched, pytest.raises(SimulatedCrash):
        put: Callable[..., None] = patched.setattr
        put(*target, die)
        yield
