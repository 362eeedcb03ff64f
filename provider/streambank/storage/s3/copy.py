"""Copying inside one S3 service, without the bytes passing through this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambank.core.errors import ConflictError
from streambank.storage.s3.client import S3Address, status_of
from streambank.storage.s3.errors import corrupt_error
from streambank.storage.s3.multipart import put_parts
from streambank.storage.s3.read import etag_of
from streambank.storage.store import exists_error

LIMIT_BYTES = 1 << 30
"""What one request copies; services take up to 5 GiB, and answer when it is done."""
PART_BYTES = 512 << 20
_ANOTHER_VERSION = 412


def copy(
    source: S3Address,
    target: S3Address,
    metadata: Mapping[str, str] | None = None,
    *,
    exclusive: bool = False,
) -> None:
    """Copy an object, of one version throughout.

    Args:
        metadata: What the copy says about itself, instead of what the source says.
        exclusive: Refuse where the target is there already. Amazon and SeaweedFS do so at once with the copy;
            versitygw and MinIO ignore it, and so does everybody for a copy in parts. A caller that needs to
            be sure looks before, and is then right but for a race.

    Raises:
        NotFoundError: There is no such source.
        ConflictError: The target is there (code `exists`).
        ConflictError: It was written again meanwhile (code `size-changed`).
    """
    found = source.call("head_object")
    size, etag = int(found["ContentLength"]), etag_of(found)
    asked = {
        "CopySource": {"Bucket": source.bucket, "Key": source.key},
        "CopySourceIfMatch": f'"{etag}"',
    }
    if size <= LIMIT_BYTES:
        more: dict[str, Any] = {"MetadataDirective": "REPLACE", "Metadata": metadata} if metadata else {}
        if exclusive:
            more["IfNoneMatch"] = "*"
        response = target.call(
            "copy_object", expect=(_ANOTHER_VERSION,), **asked, **more, **target.service.encryption
        )
        if status_of(response) == _ANOTHER_VERSION and exclusive:
            found = target.call("head_object", expect=(404,))
            if status_of(found) != 404:
                if metadata and metadata.items() <= found["Metadata"].items():
                    return  # our own copy, whose answer was lost
                raise exists_error(target.uri)
        _unchanged(source, response)
    else:
        _copy_parts(source, target, size, asked, metadata or {})
    if int(target.call("head_object")["ContentLength"]) != size:
        raise corrupt_error(target.uri, f"was not copied whole from {source.uri}")


def _copy_parts(
    source: S3Address, target: S3Address, size: int, asked: dict[str, Any], metadata: Mapping[str, str]
) -> None:
    def send(upload: str, number: int, start: int) -> dict[str, str]:
        response = target.call(
            "upload_part_copy",
            expect=(_ANOTHER_VERSION,),
            UploadId=upload,
            PartNumber=number,
            CopySourceRange=f"bytes={start}-{min(start + PART_BYTES, size) - 1}",
            **asked,
        )
        _unchanged(source, response)
        return {"ETag": response["CopyPartResult"]["ETag"]}

    put_parts(target, range(0, size, PART_BYTES), send, metadata=metadata)


def _unchanged(source: S3Address, response: dict[str, Any]) -> None:
    if status_of(response) == _ANOTHER_VERSION:
        raise ConflictError(
            f"{source.uri} was written again while it was copied.", code="size-changed", hint="Try again."
        )
