"""HDFS over HTTP: `webhdfs://[user@]namenode:9870/path`, through fsspec.

The NameNode moves a file either to a name that is free, or in the place of what has the name, and does each
at once (`FileSystem.rename` with `Options.Rename`, WebHDFS's `renameoptions`). So a store there keeps the
whole contract. fsspec's own `mv` asks for neither, and does not notice where the NameNode refused. Its reader
takes what a DataNode says of an error for bytes of the file, and opens directories as empty files (read in
fsspec 2026.9.0).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

from streambank.core.errors import StorageError
from streambank.storage.fsspec.store import FsspecStore, below, info_of
from streambank.storage.names import is_temporary
from streambank.storage.store import CHUNK_BYTES, Leftover, exists_error

NOT_FOUND = 404
READS = 4
"""How often a file is read whole: a DataNode breaks off where it was replaced meanwhile."""
MOST_ANSWER_BYTES = 512 << 20
"""HDFS takes a million files in a directory: 512 bytes for what is said of each. Files are read by parts."""


class WebHdfsStore(FsspecStore):
    """Files below a directory of HDFS.

    What is written has as many replicas as the cluster gives, and is on their disks when their systems write
    it there (`dfs.datanode.synconclose`).
    """

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        if offset or length is not None:
            return super().read(key, offset, length)
        for _ in range(READS - 1):
            with suppress(StorageError), self.open(key) as reader:
                return reader.read()
        with self.open(key) as reader:
            return reader.read()

    def leftovers(self, before_ns: int) -> Iterator[Leftover]:
        for key, said in self._found(""):
            if not is_temporary(posixpath.basename(key)):
                continue
            info = info_of(key, said, f"{self._uri}/{key}")
            if info.mtime_ns < before_ns:
                yield Leftover(info.path, info.size_bytes)

    def discard(self, leftover: Leftover) -> None:
        if is_temporary(posixpath.basename(leftover.key)):
            self.delete(leftover.key)

    @property
    def _exclusive(self) -> bool:
        return True

    def _prepare(self, fs: Any) -> None:
        def refuse(answer: Any, *_: Any, **__: Any) -> None:
            # Read here, since requests reads an answer to its end, whether that comes or not.
            size_bytes, parts = 0, []
            for part in answer.iter_content(CHUNK_BYTES):
                parts.append(part)
                size_bytes += len(part)
                if size_bytes > MOST_ANSWER_BYTES:
                    answer.close()
                    raise ValueError(size_bytes)
            answer._content = b"".join(parts)
            if answer.url.startswith(fs.url):
                return  # fsspec itself reads what the NameNode says of an error
            if answer.status_code == NOT_FOUND:
                raise FileNotFoundError(answer.reason)
            answer.raise_for_status()

        fs.session.hooks["response"].append(refuse)

    def _reader(self, path: str) -> BinaryIO:
        reader = self._fs.open(path, "rb")
        if reader.details["type"] != "file":
            raise IsADirectoryError(path)
        if type(reader.size) is not int or reader.size < 0:
            raise ValueError(reader.size)  # it would be read on and on
        opened: BinaryIO = reader
        return opened

    def _move(self, source: str, target: str, *, exclusive: bool) -> None:
        option = "NONE" if exclusive else "OVERWRITE"
        try:
            answer = self._fs._call(
                "RENAME", method="put", path=source, destination=target, renameoptions=option
            )
        except RuntimeError:
            if exclusive and self._fs.exists(target):
                raise exists_error(self._said(target)) from None
            raise
        # HttpFS knows no options: it says whether it did what is done without them, which replaces nothing.
        if not answer.content or answer.json()["boolean"]:
            return
        if exclusive and self._fs.exists(target):
            raise exists_error(self._said(target))
        raise StorageError(
            f"{self._said(target)} cannot be replaced: the service refuses to move a file there.",
            code="storage",
            hint="HttpFS cannot replace files: give the address of the NameNode's own web server.",
        )

    def _rmdir(self, path: str) -> None:
        try:
            self._fs.rm(path, recursive=False)
        except FileNotFoundError:
            pass
        except RuntimeError:  # what HDFS says of a directory that another writer has filled meanwhile, too
            with suppress(FileNotFoundError):
                if not self._fs.ls(path, detail=False):
                    raise

    def _said(self, path: str) -> str:
        return f"{self._uri}/{below(path, self._path(''))}"
