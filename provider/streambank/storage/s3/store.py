"""A prefix of an S3 bucket as a store: Amazon's, or any service that speaks its language.

`s3://` and Spark's `s3a://` lead to the same objects; a store's `uri` keeps the spelling that it was opened
with, since what is written into checkpoints (paths of schema files) must be one that Spark knows there.

An object's identity is its ETag: it says which bytes they are, so writing the same bytes again keeps it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import BinaryIO

from streambank.core.errors import InputError, StorageError
from streambank.storage.names import check_key, check_prefix
from streambank.storage.s3 import client, s3_service_copy
from streambank.storage.s3 import list as s3_list
from streambank.storage.s3 import lock as s3_lock
from streambank.storage.s3 import versions as s3_versions
from streambank.storage.s3.client import S3Address, Service, service, status_of
from streambank.storage.s3.copy import copy
from streambank.storage.s3.credentials import S3Access, current_s3
from streambank.storage.s3.multipart import leftovers
from streambank.storage.s3.read import S3Held, info_of, open_object, read_range, stat
from streambank.storage.s3.s3_service_copy import REFUSALS, S3ServiceCopy
from streambank.storage.s3.write import create, put_spool, put_stream, spooled
from streambank.storage.store import (
    REMOTE_AT_ONCE,
    Covered,
    Features,
    FileInfo,
    HeldFile,
    Leftover,
    LifecycleRule,
    Lock,
    Store,
    exists_error,
)

_URI = re.compile(r"(s3a?)://([^/]*)/?(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_RENAMED = "streambank-renamed"
"""Name of what an object's metadata says about its former name and bytes."""
_RENAMED_BY_CREATE_BYTES = 8 << 20


def open_location(uri: str) -> S3Store:
    """The store at `s3://bucket[/prefix]` or `s3a://bucket[/prefix]`.

    Raises:
        InputError: It names no bucket (code `bad-location`); the message does not repeat it, since such
            locations used to hold credentials.
    """
    match = _URI.fullmatch(uri)
    if match is None or not _BUCKET.fullmatch(match[2]):
        raise InputError(
            "A location with s3:// or s3a:// must name a bucket (three letters or more), and nothing else "
            "before its path.",
            code="bad-location",
            hint="Write s3://bucket/prefix. Credentials come from AWS_PROFILE, the environment or a role.",
        )
    store = S3Store(match[2], scheme=match[1], access=current_s3())
    return store.child(match[3]) if match[3] else store


class S3Store(Store):
    """Objects below one prefix of a bucket, which has to be there. What can be seen is durable."""

    def __init__(self, bucket: str, *, scheme: str = "s3", access: S3Access | None = None) -> None:
        self._bucket = bucket
        self._access = access
        self._prefix = ""
        self._root = f"{scheme}://{bucket}"
        self._known: tuple[int, Service] | None = None

    def __repr__(self) -> str:
        return f"S3Store({self.uri!r})"

    @property
    def uri(self) -> str:
        return f"{self._root}/{self._prefix}".rstrip("/")

    @property
    def features(self) -> Features:
        return Features(fsync=True, identity_of_bytes=True, spools=True, remote=True, at_once=REMOTE_AT_ONCE)

    def child(self, prefix: str) -> S3Store:
        child = S3Store.__new__(S3Store)
        child._bucket, child._access = self._bucket, self._access
        child._root, child._known = self._root, self._known
        child._prefix = self._prefix + check_key(prefix) + "/"
        return child

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        start = self._below(prefix)
        for key, item in s3_list.items(self._here, start):
            yield info_of(key, item, int(item["Size"]))

    def names(self, prefix: str = "") -> Sequence[str]:
        return sorted(s3_list.names(self._here, self._below(prefix)))

    def stat(self, key: str) -> FileInfo:
        return stat(self._place(key), key)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        return read_range(self._place(key), offset, length)

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        with open_object(self._place(key)) as reader:
            yield reader

    def hold(self, key: str) -> S3Held:
        return S3Held(self, self._place(key), key)

    def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
        place = self._place(key)
        chunks = (bytes(data),) if isinstance(data, bytes | bytearray | memoryview) else data
        if exclusive:
            with spooled(chunks) as spool:
                create(place, spool)
        else:
            put_stream(place, chunks)

    def write_named(self, data: Iterable[bytes], name: Callable[[], str | None]) -> None:
        """See `Store.write_named`; the bytes wait in memory or a temporary file until they have a name.

        An upload has its name from its first request on and there is no renaming, so this is the way of
        bytes that can be read only once. Who can read them again does so (`Features.spools`).
        """
        with spooled(data) as spool:
            key = name()
            if key is not None:
                put_spool(self._place(key), spool)

    def copy_from(self, source: Store, source_key: str, key: str) -> bool:
        """See `Store.copy_from`: by the service itself, between any two of its buckets, for one owner.

        Whoever reads the one with other settings than it writes the other has no right to a copy, or no way.
        """
        if not isinstance(source, S3Store) or source._service() is not self._service():
            return False
        try:
            copy(source._place(source_key), self._place(key))
        except StorageError as error:
            if error.code in REFUSALS:
                return False
            raise
        return True

    def copy_of(self, file: HeldFile) -> S3ServiceCopy | None:
        """See `CopiesHeld.copy_of`: between buckets that are reached with the same settings."""
        if not isinstance(file, S3Held) or file.info.size_bytes < s3_service_copy.LEAST_BYTES:
            return None
        service = self._service()
        if file.place.service is not service or (file.place.bucket, self._bucket) in service.uncopied:
            return None
        return S3ServiceCopy(file.place, file.info.identity, file.info.size_bytes, self._place)

    def delete(self, key: str) -> None:
        """See `Store.delete`; in a versioned bucket the old version stays below a delete marker."""
        self._place(key).call("delete_object", expect=(404,))

    def rename(self, key: str, new_key: str) -> None:
        """See `Store.rename`: copy and delete. Of small files even racing ones never replace another.

        A second try after a crash in the middle finishes the first: the copy says what it is a copy of.
        """
        source, target = self._place(key), self._place(new_key)
        info = self.stat(key)
        origin = {_RENAMED: hashlib.sha256(f"{source.key}\n{info.identity}".encode()).hexdigest()}
        found = target.call("head_object", expect=(404,))
        if status_of(found) != 404:
            if key == new_key or found["Metadata"].get(_RENAMED) != origin[_RENAMED]:
                raise exists_error(target.uri)
        elif info.size_bytes <= _RENAMED_BY_CREATE_BYTES:
            with spooled([self.read(key)]) as spool:
                create(target, spool, origin)
        else:
            copy(source, target, origin, exclusive=True)
        self.delete(key)

    def leftovers(self, before_ns: int) -> Iterator[Leftover]:
        """See `Store.leftovers`: uploads in parts that were neither completed nor given up."""
        return leftovers(self._here, before_ns)

    def discard(self, leftover: Leftover) -> None:
        place = self._place(leftover.key)
        place.call("abort_multipart_upload", expect=(404,), UploadId=leftover.upload)

    def prune(self, prefix: str = "") -> None:
        """See `Store.prune`: markers of directories, and what servers on file systems leave of them."""
        s3_list.prune(self._here, self._below(prefix))

    @property
    def prefix(self) -> str:
        return self._prefix

    def takes_locks(self) -> bool:
        return s3_lock.takes_locks(self._here)

    def lock(self, key: str, lock: Lock) -> None:
        s3_lock.lock(self._place(key), lock)

    def lock_of(self, key: str) -> Lock | None:
        return s3_lock.lock_of(self._place(key))

    def keeps_versions(self) -> bool:
        return s3_versions.keeps_versions(self._here)

    def covered(self, prefix: str = "") -> Iterator[Covered]:
        return s3_versions.covered(self._here, prefix)

    def uncover(self, file: Covered) -> None:
        s3_versions.uncover(self._place(file.key), file)

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...]:
        return client.lifecycle_rules(self._here)

    def server_time(self) -> datetime:
        return client.server_time(self._here)

    def _service(self) -> Service:
        if self._known is None or self._known[0] != os.getpid():  # connections do not survive a fork
            self._known = (os.getpid(), service(self.uri, self._access))
        return self._known[1]

    @property
    def _here(self) -> S3Address:
        return S3Address(self._service(), self._bucket, self._prefix, self.uri)

    def _place(self, key: str) -> S3Address:
        full = self._prefix + check_key(key)
        return S3Address(self._service(), self._bucket, full, f"{self._root}/{full}")

    def _below(self, prefix: str) -> str:
        return self._prefix + (check_prefix(prefix) + "/" if prefix else "")
