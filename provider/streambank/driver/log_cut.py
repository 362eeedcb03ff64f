"""Cutting the beginning off a file while others append to it: Linux's FALLOC_FL_COLLAPSE_RANGE.

The kernel takes whole blocks out of the file under the same lock that writes take, so an append comes before
or after it and none is lost; whoever has opened the file for appending goes on at its new end. ext4 and XFS
can do it, tmpfs and network disks cannot (fallocate(2)).
"""

from __future__ import annotations

import ctypes
import errno
import os

_FALLOC_FL_COLLAPSE_RANGE = 0x08
_NOT_HERE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM})


def whole_blocks(descriptor: int, at_most: int) -> int:
    """How many bytes at the beginning of a file are whole blocks, which can be cut off; never all of it."""
    block_bytes = os.fstatvfs(descriptor).f_bsize
    return max(0, min(os.fstat(descriptor).st_size - 1, at_most)) // block_bytes * block_bytes


def cut_off_beginning(descriptor: int, size_bytes: int) -> bool:
    """Cut whole blocks off the beginning of a file that is open for writing.

    Args:
        descriptor: The file.
        size_bytes: How much, as `whole_blocks` says.

    Returns:
        Whether it was done; False where the file system cannot do it.

    Raises:
        OSError: The disk refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate", None)
    if fallocate is None:  # another libc
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(descriptor, _FALLOC_FL_COLLAPSE_RANGE, 0, size_bytes) == 0:
        return True
    error = ctypes.get_errno()
    if error in _NOT_HERE:
        return False
    raise OSError(error, os.strerror(error))
