"""From what the operating system says to the errors of this project."""

from __future__ import annotations

import errno
import os

from streambank.core.errors import StorageError, StreambankError
from streambank.storage.store import exists_error, missing_error

NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})
"""What opening a key that names no regular file may answer."""

_NO_PERMISSION = (
    "no-permission",
    "Give the user that runs this permission for it, or run it as another user.",
)
_CODES = {
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EROFS: ("read-only", "Mount the file system for writing, or choose another location."),
    errno.ENOSPC: (
        "disk-full",
        "Free some space and try again; no half-written file is left under its final name.",
    ),
    errno.EFBIG: ("disk-full", "The limit of file sizes is reached: raise it (ulimit -f)."),
    errno.EDQUOT: ("disk-full", "The quota is used up: free some space and try again."),
    errno.EMFILE: ("too-many-open-files", "Raise the limit of open files (ulimit -n) and try again."),
    errno.ENFILE: ("too-many-open-files", "Raise the system's limit of open files and try again."),
    errno.EIO: (
        "io-error",
        "The device failed to read or write: look at the kernel's log, then at the disk.",
    ),
}


def translate(error: OSError, path: str) -> StreambankError:
    """The error of ours that says the same."""
    if isinstance(error, FileNotFoundError):
        return missing_error(path)
    if isinstance(error, FileExistsError):
        return exists_error(path)
    code, hint = _CODES.get(
        error.errno or 0, ("storage", "Look at the path and its file system, then try again.")
    )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(f"{path} cannot be used: {reason}.", code=code, hint=hint)


def translate_read(error: OSError, path: str) -> StreambankError:
    """The same for an error of reading; a file that another machine has removed counts as one that is gone.

    Network file systems answer ESTALE for it, even where it is held open: only what is removed from this very
    machine stays readable there.
    """
    return missing_error(path) if error.errno == errno.ESTALE else translate(error, path)
