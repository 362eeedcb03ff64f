"""Files of a bulk whose bytes are written and whose names wait until those bytes are durable.

A name that says what is in its file must not be there before the bytes are. One sync a file is one way;
here all files wait under temporary names, are synced together, and then get their names together.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from types import TracebackType

from streambank.storage.local_errors import translate
from streambank.storage.local_root import Root, temporary_name
from streambank.storage.local_sync import sync_all, sync_names


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

    def add(self, root: Root, directory: int, temporary: str, descriptor: int, key: str) -> None:
        """Keep a finished file until the end.

        Args:
            root: The store that it is written to: the bulk's own, or a child of it.
            directory: Descriptor of the directory that it lies in, the root of that store.
            temporary: Its name there, which the caller is about to remove.
            descriptor: The file itself.
            key: Its key in that store.
        """
        kept = temporary_name()
        path = root.join(key)
        try:
            os.replace(temporary, kept, src_dir_fd=directory, dst_dir_fd=self._descriptor)
            if hasattr(os, "posix_fadvise"):  # begins to write it back, so that the end has less to wait for
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise translate(error, path) from error
        with self._lock:
            replaced = self._files.get(path)
            self._files[path] = kept
        if replaced is not None:
            os.unlink(replaced, dir_fd=self._descriptor)

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
