"""Letting a service copy an object whose bytes are hashed here, so that they are read once and sent never.

What is copied must be what was hashed, whatever happens to the source in between, and no service is believed
without a sign. So the copy is an upload in parts, from `LEAST_BYTES` on: of each part the service says the
CRC32 that it copied, which is compared with the bytes that passed here, and only when all are right does the
object appear. A part is asked for on the condition that the source still has the ETag that was read
(`CopySourceIfMatch`); where a service ignores that, the checksum finds it. The last request carries the
checksum of the whole, for the service to compare.

A service that says no checksum of a part, or refuses (another account's bucket, no such request), copies
nothing: then the bytes are sent, as to any other store. SeaweedFS says it, Amazon documents it, moto does
not. No condition is set on the name: it is a digest, so whoever writes it writes the same bytes, and a
damaged object has to be replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streambank.core.errors import StorageError
from streambank.storage.s3.client import S3Address, status_of
from streambank.storage.s3.errors import corrupt_error
from streambank.storage.s3.multipart import put_parts
from streambank.storage.s3.read import Crc32, spelled
from streambank.storage.store import missing_error

LEAST_BYTES = 8 << 20
"""Below this one PUT costs less than the three requests of such a copy."""
PART_BYTES = 64 << 20
PARTS = 9_000
"""A larger object has larger parts: services take 10,000 of up to 5 GiB."""
REFUSALS = frozenset({"no-permission", "object-archived", "storage", "too-large", "wrong-region"})
"""Codes of errors that mean: it does not copy from there to here; reading and writing may well work."""

_ANOTHER_VERSION = 412


class _UnprovenError(Exception):
    """The service does not say what it copied."""


class _OtherBytesError(Exception):
    """It copied something else than what was read."""


class S3ServiceCopy:
    """A copy to be made, once all bytes have passed; see `ServiceCopy` of `storage.store`."""

    def __init__(
        self, source: S3Address, etag: str, size_bytes: int, target: Callable[[str], S3Address]
    ) -> None:
        self._source = source
        self._etag = etag
        self._size = size_bytes
        self._target = target
        self._part = max(PART_BYTES, -(-size_bytes // PARTS))
        self._passed = 0
        self._whole = Crc32()
        self._sums = [Crc32() for _ in range(0, size_bytes, self._part)]

    def passed(self, data: bytes) -> None:
        self._whole.update(data)
        view = memoryview(data)
        while view and self._passed < self._size:
            number, within = divmod(self._passed, self._part)
            piece = view[: self._part - within]
            self._sums[number].update(piece)
            self._passed += len(piece)
            view = view[len(piece) :]
        self._passed += len(view)

    def to(self, key: str) -> bool:
        target = self._target(key)
        if self._passed != self._size:
            return False
        whole = spelled(self._whole.digest())
        try:
            response = put_parts(
                target,
                range(0, self._size, self._part),
                lambda upload, number, start: self._send(target, upload, number, start),
                begin={"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"},
                end=lambda: {"ChecksumCRC32": whole, "ChecksumType": "FULL_OBJECT"},
            )
        except _OtherBytesError:
            return False
        except _UnprovenError:
            self._give_up(target)
            return False
        except StorageError as error:
            if error.code not in REFUSALS:
                raise
            self._give_up(target)
            return False
        found = target.call("head_object")
        if response.get("ChecksumCRC32", whole) != whole or int(found["ContentLength"]) != self._size:
            raise corrupt_error(target.uri, f"was not copied whole from {self._source.uri}")
        return True

    def _send(self, target: S3Address, upload: str, number: int, start: int) -> dict[str, Any]:
        response = target.call(
            "upload_part_copy",
            expect=(_ANOTHER_VERSION,),
            UploadId=upload,
            PartNumber=number,
            CopySource={"Bucket": self._source.bucket, "Key": self._source.key},
            CopySourceIfMatch=f'"{self._etag}"',
            CopySourceRange=f"bytes={start}-{min(start + self._part, self._size) - 1}",
        )
        if status_of(response) == _ANOTHER_VERSION:
            raise missing_error(f"{self._source.uri} as it was before")
        said = response["CopyPartResult"].get("ChecksumCRC32")
        expected = spelled(self._sums[number - 1].digest())
        if said is None:
            raise _UnprovenError
        if said != expected:
            raise _OtherBytesError
        return {"ETag": response["CopyPartResult"]["ETag"], "ChecksumCRC32": expected}

    def _give_up(self, target: S3Address) -> None:
        """Try no other object between these two buckets in this process."""
        target.service.uncopied.add((self._source.bucket, target.bucket))
