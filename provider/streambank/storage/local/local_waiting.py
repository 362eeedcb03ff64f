"""Files of a bulk whose bytes are written and whose names wait until those bytes are durable.

A name that says what is in its file must not be there before the bytes are. One sync a file is one way;
here all files wait under temporary names, are synced together, and then get their names together.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from streambank.storage.local.durability import sync_all, sync_names
from streambank.storage.local.errors import translate
from streambank.storage.local.root import Root
from streambank.storage.local.write import begin_write_back
from streambank.storage.names import check_key


class Waiting:
    """The waiting files of one bulk; a `with`, whose end gives them their names.

    Args:
        root: Where they lie, under temporary names; it syncs nothing by itself.
        descriptor: Of that directory, opened before the first write.
    """

    def __init__(self, root: Root, descriptor: int) -> None:
        self._root = root
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._files: dict[str, str] = {}

    def __enter__(self) -> Waiting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._name_all()
        finally:
            for temporary in self._files.values():
                with suppress(OSError):  # it has its real name by now; what cannot be removed is never listed
                    os.unlink(temporary, dir_fd=self._descriptor)

    def write(self, root: Root, fill: Callable[[int, str], object], name: Callable[[], str | None]) -> None:
        """Write a file, and keep its name until the end.

        Args:
            root: The store that it is written to: the bulk's own, or a child of it.
            fill: Writes the bytes to a descriptor, under a name for messages.
            name: The file's key in that store, once the bytes have passed; None to drop it.
        """
        temporary, descriptor = self._root.create_temporary(self._descriptor)
        try:
            fill(descriptor, temporary)
            key = name()
            if key is None:
                return
            path = root.join(check_key(key))
            begin_write_back(descriptor)
            with self._lock:
                replaced, self._files[path] = self._files.get(path), temporary
            temporary = replaced or ""
        finally:
            try:
                self._root.close_written(descriptor, temporary)
            finally:
                if temporary:
                    os.unlink(temporary, dir_fd=self._descriptor)

    def _name_all(self) -> None:
        if not self._files:
            return
        before = self._root.unsettled or set()
        self._root.unsettled = named = set()
        try:
            sync_all(self._descriptor, list(self._files.values()))
            for path, temporary in self._files.items():
                parent, _, name = path.rpartition("/")
                key = parent.removeprefix(self._root.path).removeprefix("/")
                with self._root.directory(key, create=True) as directory:
                    os.replace(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=directory)
                named.add(parent)
            sync_names(self._descriptor, named)
        except OSError as error:
            raise translate(error, self._root.path) from error
        finally:
            self._root.unsettled = before
