"""The system calls behind durable and exclusive writes on a local disk."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable

from streambank.storage.local.errors import translate

_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file (btrfs, XFS, bcachefs)
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
_NO_CLONE = frozenset(
    {errno.ENOTTY, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.ENOSYS}
)
_COPY_BYTES = 1 << 30


def write_all(descriptor: int, chunk: bytes | bytearray | memoryview) -> None:
    """Write every byte of a chunk; the kernel may take a part at a time."""
    written = os.write(descriptor, chunk)
    if written < len(chunk):
        view = memoryview(chunk)
        while written < len(chunk):
            written += os.write(descriptor, view[written:])


def fill(descriptor: int, data: bytes | Iterable[bytes], path: str, *, fsync: bool) -> int:
    """Write all of some data to a new file, and sync it where that is asked for; gives its size.

    Raises:
        StorageError: It cannot be written, or does not reach the disk; `path` is for that message.
    """
    chunks = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
    for chunk in chunks:  # an error of the iterable itself passes untouched
        try:
            write_all(descriptor, chunk)
        except OSError as error:
            raise translate(error, path) from error
    try:
        if fsync:
            os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    except OSError as error:
        raise translate(error, path) from error


def overwrite(descriptor: int, data: bytes, size_bytes: int, path: str, *, fsync: bool) -> None:
    """Put other bytes into the blocks that a file has; of fewer bytes the last one stays the last.

    Raises:
        StorageError: They do not fit, or the disk refuses; `path` is for that message.
    """
    try:
        if len(data) > size_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = memoryview(data[:-1] + b" " * (size_bytes - len(data)) + data[-1:])
        done = 0
        while done < len(view):
            done += os.pwrite(descriptor, view[done:], done)
        if fsync:
            os.fsync(descriptor)
    except OSError as error:
        raise translate(error, path) from error


def begin_write_back(descriptor: int) -> None:
    """Let the disk begin with what was written to a file, so that syncing it later has less to wait for."""
    if hasattr(os, "posix_fadvise"):  # for pages that are not on the disk yet, Linux begins to write them
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def create_exclusively(directory: int, name: str, new_directory: int, new_name: str) -> None:
    """Give a finished file a second name that must be new.

    Where the file system knows no hard links, the name is claimed by an empty file first and then replaced; a
    reader may see the empty file for a moment there, and a crash in that moment leaves it.

    Raises:
        FileExistsError: The new name is taken.
    """
    try:
        os.link(name, new_name, src_dir_fd=directory, dst_dir_fd=new_directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(
            os.open(
                new_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=new_directory
            )
        )
        os.replace(name, new_name, src_dir_fd=directory, dst_dir_fd=new_directory)


def sync_directory(directory: int) -> None:
    """Make names of a directory durable, where its file system can."""
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems sync no directories
            raise


def copy_descriptor(source: int, target: int, size_bytes: int) -> bool:
    """Copy a whole file inside the kernel, sharing blocks where it can; False where it cannot copy."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno not in _NO_CLONE:
            raise
    else:
        return True
    copied = 0
    while copied < size_bytes:
        try:
            count = os.copy_file_range(source, target, min(_COPY_BYTES, size_bytes - copied), copied, copied)
        except OSError as error:
            if copied == 0 and error.errno in _NO_CLONE:
                return False
            raise
        if count == 0:
            break  # the source became shorter
        copied += count
    return True
