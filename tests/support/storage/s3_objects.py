"""What a test asks a bucket itself, past the store: names of objects there, and uploads that are not done."""

from __future__ import annotations

from typing import Any

from streambank.storage.s3.store import S3Store
from tests.support.storage.s3_servers import BUCKET

PART_BYTES = 5 << 20
"""The smallest part that services take."""


def key_of(store: S3Store, key: str) -> str:
    """What the bucket calls a file of a store."""
    return f"{store.uri}/{key}".removeprefix(f"s3://{BUCKET}/")


def uploads(raw: Any, store: S3Store) -> list[str]:
    """Objects below a store whose parts are on their way, or were left."""
    found = raw.list_multipart_uploads(Bucket=BUCKET, Prefix=key_of(store, "")).get("Uploads", [])
    return [each["Key"] for each in found]
