"""Reading objects, also over a connection that breaks or damages what passes.

boto3 asks again where a request fails, and never where the body of its answer does. Here a body that ends too
soon is asked for again from where it ended, of the same version only; one that fits in memory is checked
against its checksum before anybody sees it, and fetched again where that is wrong.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from streambank.core.last_read import reading
from streambank.storage.s3.client import S3Address, status_of
from streambank.storage.s3.errors import corrupt_error
from streambank.storage.store import CHUNK_BYTES, FileInfo, RememberedFile, Store, missing_error

ATTEMPTS = 4
"""How often a body is fetched without getting further, the first time included."""
WHOLE_BYTES = 32 << 20
"""Up to here `open_object` hands out no byte before all of them are checked."""

_NOT_SATISFIABLE = 416
_ANOTHER_VERSION = 412


class Crc32:
    """CRC32 of bytes as they pass, spelled as S3 spells it."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes | memoryview) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


def spelled(digest: bytes) -> str:
    """A checksum as headers have it."""
    return base64.b64encode(digest).decode("ascii")


_ALGORITHMS: Mapping[str, Callable[[], Any]] = {
    "ChecksumSHA256": hashlib.sha256,
    "ChecksumCRC32": Crc32,
    "ChecksumSHA1": lambda: hashlib.sha1(usedforsecurity=False),
}


class Checksum:
    """The checksum that an answer promises for a whole object, if it can be computed here."""

    def __init__(self, response: Mapping[str, Any]) -> None:
        self._promised = ""
        self._sum: Any = None
        for name, make in _ALGORITHMS.items():
            value = response.get(name)
            # A checksum of checksums, which is what some multipart uploads have, ends in "-<parts>".
            if isinstance(value, str) and "-" not in value and response.get("ChecksumType") != "COMPOSITE":
                self._promised, self._sum = value, make()
                return

    def update(self, data: bytes) -> None:
        if self._sum is not None:
            self._sum.update(data)

    def holds(self) -> bool:
        return self._sum is None or spelled(self._sum.digest()) == self._promised


def read_range(place: S3Address, offset: int, length: int | None) -> bytes:
    """Bytes of an object; fewer, or none, where it ends sooner."""
    if length == 0:
        place.call("head_object")
        return b""
    if offset == 0 and length is None:
        with open_object(place) as reader:
            return reader.read()
    end = "" if length is None else offset + length - 1
    for _ in range(ATTEMPTS):
        reading(place.uri)
        response = place.call("get_object", expect=(_NOT_SATISFIABLE,), Range=f"bytes={offset}-{end}")
        if status_of(response) == _NOT_SATISFIABLE:
            return b""
        data = _body(response)
        if data is not None:
            return data
    raise corrupt_error(place.uri, f"broke off {ATTEMPTS} times while it was read")


def open_object(place: S3Address, etag: str | None = None) -> BinaryIO:
    """A reader of an object as it is now, or of the version with this ETag.

    Raises:
        NotFoundError: There is no such object, or it is another version.
        StorageError: It cannot be read (`corrupt-transfer`: not undamaged).
    """
    response = _get(place, etag)
    if int(response["ContentLength"]) > WHOLE_BYTES:
        return io.BufferedReader(_Stream(place, response), CHUNK_BYTES)
    for attempt in range(ATTEMPTS):
        if attempt:
            response = _get(place, etag)
        checksum = Checksum(response)
        data = _body(response)
        if data is not None:
            checksum.update(data)
            if checksum.holds():
                return io.BytesIO(data)
    raise corrupt_error(place.uri, f"did not arrive as it was stored, {ATTEMPTS} times")


def _get(place: S3Address, etag: str | None, **parameters: Any) -> dict[str, Any]:
    if etag is not None:
        parameters["IfMatch"] = f'"{etag}"'
    reading(place.uri)
    response = place.call("get_object", expect=(_ANOTHER_VERSION,), ChecksumMode="ENABLED", **parameters)
    if status_of(response) == _ANOTHER_VERSION:
        raise missing_error(f"{place.uri} as it was before")
    return response


def _body(response: Mapping[str, Any]) -> bytes | None:
    """All bytes of an answer; None where it broke off."""
    from botocore.exceptions import BotoCoreError

    try:
        data: bytes = response["Body"].read()
    except BotoCoreError:
        return None
    finally:
        response["Body"].close()
    return data if len(data) == response["ContentLength"] else None


class _Stream(io.RawIOBase):
    """A large object, one version of it, chunk by chunk."""

    def __init__(self, place: S3Address, response: Mapping[str, Any]) -> None:
        super().__init__()
        self._place = place
        self._etag = etag_of(response)
        self._size = int(response["ContentLength"])
        self._checksum = Checksum(response)
        self._body = response["Body"]
        self._position = 0
        self._failures = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()

    def _read(self, size: int) -> bytes:
        from botocore.exceptions import BotoCoreError

        while self._position < self._size:
            try:
                chunk: bytes = self._body.read(min(size, self._size - self._position))
            except BotoCoreError:
                chunk = b""
            if chunk:
                self._failures = 0
                self._position += len(chunk)
                self._checksum.update(chunk)
                if self._position == self._size and not self._checksum.holds():
                    raise corrupt_error(self._place.uri, "did not arrive as it was stored")
                return chunk
            self._resume()
        return b""

    def _resume(self) -> None:
        self._failures += 1
        if self._failures == ATTEMPTS:
            raise corrupt_error(self._place.uri, f"broke off {ATTEMPTS} times at byte {self._position}")
        self._body.close()
        self._body = _get(self._place, self._etag, Range=f"bytes={self._position}-")["Body"]


def etag_of(response: Mapping[str, Any]) -> str:
    """The identity of the bytes that an answer is about."""
    return str(response["ETag"]).strip('"')


def info_of(path: str, response: Mapping[str, Any], size_bytes: int) -> FileInfo:
    """What an answer, or an item of a listing, says about an object; times are whole seconds everywhere."""
    mtime_ns = int(response["LastModified"].timestamp()) * 1_000_000_000
    return FileInfo(path, size_bytes, mtime_ns, etag_of(response))


def stat(place: S3Address, path: str) -> FileInfo:
    """One object as it is now."""
    response = place.call("head_object")
    return info_of(path, response, int(response["ContentLength"]))


class S3Held(RememberedFile):
    """A file that is remembered by its version, and of which no other version is read."""

    def __init__(self, store: Store, place: S3Address, path: str) -> None:
        super().__init__(store, stat(place, path))
        self.place = place

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        with open_object(self.place, self.info.identity) as reader:
            yield reader
