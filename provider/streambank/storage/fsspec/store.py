"""Any other filesystem as a store, through fsspec: `gs://`, `abfs://`, `hdfs://` and whatever else it knows.

The user installs the filesystem's own package (gcsfs, adlfs, ...), which finds credentials in its own way.
Two kinds are told apart, since the contract rests on a create that fails where the file is there:

* `CREATES`: object stores whose packages write a file by one conditional request. They keep the whole
  contract. What they do on a lost answer is not known from here, so a create that succeeded may be reported
  as `exists`; never the other way round.
* all others: read, listed, and written by a temporary name and a move; an exclusive create is refused rather
  than raced. `hdfs://` is one of them, as pyarrow's client deletes what is in a move's way. `webhdfs://` can
  do it (webhdfs.py).
"""

from __future__ import annotations

import io
import os
import posixpath
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from streambank.core.errors import FormatError
from streambank.core.last_read import reading
from streambank.core.python310 import UTC, add_note, parse_time
from streambank.core.units import EPOCH
from streambank.storage.fsspec.errors import (
    TranslatedReader,
    missing_package_error,
    no_exclusive_create_error,
    no_version_error,
    not_usable_error,
    short_error,
    translated,
)
from streambank.storage.local.errors import translate as translate_local
from streambank.storage.names import (
    TEMPORARY_PREFIX,
    TEMPORARY_SUFFIX,
    check_key,
    check_prefix,
    is_key,
    is_temporary,
)
from streambank.storage.store import (
    CHUNK_BYTES,
    REMOTE_AT_ONCE,
    Features,
    FileInfo,
    Store,
    chunks,
    exists_error,
    missing_error,
)

CREATES = frozenset({"abfs", "abfss", "az", "gcs", "gs"})
"""Schemes whose `pipe_file` and `put_file` take `mode="create"` as one atomic request.

gcsfs sends `ifGenerationMatch=0`, adlfs `If-None-Match: *`; read in gcsfs 2026.10.1 and adlfs 2026.8.0.
"""
MEMORY_BYTES = 32 << 20  # as s3/write.py's SPOOL_BYTES
MOST_FOLDERS = 100
"""In which a file may lie below a store; Spark lays out six, and HDFS takes a thousand at most."""


class FsspecStore(Store):
    """Files below one directory of an fsspec filesystem.

    A name is as durable as it can be when it is seen. Packages differ in when a copy inside their service is
    done, so none is asked for. The services that hold repositories end broken uploads by themselves.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._root = uri
        self._scheme = uri.partition("://")[0]
        self._known: tuple[int, Any, str] | None = None

    def __repr__(self) -> str:
        return f"FsspecStore({self._uri!r})"

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def features(self) -> Features:
        real = self._creates
        return Features(
            hidden_checksums=not real, fsync=real, spools=True, remote=True, at_once=REMOTE_AT_ONCE
        )

    def child(self, prefix: str) -> FsspecStore:
        child = type(self)(f"{self._uri}/{check_key(prefix)}")
        child._root, child._known = self._root, self._known
        return child

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        for key, said in self._found(check_prefix(prefix)):
            if not is_temporary(posixpath.basename(key)) and not _is_directory(said):
                yield info_of(key, said, f"{self._uri}/{key}")

    def names(self, prefix: str = "") -> Sequence[str]:
        start = self._path(check_prefix(prefix))
        with translated(f"{self._uri}/{prefix}"):
            try:
                found = self._fs.ls(start, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
            names = {below(name.rstrip("/"), start) for name in found}
        for name in names:
            if "/" in name or name in (".", ".."):
                raise self._bad_key(f"{prefix}/{name}".lstrip("/"))
        return sorted(name for name in names if name and not is_temporary(name))

    def stat(self, key: str) -> FileInfo:
        path, uri = self._path(check_key(key)), f"{self._uri}/{key}"
        with translated(uri):
            said = self._fs.info(path)
            if said.get("type") != "file":
                raise missing_error(uri)
        return info_of(key, said, uri)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        path, uri = self._path(check_key(key)), f"{self._uri}/{key}"
        reading(uri)
        if offset == 0 and length is None:
            with translated(uri):
                return bytes(self._fs.cat_file(path))
        size = self.stat(key).size_bytes
        end = size if length is None else min(size, offset + length)
        if offset >= end:
            return b""
        with translated(uri):
            data = bytes(self._fs.cat_file(path, start=offset, end=end))
        if len(data) != end - offset:
            raise short_error(uri, len(data), end - offset)
        return data

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        uri = f"{self._uri}/{key}"
        reading(uri)
        with translated(uri):
            reader = self._reader(self._path(check_key(key)))
        with reader, io.BufferedReader(TranslatedReader(reader, uri), CHUNK_BYTES) as translating:
            yield translating

    def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
        check_key(key)
        if exclusive and not self._exclusive:
            raise no_exclusive_create_error(f"{self._uri}/{key}", self._scheme)
        with self._gathered(data) as bytes_or_file:
            self._put(key, bytes_or_file, exclusive=exclusive)

    def write_named(self, data: Iterable[bytes], name: Callable[[], str | None]) -> None:
        """See `Store.write_named`; the bytes wait in memory or a temporary file until they have a name."""
        with self._gathered(data) as bytes_or_file:
            key = name()
            if key is not None:
                self._put(check_key(key), bytes_or_file, exclusive=False)

    def delete(self, key: str) -> None:
        path = self._path(check_key(key))
        with translated(f"{self._uri}/{key}"):
            try:
                self._fs.rm_file(path)
            except (FileNotFoundError, NotADirectoryError):
                return

    def rename(self, key: str, new_key: str) -> None:
        """See `Store.rename`: an exclusive create of the same bytes, and a delete."""
        check_key(new_key)
        self.stat(key)
        if self.exists(new_key):
            raise exists_error(f"{self._uri}/{new_key}")
        with self.open(key) as reader:
            self.write(new_key, chunks(reader), exclusive=True)
        self.delete(key)

    def prune(self, prefix: str = "") -> None:
        """See `Store.prune`; object stores have no directories."""
        if self._creates:
            return
        start = self._path(check_prefix(prefix))
        with translated(f"{self._uri}/{prefix}"):
            if not self._fs.isdir(start):
                return
            directories = [self._path(key) for key, said in self._found(prefix) if _is_directory(said)]
            for name in sorted({start, *directories}, key=len, reverse=True):
                if not self._fs.ls(name, detail=False):
                    self._rmdir(name)

    @property
    def _creates(self) -> bool:
        return self._scheme in CREATES

    @property
    def _exclusive(self) -> bool:
        return self._creates

    @property
    def _fs(self) -> Any:
        return self._opened()[0]

    def _opened(self) -> tuple[Any, str]:
        """The filesystem and this store's path in it; its connections do not survive a fork."""
        if self._known is None or self._known[0] != os.getpid():
            from fsspec.core import url_to_fs

            try:
                # An instance of our own, since listings that somebody else has cached would hide changes.
                fs, path = url_to_fs(self._root, skip_instance_cache=True)
            except ImportError as error:
                raise missing_package_error(self._scheme, self._uri) from error
            except Exception as error:
                raise not_usable_error(self._scheme, self._uri, error) from error
            fs.dircache.use_listings_cache = False
            self._prepare(fs)
            self._known = (os.getpid(), fs, path.rstrip("/"))
        _, fs, root = self._known
        return fs, root + self._uri.removeprefix(self._root)

    def _found(self, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Keys of files and directories below a prefix, and what is said of them.

        `find` of fsspec leaves out directories that it may not list, or that are not answered for.

        Raises:
            FormatError: A name cannot be a key, or a folder is `MOST_FOLDERS` deep, as one is that a service
                lists in itself, or that a link leads back to (code `bad-key`).
        """
        root, folders = self._path(""), [self._path(prefix)]
        while folders:
            folder = folders.pop()
            found: Iterable[tuple[str, Mapping[str, Any]]] = ()
            with translated(f"{self._uri}/{prefix}"), suppress(FileNotFoundError, NotADirectoryError):
                # It went away, or is a file.
                if self._creates:
                    found = self._fs.find(folder, detail=True).items()
                else:
                    found = [(said["name"].rstrip("/"), said) for said in self._fs.ls(folder, detail=True)]
            for name, said in found:
                if not below(name, folder) or name.endswith("/"):
                    continue
                key = below(name, root)
                if not is_key(key) or key.count("/") > MOST_FOLDERS:
                    raise self._bad_key(key)
                if _is_directory(said):
                    folders.append(name)
                yield key, said

    def _bad_key(self, key: str) -> FormatError:
        return FormatError(
            f"{self._uri} holds a file whose name cannot be used: {key[:200]!r}.",
            code="bad-key",
            hint="Rename or remove it: no empty part, '.', '..', backslash or control character, and no more "
            f"than {MOST_FOLDERS} folders, such as a link that leads back makes.",
        )

    def _prepare(self, fs: Any) -> None:
        """Set up a filesystem of this store's own."""

    def _reader(self, path: str) -> BinaryIO:
        reader: BinaryIO = self._fs.open(path, "rb")
        return reader

    def _move(self, source: str, target: str, *, exclusive: bool) -> None:
        """Give a temporary file its name; `exclusive` only where `_exclusive`."""
        self._fs.mv(source, target)

    def _rmdir(self, path: str) -> None:
        self._fs.rmdir(path)

    def _path(self, key: str) -> str:
        root = self._opened()[1]
        return f"{root}/{key}" if key else root

    @contextmanager
    def _gathered(self, data: bytes | Iterable[bytes]) -> Iterator[bytes | Path]:
        """All bytes, in memory or in a file; an error of the iterable itself passes untouched."""
        if isinstance(data, bytes | bytearray | memoryview):
            yield bytes(data)
            return
        waiting = bytearray()
        rest = iter(data)
        for chunk in rest:
            waiting += chunk
            if len(waiting) > MEMORY_BYTES:
                break
        else:
            yield bytes(waiting)
            return
        with tempfile.NamedTemporaryFile(prefix="streambank-") as file:
            pieces = chain((bytes(waiting),), rest)
            del waiting
            for chunk in pieces:
                try:
                    file.write(chunk)
                except OSError as error:
                    raise translate_local(error, tempfile.gettempdir()) from error
            file.flush()
            yield Path(file.name)

    def _put(self, key: str, data: bytes | Path, *, exclusive: bool) -> None:
        path = self._path(key)
        with translated(f"{self._uri}/{key}"):
            if self._creates:
                mode = "create" if exclusive else "overwrite"
                if isinstance(data, bytes):
                    self._fs.pipe_file(path, data, mode=mode)
                else:
                    self._fs.put_file(str(data), path, mode=mode)
            else:
                self._move_in(path, data, exclusive=exclusive)

    def _move_in(self, path: str, data: bytes | Path, *, exclusive: bool) -> None:
        parent = posixpath.dirname(path).rstrip("/")  # empty: the root of the filesystem
        temporary = f"{parent}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
        self._fs.makedirs(parent or "/", exist_ok=True)
        try:
            if isinstance(data, bytes):
                self._fs.pipe_file(temporary, data)
            else:
                self._fs.put_file(str(data), temporary)
            self._move(temporary, path, exclusive=exclusive)
        except BaseException as error:
            try:
                self._fs.rm_file(temporary)
            except Exception as failure:
                add_note(error, f"{temporary} could not be removed: {type(failure).__name__}")
            raise


_VERSIONS = ("generation", "etag", "ETag")
_TIMES = ("mtime", "last_modified", "LastModified", "modified", "updated", "created")
_MILLISECONDS = "modificationTime"  # WebHDFS


def info_of(path: str, said: Mapping[str, Any], uri: str) -> FileInfo:
    """A file as a listing or a stat shows it.

    Raises:
        StorageError: Nothing there tells one version of a file from another (code `no-file-version`), or its
            size or time is none (`storage`).
    """
    with translated(uri):
        size, mtime_ns = int(said.get("size") or 0), _mtime_ns(said)
        if size < 0:
            raise ValueError(size)
    version = next((str(said[name]).strip('"') for name in _VERSIONS if said.get(name)), "")
    if not version and mtime_ns:
        inode = said.get("ino", said.get("fileId", ""))  # WebHDFS has the latter
        version = f"{inode}-{size}-{mtime_ns}"
    if not version:
        raise no_version_error(uri)
    return FileInfo(path, size, mtime_ns, version)


def _is_directory(said: Mapping[str, Any]) -> bool:
    return said.get("type") == "directory"


def _mtime_ns(said: Mapping[str, Any]) -> int:
    if isinstance(said.get(_MILLISECONDS), int):
        return int(said[_MILLISECONDS]) * 1_000_000
    value = next((said[name] for name in _TIMES if said.get(name) is not None), None)
    if isinstance(value, str):
        value = parse_time(value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        since = aware - EPOCH
        return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
    return int(value * 1_000_000_000) if isinstance(value, int | float) else 0


def below(name: str, start: str) -> str:
    """The part of a filesystem's name below a path, empty for the root; empty where it is not below it."""
    name, start = name.lstrip("/"), start.lstrip("/")
    if not start:
        return name
    return name.removeprefix(f"{start}/") if name.startswith(f"{start}/") else ""
