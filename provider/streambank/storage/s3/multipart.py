"""One object from many parts: several of them on their way at once, and none of them left behind.

Of all uploads of a process together at most `s3_client.PARTS_AT_ONCE` parts are on their way, so that many
large files at once cost little more memory than one; an upload holds a place only while a part is being sent,
so none starves.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from streambank.core.errors import NotFoundError, StorageError
from streambank.core.python310 import add_note
from streambank.storage.names import is_key
from streambank.storage.s3.client import S3Address
from streambank.storage.store import Leftover

TOKEN = "streambank-write"
"""Name of the token in an object's metadata, by which a write knows its own object."""
THREADS = 4
"""How many parts of one object are on their way at once."""

T = TypeVar("T")
Send = Callable[[str, int, T], Mapping[str, Any]]
"""Sends the part of a number to an upload; what the completion has to say about it."""


def put_parts(
    place: S3Address,
    parts: Iterable[T],
    send: Send[T],
    *,
    metadata: Mapping[str, str] | None = None,
    begin: Mapping[str, Any] | None = None,
    end: Callable[[], Mapping[str, Any]] = dict,
) -> dict[str, Any]:
    """Make an object of parts.

    Args:
        parts: What `send` gets, one after the other; taken in this thread.
        send: Called in its own threads.

    Returns:
        What the service answered; where that was lost, what it says about the object.
    """
    token = uuid.uuid4().hex
    said = {**(metadata or {}), TOKEN: token}
    asked = {**(begin or {}), **place.service.encryption}
    upload = place.call("create_multipart_upload", Metadata=said, **asked)["UploadId"]
    try:
        sent = _send_all(place, upload, parts, send)
        return _complete(place, upload, sent, token, end())
    except BaseException as error:
        _abort(place, upload, error)
        raise


def _send_all(place: S3Address, upload: str, parts: Iterable[T], send: Send[T]) -> list[dict[str, Any]]:
    """Send every part; when this returns or raises, none is on its way any more."""
    slots, futures, failed = place.service.slots, list[Future[Mapping[str, Any]]](), list[BaseException]()

    def done(future: Future[Mapping[str, Any]]) -> None:
        slots.release()
        if not future.cancelled() and (error := future.exception()) is not None:
            failed.append(error)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="streambank-part") as pool:
        try:
            for number, part in enumerate(parts, 1):
                slots.acquire()
                if failed:
                    slots.release()
                    break
                future = pool.submit(send, upload, number, part)
                future.add_done_callback(done)
                futures.append(future)
            return [{"PartNumber": number, **future.result()} for number, future in enumerate(futures, 1)]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def _complete(
    place: S3Address, upload: str, parts: list[dict[str, Any]], token: str, more: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        return place.call(
            "complete_multipart_upload", UploadId=upload, MultipartUpload={"Parts": parts}, **more
        )
    except StorageError:  # a lost answer: there is no such upload any more, since it is done
        mine = made_by(place, token)
        if mine is None:
            raise
        return mine


def made_by(place: S3Address, token: str) -> dict[str, Any] | None:
    """What the service says about the object, if the write with that token made it."""
    try:
        response = place.call("head_object")
    except (NotFoundError, StorageError):
        return None  # what made us look is the better error
    return response if response.get("Metadata", {}).get(TOKEN) == token else None


def _abort(place: S3Address, upload: str, error: BaseException) -> None:
    try:
        place.call("abort_multipart_upload", expect=(404,), UploadId=upload)
    except StorageError as failure:
        add_note(error, f"Parts of {place.uri} could not be removed: {failure}")


def leftovers(root: S3Address, before_ns: int) -> Iterator[Leftover]:
    """Uploads below a root that were begun before a moment of the service's clock, and got no part since."""
    after = {"NextKeyMarker": "KeyMarker", "NextUploadIdMarker": "UploadIdMarker"}
    for page in root.pages("list_multipart_uploads", after, Prefix=root.key):
        for upload in page.get("Uploads", ()):
            key = upload["Key"].removeprefix(root.key)
            if (
                not upload["Key"].startswith(root.key)
                or not is_key(key)
                or _ns(upload["Initiated"]) >= before_ns
            ):
                continue
            # An upload may well be older than any grace and go on: its newest part tells.
            try:
                parts = list(_parts(root, upload))
            except NotFoundError:
                continue  # it was completed or given up since it was listed
            if all(_ns(part["LastModified"]) < before_ns for part in parts):
                yield Leftover(key, sum(int(part["Size"]) for part in parts), upload["UploadId"])


def _parts(root: S3Address, upload: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    after, which = {"NextPartNumberMarker": "PartNumberMarker"}, ("Key", "UploadId")
    for page in root.pages("list_parts", after, **{name: upload[name] for name in which}):
        yield from page.get("Parts", ())


def _ns(moment: Any) -> int:
    return int(moment.timestamp() * 1e9)
