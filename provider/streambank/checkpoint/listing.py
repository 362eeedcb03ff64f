"""List a checkpoint that may be live, in the one order in which nothing needed can seem to be missing."""

from __future__ import annotations

from contextlib import suppress

from streambank.errors import NotFoundError
from streambank.storage import FileInfo, Store

LISTING_ORDER = ("commits", "sources", "offsets", "metadata", "state")
"""Commits first: everything of a batch is durable before its commit, so what is listed later is there unless
Spark itself deleted it. Sources before offsets: a batch is planned after its files are logged, so a source
log does not seem to be ahead of the offsets only because time went by between the two.
"""


def list_checkpoint(store: Store) -> dict[str, FileInfo]:
    """Every file below a checkpoint, path -> file; temporary and hidden ones too.

    Raises:
        StorageError: The directory cannot be read.
    """
    names = store.names()
    listing: dict[str, FileInfo] = {}
    for name in [*LISTING_ORDER, *(name for name in names if name not in LISTING_ORDER)]:
        found = {info.path: info for info in store.list(name)}
        if not found and name in names:
            with suppress(NotFoundError):  # an empty directory, or it is gone
                found[name] = store.stat(name)
        listing |= found
    return listing
