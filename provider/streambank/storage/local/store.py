"""A directory of this machine as a store.

A write goes to a temporary name beside the real one, is synced, renamed and made durable by syncing the
directory. An exclusive one is a hard link from the temporary name, so that of many racing writers, in threads
or in processes, exactly one wins and nobody ever sees a part of a file. In `bulk` the syncing waits for the
end, and so do the real names of `write_named`, as they say what is in the files.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from streambank.core.errors import FormatError, IntegrityError, NotFoundError
from streambank.storage.local.durability import PendingFiles, folder_ends, sync_directories
from streambank.storage.local.errors import NOT_THERE, translate, translate_read
from streambank.storage.local.read import LocalHeld, buffered, read_range
from streambank.storage.local.root import LOOK, OVERWRITE, READ, Root, mtime_ns
from streambank.storage.local.write import (
    begin_write_back,
    copy_descriptor,
    create_exclusively,
    fill,
    overwrite,
)
from streambank.storage.names import MAX_KEY_LENGTH, check_key, check_prefix, is_part, is_temporary
from streambank.storage.store import Features, FileInfo, Leftover, Row, ScanningStore, Store, exists_error

_SHORT_NAME = 24
_WRITE_BACK_BYTES = 256 << 10  # smaller files are cheaper to write back all together, at the end of a bulk


def open_location(uri: str) -> LocalStore:
    """The store at `file:///path`."""
    return LocalStore(uri.removeprefix("file://"))


class LocalStore(ScanningStore):
    """Files below one directory, which need not exist before the first write.

    Args:
        root: The directory. Symbolic links above it are the caller's choice and are followed.
        fsync: Whether finished writes survive a power cut; False only where the bytes can be made again.
    """

    def __init__(self, root: str | os.PathLike[str], *, fsync: bool = True) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - Path.resolve would follow links
        self._root = Root(str(self.root), str(self.root), fsync=fsync)
        self._waiting: PendingFiles | None = None

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    @property
    def uri(self) -> str:
        return f"file://{self.root}"

    @property
    def features(self) -> Features:
        return Features(holds=True, links=True, hidden_checksums=True, fsync=self._root.fsync, scans=True)

    def child(self, prefix: str) -> LocalStore:
        """See `Store.child`; the child's links may lead anywhere inside this store's root."""
        child = LocalStore(self.root / check_key(prefix), fsync=self._root.fsync)
        child._root.boundary = self._root.boundary
        child._root.unsettled = self._root.unsettled
        child._waiting = self._waiting
        return child

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        """See `Store.list`.

        A link to a directory, or out of the root, is listed as itself; reading it is refused by name.
        """
        for folder, rows in self.scan(prefix):
            for name, number, size_bytes, changed_ns, names in rows:
                key = f"{folder}/{name}" if folder else name
                yield FileInfo(key, size_bytes, changed_ns, f"{number}-{size_bytes}-{changed_ns}", names)

    def scan(self, prefix: str = "") -> Iterator[tuple[str, Sequence[Row]]]:
        pending = [check_prefix(prefix)]
        usable: set[str] = set()
        while pending:
            folder = pending.pop()
            rows, directories = self._scan(folder, usable)
            pending += directories
            if rows:
                yield folder, rows

    def names(self, prefix: str = "") -> Sequence[str]:
        check_prefix(prefix)
        try:
            with self._root.directory(prefix) as descriptor:
                found = os.listdir(descriptor)  # noqa: PTH208 - of a descriptor
                return sorted(name for name in found if not is_temporary(name))
        except NotFoundError:
            return []
        except OSError as error:
            raise translate(error, self._root.join(prefix)) from error

    def stat(self, key: str) -> FileInfo:
        descriptor, info = self._root.open_file(key, LOOK)
        os.close(descriptor)
        return info

    def look(self, keys: Iterable[str]) -> dict[str, FileInfo]:
        return self._root.look(keys)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        descriptor, info = self._root.open_file(key, READ)
        try:
            return read_range(
                descriptor, offset, max(0, info.size_bytes - offset) if length is None else length
            )
        except OSError as error:
            raise translate_read(error, self._root.join(key)) from error
        finally:
            os.close(descriptor)

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        descriptor, info = self._root.open_file(key, READ)
        try:
            with buffered(self._root.join(key), descriptor, info.size_bytes) as reader:
                yield reader
        finally:
            os.close(descriptor)

    def hold(self, key: str) -> LocalHeld:
        descriptor, info = self._root.open_file(key, READ)
        return LocalHeld(self._root.join(key), descriptor, info)

    def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
        parent, name = _split(key)
        if exclusive and self.exists(key):
            raise exists_error(self._root.join(key))
        with (
            self._root.directory(parent, create=True) as directory,
            self._root.temporary(directory) as (temporary, descriptor),
        ):
            size_bytes = self._fill(descriptor, data, key)
            if self._root.unsettled is not None and size_bytes >= _WRITE_BACK_BYTES:
                begin_write_back(descriptor)
            self._publish(directory, temporary, directory, name, key, exclusive=exclusive)

    def overwrite(self, key: str, data: bytes) -> None:
        descriptor, info = self._root.open_file(key, OVERWRITE)
        try:
            overwrite(descriptor, data, info.size_bytes, self._root.join(key), fsync=self._root.fsync)
        finally:
            os.close(descriptor)

    def write_named(self, data: Iterable[bytes], name: Callable[[], str | None]) -> None:
        if self._waiting is not None:
            self._waiting.write(self._root, lambda descriptor, path: self._fill(descriptor, data, path), name)
            return
        with (
            self._root.directory("", create=True) as root,
            self._root.temporary(root) as (temporary, descriptor),
        ):
            self._fill(descriptor, data, temporary)
            key = name()
            if key is None:
                return
            parent, last = _split(key)
            with self._root.directory(parent, create=True) as directory:
                self._publish(root, temporary, directory, last, key, exclusive=False)

    @contextmanager
    def bulk(self) -> Iterator[LocalStore]:
        """See `Store.bulk`; the root is made where it is not there yet."""
        if not self._root.fsync:  # nothing is promised, or the view of another `bulk`, which will sync
            yield self
            return
        with self._root.directory("", create=True) as root:
            view = LocalStore(self.root, fsync=False)
            view._root.boundary = self._root.boundary
            unsettled: set[str] = set()
            view._root.unsettled = unsettled
            with PendingFiles(view._root, root) as view._waiting:
                yield view
            try:
                if unsettled:
                    sync_directories(root, unsettled)
            except OSError as error:
                raise translate(error, str(self.root)) from error

    def settle_names(self, folders: Iterable[str]) -> None:
        """See `Store.settle_names`: the folders and those above them are synced."""
        wanted = {folder[:end] for folder in folders for end in folder_ends(check_prefix(folder))}
        for folder in sorted(wanted) if self._root.fsync else ():
            with suppress(NotFoundError), self._root.directory(folder) as directory:
                self._root.sync(directory, self._root.join(folder))

    def copy_from(self, source: Store, source_key: str, key: str) -> bool:
        """See `Store.copy_from`: a reflink where the file system can, a copy inside the kernel elsewhere."""
        if not isinstance(source, LocalStore):
            return False
        parent, name = _split(key)
        original, info = source._root.open_file(source_key, READ)
        try:
            with (
                self._root.directory(parent, create=True) as directory,
                self._root.temporary(directory) as (temporary, descriptor),
            ):
                try:
                    if not copy_descriptor(original, descriptor, info.size_bytes):
                        return False
                    if self._root.fsync:
                        os.fsync(descriptor)
                except OSError as error:
                    raise translate(error, self._root.join(key)) from error
                self._publish(directory, temporary, directory, name, key, exclusive=False)
                return True
        finally:
            os.close(original)

    def link_from(self, source: Store, source_key: str, key: str) -> bool:
        """See `Store.link_from`: a hard link.

        Raises:
            ConflictError: `key` is there already (code `exists`).
        """
        if not isinstance(source, LocalStore):
            return False
        source.stat(source_key)
        source_parent, source_name = _split(source_key)
        parent, name = _split(key)
        with (
            source._root.directory(source_parent) as source_directory,
            self._root.directory(parent, create=True) as directory,
        ):
            try:
                os.link(
                    source_name,
                    name,
                    src_dir_fd=source_directory,
                    dst_dir_fd=directory,
                    follow_symlinks=False,
                )
            except OSError as error:
                if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                    return False
                raise translate(error, self._root.join(key)) from error
            self._root.sync(directory, self._root.join(parent))
            return True

    def delete(self, key: str) -> None:
        parent, name = _split(key)
        with suppress(NotFoundError), self._root.directory(parent) as directory:
            try:
                os.unlink(name, dir_fd=directory)
            except OSError as error:
                raise translate(error, self._root.join(key)) from error

    def rename(self, key: str, new_key: str) -> None:
        """See `Store.rename`. A second try after a crash in the middle finishes the first."""
        parent, name = _split(key)
        new_parent, new_name = _split(new_key)
        self.stat(key)
        with (
            self._root.directory(parent) as directory,
            self._root.directory(new_parent, create=True) as new_directory,
        ):
            try:
                create_exclusively(directory, name, new_directory, new_name)
            except FileExistsError as error:
                if key == new_key or not self._is_same_file(key, new_key):
                    raise exists_error(self._root.join(new_key)) from error
            except OSError as error:
                raise translate(error, self._root.join(key)) from error
            self._root.sync(new_directory, self._root.join(new_parent))
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
            self._root.sync(directory, self._root.join(parent))

    def leftovers(self, before_ns: int) -> Iterator[Leftover]:
        """See `Store.leftovers`: temporary files, which a writer that adds to them makes newer."""
        return leftovers(self._root, before_ns)

    def discard(self, leftover: Leftover) -> None:
        discard(self._root, leftover)

    def prune(self, prefix: str = "") -> None:
        # Nothing is found or removed by its path, in whose place somebody may lay a link meanwhile.
        with suppress(NotFoundError), self._root.directory(check_prefix(prefix)) as top:
            for _, folders, _, directory in os.fwalk(".", topdown=False, dir_fd=top):
                for folder in folders:
                    with suppress(OSError):  # it is not empty, or a link, or somebody else was faster
                        os.rmdir(folder, dir_fd=directory)
        with suppress(OSError):
            Path(self._root.join(prefix)).rmdir()

    def _scan(self, directory: str, usable: set[str]) -> tuple[Sequence[Row], Sequence[str]]:
        """Files and directories directly below a directory; `usable` are names that need no check again."""
        rows: list[Row] = []
        directories: list[str] = []
        try:
            with self._root.directory(directory) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    name = entry.name
                    if name not in usable:
                        if is_temporary(name):
                            continue
                        key = f"{directory}/{name}" if directory else name
                        if not is_part(name) or len(key) > MAX_KEY_LENGTH:
                            raise self._unusable(key)
                        if len(name) <= _SHORT_NAME and len(directory) < MAX_KEY_LENGTH // 2:
                            usable.add(name)  # the same names are in many directories
                    try:
                        if entry.is_file(follow_symlinks=False):
                            found = entry.stat(follow_symlinks=False)
                        elif entry.is_dir(follow_symlinks=False):
                            directories.append(f"{directory}/{name}" if directory else name)
                            continue
                        elif entry.is_symlink():
                            found = self._link_status(f"{directory}/{name}" if directory else name)
                        else:
                            continue
                    except FileNotFoundError:
                        continue  # it vanished between the listing and the stat
                    rows.append((name, found.st_ino, found.st_size, mtime_ns(found), found.st_nlink))
        except NotFoundError:
            return [], []
        except OSError as error:
            raise translate(error, self._root.join(directory)) from error
        return rows, directories

    def _unusable(self, key: str) -> FormatError:
        return FormatError(
            f"{self.root} holds a file whose name cannot be used: {key!r}.",
            code="bad-key",
            hint="Rename or remove it: names are UTF-8 without backslashes and control characters.",
        )

    def _link_status(self, key: str) -> os.stat_result:
        try:
            descriptor, _ = self._root.open_file(key, LOOK)
        except (NotFoundError, IntegrityError):
            return os.lstat(self._root.join(key))
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _fill(self, descriptor: int, data: bytes | Iterable[bytes], key: str) -> int:
        return fill(descriptor, data, self._root.join(key), fsync=self._root.fsync)

    def _publish(
        self, directory: int, temporary: str, new_directory: int, name: str, key: str, *, exclusive: bool
    ) -> None:
        try:
            if exclusive:
                create_exclusively(directory, temporary, new_directory, name)
            else:
                os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=new_directory)
        except OSError as error:
            raise translate(error, self._root.join(key)) from error
        self._root.sync(new_directory, self._root.join(key.rpartition("/")[0]))

    def _is_same_file(self, key: str, other: str) -> bool:
        with suppress(NotFoundError):
            return self.stat(key).identity == self.stat(other).identity
        return False


def _split(key: str) -> tuple[str, str]:
    parent, _, name = check_key(key).rpartition("/")
    return parent, name


def leftovers(root: Root, before_ns: int) -> Iterator[Leftover]:
    """Temporary files below a root that nobody has written to since a moment; links are never followed."""
    pending = [""]
    while pending:
        folder = pending.pop()
        found: list[tuple[str, os.stat_result]] = []
        try:
            with root.directory(folder) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    key = f"{folder}/{entry.name}" if folder else entry.name
                    if is_temporary(entry.name) and entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):  # it has its real name by now
                            found.append((key, entry.stat(follow_symlinks=False)))
                    elif is_part(entry.name) and entry.is_dir(follow_symlinks=False):
                        pending.append(key)
        except NotFoundError:
            continue  # it vanished, or was never made
        except OSError as error:
            raise translate(error, root.join(folder)) from error
        for key, status in found:
            if status.st_mtime_ns < before_ns:
                yield Leftover(key, status.st_size)


def discard(root: Root, leftover: Leftover) -> None:
    """Remove one; nothing else is ever removed by this."""
    parent, _, name = leftover.key.rpartition("/")
    if not is_temporary(name):
        return
    try:
        with root.directory(parent) as directory:
            os.unlink(name, dir_fd=directory)
    except NotFoundError:
        return
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise translate(error, root.join(leftover.key)) from error
