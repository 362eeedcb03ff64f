"""Writing objects: whole or not at all, checked by the service against a checksum that was computed here.

An exclusive create is one PUT with `If-None-Match: *`, the only conditional write that all services agree on.
Where its answer is lost and boto3 sends it again, the second one is refused because of the first; so each
create carries a token in the object's metadata, by which it knows its own.
"""

from __future__ import annotations

import random
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, Any

from streambank.core.errors import ConflictError, StorageError
from streambank.storage.local.errors import translate as translate_local
from streambank.storage.names import TEMPORARY_PREFIX, TEMPORARY_SUFFIX
from streambank.storage.s3.client import S3Address, status_of
from streambank.storage.s3.errors import corrupt_error, no_exclusive_create_error
from streambank.storage.s3.multipart import TOKEN, made_by, put_parts
from streambank.storage.s3.read import Crc32, spelled
from streambank.storage.store import CHUNK_BYTES, exists_error

PART_BYTES = 16 << 20
"""Size of the first parts of an upload; a smaller object is one PUT."""
PARTS_OF_ONE_SIZE = 500
"""After so many parts they grow by `PART_BYTES`: 10,000, which is the limit, reach 1.6 TB."""
SPOOL_BYTES = 32 << 20
"""Up to here bytes whose name or size is not known yet wait in memory, then in a temporary file."""
CREATE_ATTEMPTS = 6

_RACED = 409
_REFUSED = 412
_LIMIT_BYTES = 5 << 30


@dataclass(frozen=True, slots=True)
class Spool:
    """Bytes that wait for being sent, and may be sent again."""

    file: IO[bytes]
    size_bytes: int
    checksum: str

    def blocks(self) -> Iterator[bytes]:
        """The bytes; the last step makes sure that the temporary file has kept them.

        Raises:
            StorageError: It has not (code `corrupt-transfer`), or it cannot be read.
        """
        checksum = Crc32()
        self.file.seek(0)
        while chunk := self._read():
            checksum.update(chunk)
            yield chunk
        if spelled(checksum.digest()) != self.checksum:
            raise corrupt_error(tempfile.gettempdir(), "did not keep the bytes of a temporary file")

    def _read(self) -> bytes:
        try:
            return self.file.read(CHUNK_BYTES)
        except OSError as error:
            raise translate_local(error, tempfile.gettempdir()) from error


@contextmanager
def spooled(data: Iterable[bytes]) -> Iterator[Spool]:
    """Let an iterable pass into memory, or a temporary file where it is large."""
    checksum, size = Crc32(), 0
    with tempfile.SpooledTemporaryFile(SPOOL_BYTES, prefix="streambank-") as file:
        for chunk in data:  # an error of the iterable itself passes untouched
            checksum.update(chunk)
            size += len(chunk)
            try:
                file.write(chunk)
            except OSError as error:
                raise translate_local(error, tempfile.gettempdir()) from error
        yield Spool(file, size, spelled(checksum.digest()))


def put(place: S3Address, data: bytes) -> None:
    """Create or replace an object by one request."""
    checksum = Crc32()
    checksum.update(data)
    _put(place, data, len(data), spelled(checksum.digest()))


def put_stream(place: S3Address, data: Iterable[bytes]) -> None:
    """Create or replace an object; in parts where it is large, and nothing of them is left on failure."""
    parts = _parts(data)
    first = next(parts, b"")
    second = next(parts, None)
    if second is None:
        put(place, first)
    else:
        _put_parts(place, _chained(first, second, parts))


def put_spool(place: S3Address, spool: Spool) -> None:
    """Create or replace an object of known size."""
    if spool.size_bytes > PART_BYTES:
        put_stream(place, spool.blocks())
    else:
        _put(place, spool.file, spool.size_bytes, spool.checksum)


def create(place: S3Address, spool: Spool, metadata: Mapping[str, str] | None = None) -> None:
    """Create an object, if there is none of that name.

    Raises:
        ConflictError: There is one (code `exists`).
        InputError: The service replaces what is there all the same (code `no-exclusive-create`).
    """
    if spool.size_bytes > _LIMIT_BYTES:
        raise StorageError(
            f"{place.uri} would have {spool.size_bytes} bytes, but one request can create at most 5 GiB.",
            code="too-large",
            hint="Let it be written in parts: no file that has to be created at once is that large.",
        )
    _prove(place)
    token = uuid.uuid4().hex
    said = {**(metadata or {}), TOKEN: token}
    for attempt in range(CREATE_ATTEMPTS):
        if attempt:  # others write the same key at this moment, and the service wants us to ask again
            time.sleep(random.uniform(0, 0.1 * 2**attempt))
        try:
            _put(place, spool.file, spool.size_bytes, spool.checksum, IfNoneMatch="*", Metadata=said)
            return
        except _RefusedError as refused:
            if refused.status == _REFUSED:
                if made_by(place, token) is None:
                    raise exists_error(place.uri) from None
                return
        except StorageError:
            if made_by(place, token) is None:
                raise
            return
    raise ConflictError(
        f"{place.uri} is being written by others at the same time.", code="exists", hint="Try again."
    )


def _prove(place: S3Address) -> None:
    """Make sure, before the first real create in a bucket, that the service refuses to replace an object.

    Older services ignore the condition without a word, and let two win. It is tried out on an object of its
    own, so nothing that was there is touched. Where this credential may not delete, that object stays: its
    name is that of an unfinished write, which no listing of ours returns.

    Raises:
        InputError: The service replaces what is there all the same (code `no-exclusive-create`).
    """
    if place.bucket in place.service.proven:
        return
    folder = place.key.rpartition("/")[0]
    name = f"{TEMPORARY_PREFIX}proof-{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
    key = f"{folder}/{name}" if folder else name
    proof = replace(place, key=key, uri=f"{place.uri.removesuffix(place.key)}{key}")
    empty = spelled(Crc32().digest())
    try:
        for _ in range(CREATE_ATTEMPTS):
            try:
                _put(proof, b"", 0, empty, IfNoneMatch="*")
                _put(proof, b"", 0, empty, IfNoneMatch="*")
            except _RefusedError as refused:
                if refused.status == _REFUSED:  # nobody else knows the name: what is there is ours
                    place.service.proven.add(place.bucket)
                    return
            else:
                raise no_exclusive_create_error(place.uri)
    finally:
        with suppress(StorageError):  # it says nothing about creates, and what stays does no harm
            proof.call("delete_object", expect=(404,))
    raise ConflictError(
        f"{place.uri} is being written by others at the same time.", code="exists", hint="Try again."
    )


class _RefusedError(Exception):
    """The service did not create the object."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _put(place: S3Address, body: bytes | IO[bytes], size: int, checksum: str, **more: Any) -> None:
    if not isinstance(body, bytes):
        body.seek(0)
    response = place.call(
        "put_object",
        expect=(_RACED, _REFUSED) if "IfNoneMatch" in more else (),
        Body=body,
        ContentLength=size,
        ChecksumCRC32=checksum,
        **place.service.encryption,
        **more,
    )
    if status_of(response) in (_RACED, _REFUSED):
        raise _RefusedError(status_of(response))
    _compare(place, response, checksum)


def _put_parts(place: S3Address, parts: Iterable[bytes]) -> None:
    whole = Crc32()

    def passing() -> Iterator[bytes]:
        for part in parts:
            whole.update(part)
            yield part

    def send(upload: str, number: int, part: bytes) -> dict[str, str]:
        checksum = Crc32()
        checksum.update(part)
        expected = spelled(checksum.digest())
        response = place.call(
            "upload_part", UploadId=upload, PartNumber=number, Body=part, ChecksumCRC32=expected
        )
        _compare(place, response, expected)
        return {"ETag": response["ETag"], "ChecksumCRC32": expected}

    response = put_parts(
        place,
        passing(),
        send,
        begin={"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"},
        end=lambda: {"ChecksumCRC32": spelled(whole.digest()), "ChecksumType": "FULL_OBJECT"},
    )
    _compare(place, response, spelled(whole.digest()))


def _compare(place: S3Address, response: dict[str, Any], expected: str) -> None:
    found = response.get("ChecksumCRC32")
    if isinstance(found, str) and "-" not in found and found != expected:
        raise corrupt_error(place.uri, "did not arrive as it was sent")


def _parts(data: Iterable[bytes]) -> Iterator[bytes]:
    number, waiting = 0, bytearray()
    for chunk in data:
        waiting += chunk
        while len(waiting) >= (size := PART_BYTES * (1 + number // PARTS_OF_ONE_SIZE)):
            yield bytes(waiting[:size])
            del waiting[:size]
            number += 1
    if waiting:
        yield bytes(waiting)


def _chained(first: bytes, second: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield second
    yield from rest
