"""The checkpoints in tests/data/checkpoints, made by real Spark versions: in memory, or unpacked."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from streambank.checkpoint.closure import Closure, plan_closure
from streambank.checkpoint.paths import needs_rewrite, rewrite_paths
from streambank.core.choices import ClosureKind
from streambank.core.errors import NotFoundError
from streambank.storage import FileInfo, Store
from tests.support.archives import unpack_tar

FOLDER = Path(__file__).resolve().parents[2] / "data" / "checkpoints"
NAMES = sorted(
    path.relative_to(FOLDER).as_posix().removesuffix(".tar.xz") for path in FOLDER.glob("*/*.tar.xz")
)
REFUSED = tuple(name for name in NAMES if name.endswith("async"))
PLANNED = tuple(name for name in NAMES if name not in REFUSED)


@dataclass
class Checkpoint:
    """Files of a checkpoint in memory, and what was read of them."""

    files: dict[str, bytes]
    reads: list[str] = field(default_factory=list)

    def listing(self) -> dict[str, FileInfo]:
        return {path: FileInfo(path, len(data), 0, str(hash(data))) for path, data in self.files.items()}

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self.reads.append(path)
        if path not in self.files:
            raise NotFoundError(f"{path} is not there.")
        return self.files[path][offset : None if length is None else offset + length]

    def plan(self, batch: int | None = None, kind: ClosureKind = "minimal") -> Closure:
        return plan_closure(self.listing(), self.read, batch, kind)

    def batches(self) -> list[int]:
        return sorted(int(path[8:]) for path in self.files if path.startswith("commits/") and "." not in path)

    def only(self, closure: Closure) -> Checkpoint:
        return Checkpoint({path: self.files[path] for path in closure.paths})

    def but(self, *paths: str) -> Checkpoint:
        return Checkpoint({path: data for path, data in self.files.items() if path not in paths})

    def having(self, changed: Mapping[str, bytes | Callable[[bytes], bytes]]) -> Checkpoint:
        files = dict(self.files)
        for path, data in changed.items():
            files[path] = data if isinstance(data, bytes) else data(files[path])
        return Checkpoint(files)

    def into(self, store: Store) -> Store:
        for path, data in self.files.items():
            store.write(path, data)
        return store


@cache
def _members(name: str) -> dict[str, bytes]:
    with tarfile.open(FOLDER / f"{name}.tar.xz") as tar:
        return {member.name: _bytes(tar, member) for member in tar if member.isfile()}


def _bytes(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    reader = tar.extractfile(member)
    assert reader is not None
    return reader.read()


def checkpoint(name: str) -> Checkpoint:
    """A checkpoint by `<spark>/<cell>`."""
    start = "checkpoint/"
    return Checkpoint(
        {path.removeprefix(start): data for path, data in _members(name).items() if path.startswith(start)}
    )


def expected(name: str) -> dict[int, list[Any]]:
    """The rows that each batch gave."""
    return _by_batch(_members(name)["expected.json"])


def rows_of(file: Path) -> dict[int, list[Any]]:
    """The same, of one that was unpacked."""
    return _by_batch(file.read_bytes())


def _by_batch(data: bytes) -> dict[int, list[Any]]:
    return {int(batch): rows for batch, rows in json.loads(data).items()}


def unpack(name: str, folder: Path) -> Path:
    """Unpack everything, with the files' times: `input/`, `checkpoint/`, a file sink's `output/`."""
    unpack_tar(FOLDER / f"{name}.tar.xz", folder)
    return folder


def lay_out(closure: Closure, source: Path, target: Path) -> None:
    """Lay a closure of an unpacked checkpoint out elsewhere, and nothing beside it."""
    for file in closure.files:
        data = (source / file.path).read_bytes()
        if file.role == "source":
            # Not the checkpoint but its input has moved since it was made: the source's log names each file.
            data = re.sub(
                rb'"path":"file:[^"]*?/input/', f'"path":"file://{source.parent}/input/'.encode(), data
            )
        if needs_rewrite(file.path):
            data = rewrite_paths(data, file.path, str(target))
        path = target / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@cache
def maker() -> ModuleType:
    """tests/data/checkpoints/make.py, which builds the same queries again."""
    spec = importlib.util.spec_from_file_location("make_checkpoints", FOLDER / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
