"""Where bytes live: one contract (`Store`), and the stores that keep it.

`open_store("/data/ck")` gives the store at a location; which one is behind it matters to nobody else.
"""

from __future__ import annotations

from streambank.storage.locations import (
    followed,
    is_below,
    is_beside,
    is_inside,
    local_path,
    normalize_location,
    open_store,
    same_place,
    scheme_of,
    service_name,
    upwards,
)
from streambank.storage.s3.credentials import S3Access, answering_within, using_s3
from streambank.storage.store import CHUNK_BYTES, Features, FileInfo, HeldFile, Opener, Store

__all__ = [
    "CHUNK_BYTES",
    "Features",
    "FileInfo",
    "HeldFile",
    "Opener",
    "S3Access",
    "Store",
    "answering_within",
    "followed",
    "is_below",
    "is_beside",
    "is_inside",
    "local_path",
    "normalize_location",
    "open_store",
    "same_place",
    "scheme_of",
    "service_name",
    "upwards",
    "using_s3",
]
