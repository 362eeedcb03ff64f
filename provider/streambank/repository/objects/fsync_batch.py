"""Writes that become durable in groups: any number of threads write, and one of them settles now and then.

Settled files have their names and all of their bytes, whatever happens later. Until then a name that is a
digest is not there at all (`Store.bulk`), so that nobody counts on bytes that a power cut may still take.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from streambank.storage.store import Store


class _Group:
    """The view that is written through until the next settling."""

    def __init__(self, store: Store) -> None:
        self.stack = ExitStack()
        self.files = self.stack.enter_context(store.bulk())
        self.writing = 0


class FsyncBatch:
    """Hands out views of a store to any number of threads, and makes durable what was written through them.

    Use it in a `with`, whose end settles; one that is left by an error drops what is not settled yet.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state = threading.Condition()
        self._one_at_a_time = threading.Lock()
        self._group: _Group | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> FsyncBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.settle()
        else:
            group = self._taken_away()
            if group is not None:
                group.stack.__exit__(kind, error, trace)

    @contextmanager
    def files(self) -> Iterator[Store]:
        """A view to write through, for one write."""
        with self._state:
            group = self._group
            if group is None:
                group = self._group = _Group(self._store)
            group.writing += 1
        try:
            yield group.files
        finally:
            with self._state:
                group.writing -= 1
                self._state.notify_all()

    def settle(self) -> None:
        """Make everything durable whose write is over; writes that begin meanwhile go to the next group.

        Raises:
            StorageError: Something did not reach the disk, now or earlier, whoever asked for it.
        """
        with self._one_at_a_time:
            if self._failure is not None:
                raise self._failure
            group = self._taken_away()
            if group is None:
                return
            try:
                group.stack.close()
            except BaseException as error:
                self._failure = error
                raise

    def _taken_away(self) -> _Group | None:
        with self._state:
            group, self._group = self._group, None
            if group is not None:
                self._state.wait_for(lambda: group.writing == 0)
            return group
