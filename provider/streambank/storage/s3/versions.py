"""What a versioned bucket keeps of deleted objects: older versions, below a delete marker.

A delete without a version lays a marker, and the object cannot be seen. A delete of the marker, by its own
version, makes the newest version below it visible again; no version of an object is deleted by that.
Source: Amazon S3 User Guide, "Working with delete markers".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streambank.core.errors import StorageError
from streambank.core.python310 import UTC
from streambank.storage.names import is_key, is_temporary
from streambank.storage.s3.client import S3Address, status_of
from streambank.storage.s3.list import PAGE_KEYS
from streambank.storage.store import Covered

_RIGHTS = (
    "It needs s3:ListBucketVersions on the bucket and s3:DeleteObjectVersion on the objects: use the "
    "credentials of an administrator, not those of Airflow."
)
_UNKNOWN = (403, 404, 405, 501)


def keeps_versions(root: S3Address) -> bool:
    """Whether a bucket has versions, or had them: they stay where versioning is suspended."""
    answer = root.ask("get_bucket_versioning", expect=_UNKNOWN)
    if str(answer.get("Error", {}).get("Code")) == "NoSuchBucket":
        root.ask("head_bucket")  # which says so in our words
    return status_of(answer) in _UNKNOWN or answer.get("Status") in ("Enabled", "Suspended")


def covered(root: S3Address, prefix: str) -> Iterator[Covered]:
    """Every object below a root that a marker covers, with a key below it that begins with a prefix."""
    markers: dict[str, Any] = {}
    newest: dict[str, Any] = {}
    after = {"NextKeyMarker": "KeyMarker", "NextVersionIdMarker": "VersionIdMarker"}
    with _saying_the_rights():
        for page in root.pages("list_object_versions", after, Prefix=root.key + prefix, MaxKeys=PAGE_KEYS):
            markers |= {each["Key"]: each for each in page.get("DeleteMarkers", ()) if each.get("IsLatest")}
            for each in page.get("Versions", ()):
                if each["Key"] in markers:
                    newest.setdefault(each["Key"], each)  # it comes first
            # The versions of one name may go on with the next page.
            last = page.get("NextKeyMarker") if page.get("IsTruncated") else None
            for key in [key for key in markers if key != last]:
                marker, file = markers.pop(key), newest.pop(key, None)
                name = key.removeprefix(root.key)
                if file is not None and is_key(name) and not is_temporary(name.rpartition("/")[2]):
                    # versitygw 1.8 gives the marker the time of the file, and the file that of its deletion.
                    at = max(marker["LastModified"], file["LastModified"]).astimezone(UTC)
                    yield Covered(name, str(marker["VersionId"]), at, int(file["Size"]))


def uncover(place: S3Address, file: Covered) -> None:
    """Remove the marker that covers an object."""
    with _saying_the_rights():
        place.call("delete_object", expect=(404,), VersionId=file.marker)


@contextmanager
def _saying_the_rights() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        if error.code != "no-permission":
            raise
        raise StorageError(error.message, code=error.code, hint=_RIGHTS) from error
