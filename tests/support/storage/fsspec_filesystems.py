"""Filesystems of fsspec for tests: one that creates as gcsfs and adlfs do, and one that cannot.

Both keep their files on this machine's disk, below the path that follows the scheme.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

BLOBS = "sb-blobs"
FILES = "sb-files"


class Files(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A filesystem without an exclusive create, as HDFS is through pyarrow."""

    protocol = FILES

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        text = os.fspath(path)
        return "/" + str(text).removeprefix(f"{cls.protocol}://").strip("/")


class Blobs(Files):
    """An object store: no directories to make, files appear whole, `mode="create"` is atomic."""

    protocol = BLOBS

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        temporary = self._temporary(path)
        temporary.write_bytes(value)
        self._publish(temporary, path, mode)

    def put_file(
        self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **_: Any
    ) -> None:
        temporary = self._temporary(rpath)
        shutil.copyfile(lpath, temporary)
        self._publish(temporary, rpath, mode)

    def find(self, path: str, **options: Any) -> Any:
        found = super().find(path, **options)
        return {name: said for name, said in found.items() if "/.upload-" not in name}

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        found = super().ls(path, detail=True, **options)
        shown = [said for said in found if "/.upload-" not in said["name"] and not _is_empty(said)]
        return shown if detail else [said["name"] for said in shown]

    def _temporary(self, path: str) -> Path:
        target = Path(self._strip_protocol(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.with_name(f".upload-{uuid.uuid4().hex}")

    def _publish(self, temporary: Path, path: str, mode: str) -> None:
        if mode == "create":
            try:
                os.link(temporary, self._strip_protocol(path))
            finally:
                temporary.unlink()
        else:
            temporary.replace(self._strip_protocol(path))


def _is_empty(said: dict[str, Any]) -> bool:
    """Whether a directory has no file below it: object stores do not have such."""
    if said["type"] != "directory":
        return False
    return not any(file.is_file() for file in Path(said["name"]).rglob("*"))


def register() -> None:
    """Let fsspec know both; may be called again."""
    for each in (Blobs, Files):
        fsspec.register_implementation(each.protocol, each, clobber=True)
