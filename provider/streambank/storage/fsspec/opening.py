"""From a location of any scheme that fsspec knows to its store."""

from __future__ import annotations

from streambank.core.errors import FormatError, InputError, StorageError
from streambank.storage.fsspec.errors import PACKAGES, missing_package_error
from streambank.storage.fsspec.store import FsspecStore
from streambank.storage.fsspec.webhdfs import WebHdfsStore


def open_location(uri: str) -> FsspecStore:
    """The store at a location of any scheme that fsspec knows.

    Raises:
        FormatError: The scheme is unknown (code `unknown-scheme`).
        StorageError: The package for it is not installed (`missing-package`).
        InputError: The location holds a password, or more than one filesystem (`bad-location`).
    """
    scheme, _, rest = uri.partition("://")
    if "::" in uri or ":" in rest.partition("/")[0].rpartition("@")[0]:
        raise InputError(
            f"A location of the scheme {scheme}:// holds credentials, or names several filesystems.",
            code="bad-location",
            hint="Give credentials in the settings of the filesystem's package, and only one filesystem.",
        )
    try:
        import fsspec
    except ImportError as error:
        raise StorageError(
            f"{uri} cannot be opened: fsspec is not installed.",
            code="missing-package",
            hint="pip install fsspec",
        ) from error
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise missing_package_error(scheme, uri) from error
    except ValueError as error:
        if scheme in PACKAGES:  # a scheme that the package itself makes known
            raise missing_package_error(scheme, uri) from error
        raise FormatError(
            f"Locations of the scheme '{scheme}://' cannot be opened: {uri}",
            code="unknown-scheme",
            hint="Known schemes: file, s3, s3a, memory, and those of fsspec: gs, abfs, hdfs and others.",
        ) from error
    return WebHdfsStore(uri) if scheme == "webhdfs" else FsspecStore(uri)
