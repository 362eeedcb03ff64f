"""The work of a take in pieces: a `CopyTask` for each file that has to move, and `run_task`, which does one.

A task and its outcome are plain data, so the same plan can run in threads here or elsewhere.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streambank.core.errors import ConflictError, NotFoundError
from streambank.core.shape import JsonObject
from streambank.repository.manifest import FileEntry
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import ObjectWriter, Repository
from streambank.storage import open_store
from streambank.storage.store import CHUNK_BYTES, FileInfo, HeldFile, Store, scanning, stat_or_none, undamaged
from streambank.storage.threads import at_once
from streambank.work.executor import Portions, Work
from streambank.work.pace import UNLIMITED, RateLimit
from streambank.work.same_location import not_shared, portable, same_repository

if TYPE_CHECKING:
    from typing_extensions import Self

CHECKPOINT = -1
"""`CopyTask.origin` of a file of the checkpoint; 0, 1, ... stand for the sinks."""


@dataclass(frozen=True, slots=True)
class CopyTask(JsonObject):
    """One file to be copied, as it was planned; `origin` is `CHECKPOINT` or the number of a sink."""

    origin: int
    path: str
    size_bytes: int
    mtime_ns: int
    identity: str
    role: str

    @classmethod
    def of(cls, info: FileInfo, role: str, origin: int = CHECKPOINT) -> CopyTask:
        return cls(origin, info.path, info.size_bytes, info.mtime_ns, info.identity, role)

    @property
    def files(self) -> int:
        return 1

    @property
    def key(self) -> tuple[int, str, str]:
        return self.origin, self.path, self.identity

    def entry(self, digest: str) -> FileEntry:
        """What the manifest says about the file, once its bytes are stored."""
        return FileEntry(
            path=self.path,
            size_bytes=self.size_bytes,
            digest=digest,
            mtime_ns=self.mtime_ns,
            identity=self.identity,
            role=self.role,
        )

    def of_plan(self, entry: FileEntry) -> FileEntry:
        """An entry of this file that came from an earlier plan, for what this plan takes it."""
        return entry if entry.role == self.role else replace(entry, role=self.role)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CopyTask:
        return cls(**data)


def run_task(
    task: CopyTask,
    source: Store,
    writer: ObjectWriter,
    held: HeldFile | None = None,
    rate: RateLimit = UNLIMITED,
) -> FileEntry:
    """Copy one file, and return what the manifest says about it.

    Raises:
        ConflictError: `checkpoint-moved`: the file went away or is another one; the caller plans again.
    """
    try:
        file = held if held is not None else source.hold(task.path)
        try:
            check_unmoved(task, file.info)
            digest = undamaged(lambda: _moved_into(writer, task, file, rate, source.features.holds))
            check_unmoved(task, file.current())
        finally:
            if held is None:
                file.close()
    except NotFoundError as error:
        raise moved(task, "went away") from error
    return task.entry(digest)


def _moved_into(writer: ObjectWriter, task: CopyTask, file: HeldFile, rate: RateLimit, again: bool) -> str:
    if task.size_bytes > SMALL_BYTES:
        digest = writer.add_file(file, lambda reader: _exactly(task, reader, rate), again=again)
        if digest is not None:
            return digest
    with file.open() as reader:
        if task.size_bytes <= SMALL_BYTES:
            return writer.add(_whole(task, reader, rate), task.size_bytes)
        return writer.add(_exactly(task, reader, rate), task.size_bytes)


def check_unmoved(task: CopyTask, info: FileInfo) -> None:
    """Make sure that a file still is the one that was planned.

    Raises:
        ConflictError: `checkpoint-moved`: it is not.
    """
    if info.identity != task.identity or info.size_bytes != task.size_bytes:
        raise moved(task, "was written again")


def moved(task: CopyTask, how: str) -> ConflictError:
    """The error that makes a take plan again."""
    return ConflictError(
        f"{task.path} {how} while the savepoint was taken.",
        code="checkpoint-moved",
        hint="Take the savepoint again.",
    )


def look(store: Store, tasks: Sequence[CopyTask]) -> list[FileInfo | None]:
    """Each file as it is now; None where it is gone."""
    if not store.features.holds:
        # One listing instead of a request for each file.
        folders = {task.path.partition("/")[0] for task in tasks}
        now = {info.path: info for folder in sorted(folders) for info in store.list(folder)}
        now |= {name: store.stat(name) for name in folders if store.exists(name)}
        return [now.get(task.path) for task in tasks]
    fast = scanning(store)
    seen = fast.look(task.path for task in tasks) if fast is not None else {}
    return [seen.get(task.path) or stat_or_none(store, task.path) for task in tasks]


def _whole(task: CopyTask, reader: Any, rate: RateLimit) -> bytes:
    """All bytes of a small file, which must be as many as planned."""
    rate.spend(task.size_bytes)
    data: bytes = reader.read(task.size_bytes + 1)  # one more would show that it grew
    while 0 < len(data) < task.size_bytes and (more := reader.read(task.size_bytes + 1 - len(data))):
        data += more
    if len(data) != task.size_bytes:
        raise moved(task, f"had {len(data)} bytes instead of {task.size_bytes}")
    return data


def _exactly(task: CopyTask, reader: Any, rate: RateLimit) -> Iterator[bytes]:
    """The bytes of a file, which must be as many as planned."""
    left = task.size_bytes
    rate.spend(min(left, CHUNK_BYTES))
    while chunk := reader.read(CHUNK_BYTES):
        left -= len(chunk)
        yield chunk
        rate.spend(min(max(left, 0), CHUNK_BYTES))
    if left:
        raise moved(task, f"had {task.size_bytes - left} bytes instead of {task.size_bytes}")


_WITNESS = "metadata"
"""A file of every checkpoint that is never written again: who sees the same one sees the same checkpoint."""


@dataclass(eq=False)
class Copying(Work[CopyTask, FileEntry]):
    """Copies files; the outcome is what the manifest says about each.

    Args:
        writer: Adds objects to the repository; whoever made it flushes it.
    """

    kind = "copy"

    repository: Repository
    stores: Mapping[int, Store]
    writer: ObjectWriter
    rate: RateLimit = UNLIMITED

    def run(self, task: CopyTask) -> FileEntry:
        return self._copy({}, task)

    def portions(self, tasks: Sequence[CopyTask]) -> Portions[CopyTask, FileEntry]:
        """See `Work.portions`: as many files at once as can be held."""
        for portion in slices(tasks, self.stores):
            with held(portion, self.stores) as files:
                yield portion, partial(self._copy, files)

    def _copy(self, files: Mapping[tuple[int, str], HeldFile], task: CopyTask) -> FileEntry:
        file = files.get((task.origin, task.path))
        return run_task(task, self.stores[task.origin], self.writer, file, self.rate)

    def at_once(self) -> int:
        return at_once(self.repository.store, self.stores[CHECKPOINT])

    # For machines elsewhere

    def keeps(self) -> bool:
        """See `Work.keeps`: a file that is held can be read when its name is gone."""
        return self.stores[CHECKPOINT].features.holds

    def is_portable(self, task: CopyTask) -> bool:
        """See `Work.is_portable`: the logs of sinks are few and small, and read here."""
        return task.origin == CHECKPOINT

    def header(self) -> dict[str, Any]:
        source = self.stores[CHECKPOINT]
        return {
            "repository": portable(self.repository.store.uri),
            "repository_id": self.repository.id,
            "source": portable(source.uri),
            "witness": source.stat(_WITNESS).identity,
        }

    @classmethod
    @contextmanager
    def opened(cls, header: Mapping[str, Any]) -> Iterator[Self]:
        """See `Work.opened`: one writer, and so packs and its own index file."""
        repository = same_repository(header["repository"], header["repository_id"])
        source = open_store(header["source"])
        try:
            seen = source.stat(_WITNESS).identity
        except NotFoundError as error:
            raise not_shared(source.uri, f"there is no {_WITNESS}") from error
        if seen != header["witness"]:
            raise not_shared(source.uri, f"its {_WITNESS} is another file")
        with repository.objects.writer() as writer:
            yield cls(repository, {CHECKPOINT: source}, writer)

    @classmethod
    def read_task(cls, data: Mapping[str, Any]) -> CopyTask:
        return CopyTask.from_dict(data)

    @classmethod
    def write_outcome(cls, outcome: FileEntry) -> dict[str, Any]:
        return {"digest": outcome.digest}

    @classmethod
    def read_outcome(cls, task: CopyTask, data: Mapping[str, Any]) -> FileEntry:
        return task.entry(data["digest"])

    def counts(self) -> dict[str, int]:
        writer = self.writer
        return {
            "new_objects": writer.new_objects,
            "new_bytes": writer.new_bytes,
            "known_objects": writer.known_objects,
        }

    def absorb(self, counts: Mapping[str, int]) -> None:
        self.writer.new_objects += counts["new_objects"]
        self.writer.new_bytes += counts["new_bytes"]
        self.writer.known_objects += counts["known_objects"]

    def done_elsewhere(self) -> None:
        """See `Work.done_elsewhere`: packs were indexed that this process has not heard of."""
        self.repository.objects.refresh()


_SPARE_DESCRIPTORS = 256
_FALLBACK_SLICE = 512
_LIMIT_LOCK = threading.Lock()


def slices(tasks: Sequence[CopyTask], stores: Mapping[int, Store]) -> Iterator[Sequence[CopyTask]]:
    """Cut tasks, whose order is kept, into slices that can be held at once: Spark deletes the first first."""
    if not any(store.features.holds for store in stores.values()):
        yield tasks
        return
    size = _room_for(len(tasks))
    for start in range(0, len(tasks), size):
        yield tasks[start : start + size]


@contextmanager
def held(tasks: Sequence[CopyTask], stores: Mapping[int, Store]) -> Iterator[dict[tuple[int, str], HeldFile]]:
    """Hold the files of tasks for a `with` block; files of stores that cannot hold are left out.

    Raises:
        ConflictError: `checkpoint-moved`: one of them went away or is another one already.
    """
    files: dict[tuple[int, str], HeldFile] = {}
    able = {origin for origin, store in stores.items() if store.features.holds}
    try:
        for task in tasks:
            if task.origin not in able:
                continue
            try:
                file = files[task.origin, task.path] = stores[task.origin].hold(task.path)
            except NotFoundError as error:
                raise moved(task, "went away") from error
            check_unmoved(task, file.info)
        yield files
    finally:
        for file in files.values():
            file.close()


def _room_for(wanted: int) -> int:
    """How many descriptors may be opened, raising this process's own limit where it must be."""
    with _LIMIT_LOCK:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return max(1, wanted)
        if soft < wanted + _SPARE_DESCRIPTORS:
            goal = wanted + _SPARE_DESCRIPTORS
            soft = goal if hard == resource.RLIM_INFINITY else min(hard, goal)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return (
            max(1, min(wanted, soft - _SPARE_DESCRIPTORS)) if soft > _SPARE_DESCRIPTORS else _FALLBACK_SLICE
        )
