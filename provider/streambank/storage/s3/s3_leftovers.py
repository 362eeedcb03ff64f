"""Uploads in parts that nobody has finished: their parts cost money, and no listing shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streambank.core.errors import NotFoundError
from streambank.storage.names import is_key
from streambank.storage.s3.client import Service, call
from streambank.storage.store import Leftover


def leftovers(service: Service, bucket: str, root: str, uri: str, before_ns: int) -> Iterator[Leftover]:
    """Uploads below a root that were begun before a moment, and that got no part since.

    Args:
        service: The service.
        bucket: The bucket.
        root: What the keys begin with; empty, or with a slash at its end.
        uri: What messages name.
        before_ns: The moment, by the service's own clock.
    """
    for upload in _uploads(service, bucket, root, uri):
        key = upload["Key"].removeprefix(root)
        if not upload["Key"].startswith(root) or not is_key(key) or _ns(upload["Initiated"]) >= before_ns:
            continue
        # An upload may well be older than any grace and go on: its newest part tells.
        try:
            parts = list(_parts(service, bucket, upload, uri))
        except NotFoundError:
            continue  # it was completed or given up since it was listed
        if all(_ns(part["LastModified"]) < before_ns for part in parts):
            yield Leftover(key, sum(int(part["Size"]) for part in parts), upload["UploadId"])


def _uploads(service: Service, bucket: str, root: str, uri: str) -> Iterator[Mapping[str, Any]]:
    asked: dict[str, Any] = {"Bucket": bucket, "Prefix": root}
    while True:
        page = call(service, uri, "list_multipart_uploads", **asked)
        yield from page.get("Uploads", ())
        following = page.get("NextKeyMarker"), page.get("NextUploadIdMarker")
        if not page.get("IsTruncated") or following == (asked.get("KeyMarker"), asked.get("UploadIdMarker")):
            return
        asked |= {"KeyMarker": following[0] or "", "UploadIdMarker": following[1] or ""}


def _parts(service: Service, bucket: str, upload: Mapping[str, Any], uri: str) -> Iterator[Mapping[str, Any]]:
    """The parts of an upload.

    Raises:
        NotFoundError: There is no such upload any more.
    """
    asked: dict[str, Any] = {"Bucket": bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
    while True:
        page = call(service, uri, "list_parts", **asked)
        yield from page.get("Parts", ())
        following = page.get("NextPartNumberMarker")
        if not page.get("IsTruncated") or following == asked.get("PartNumberMarker"):
            return
        asked["PartNumberMarker"] = following


def _ns(moment: Any) -> int:
    return int(moment.timestamp() * 1e9)
