"""From what a filesystem package raises to the errors of this project.

Only the kind of a foreign error is repeated: its text may hold parts of requests, and those are signed with
credentials.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from streambank.core.errors import InputError, StorageError, StreambankError
from streambank.storage.local.errors import translate as translate_local
from streambank.storage.store import exists_error, missing_error

PACKAGES = {
    "abfs": "adlfs",
    "abfss": "adlfs",
    "adl": "adlfs",
    "az": "adlfs",
    "gcs": "gcsfs",
    "gs": "gcsfs",
    "hdfs": "pyarrow",
    "oss": "ossfs",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "webhdfs": "requests",
}
"""Scheme -> the package on PyPI that opens it."""

_HADOOP = (
    "hdfs:// works where Hadoop's own client does: set JAVA_HOME, HADOOP_HOME and "
    'CLASSPATH="$(hadoop classpath --glob)".'
)
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Let errors of ours pass and turn every other one into one of ours."""
    try:
        yield
    except StreambankError:
        raise
    except Exception as error:
        raise translate(error, uri) from error


def translate(error: Exception, uri: str) -> StreambankError:
    """The error of ours that says the same."""
    if isinstance(error, _NO_FILE):
        return missing_error(uri)
    if isinstance(error, FileExistsError):
        return exists_error(uri)
    if isinstance(error, PermissionError) and error.errno is None:
        error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if isinstance(error, OSError) and error.errno is not None:
        return translate_local(error, uri)
    return StorageError(
        f"{uri} cannot be used: its filesystem package failed ({type(error).__name__}).",
        code="storage",
        hint="Look at the credentials and settings of that package, and at the network; then try again.",
    )


class TranslatedReader(io.RawIOBase):
    """Reads what a package has opened, and leaves it open; many packages ask for bytes only now."""

    def __init__(self, reader: BinaryIO, uri: str) -> None:
        self._reader = reader
        self._uri = uri

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # not every Buffer
        """The next bytes.

        Raises:
            NotFoundError: The file went away.
            StorageError: It cannot be read, or ends before the size that it was opened with (code
                `corrupt-transfer`): who asked on would get a little each time, for a size without end.
        """
        with translated(self._uri):
            data = self._reader.read(len(buffer))
            size = getattr(self._reader, "size", None)
            is_short = len(data) < len(buffer) and isinstance(size, int) and self._reader.tell() < size
        if is_short:
            raise short_error(self._uri, len(data), len(buffer))
        buffer[: len(data)] = data
        return len(data)


def short_error(uri: str, got_bytes: int, asked_bytes: int) -> StorageError:
    """Not all bytes came that are there."""
    return StorageError(
        f"{uri} gave {got_bytes} bytes instead of the {asked_bytes} that were asked for.",
        code="corrupt-transfer",
        hint="Try again; it may have been written at the same moment.",
    )


def missing_package_error(scheme: str, uri: str) -> StorageError:
    """Nobody who can open the scheme is installed."""
    package = PACKAGES.get(scheme)
    return StorageError(
        f"{uri} cannot be opened: the filesystem package for {scheme}:// is not installed.",
        code="missing-package",
        hint=f"pip install {package}" if package else f"Install the fsspec filesystem for {scheme}://.",
    )


def not_usable_error(scheme: str, uri: str, error: Exception) -> StorageError:
    """The package is there, and what it needs itself is not, or its settings are wrong."""
    hint = "Look at its settings: environment variables, or files in ~/.config/fsspec."
    return StorageError(
        f"{uri} cannot be opened: the filesystem package for {scheme}:// did not start "
        f"({type(error).__name__}).",
        code="storage",
        hint=_HADOOP if scheme == "hdfs" else hint,
    )


def no_exclusive_create_error(uri: str, scheme: str) -> InputError:
    """Two writers of one file could both believe to have made it: that is never risked."""
    return InputError(
        f"{uri} cannot be created safely: the filesystem of {scheme}:// cannot refuse to create a file "
        "that already exists.",
        code="no-exclusive-create",
        hint="A checkpoint there can be saved. Keep repositories, job records and restored checkpoints on a "
        "local disk, s3://, gs://, abfs:// or webhdfs://.",
    )


def no_version_error(uri: str) -> StorageError:
    """Without a version or a time a file that was written again looks unchanged."""
    return StorageError(
        f"{uri} cannot be used: its filesystem gives neither a version nor a time for its files, so "
        "changes would go unnoticed.",
        code="no-file-version",
        hint="Keep checkpoints and repositories on another filesystem.",
    )
