"""Writing the files of a savepoint into the target of a restore, as a `Work`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from streambank.checkpoint.paths import needs_rewrite, rewrite_paths
from streambank.core.errors import ConflictError, IntegrityError
from streambank.core.shape import JsonObject
from streambank.repository.manifest import FileEntry
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.objects.read import CheckedReader, ObjectLocation
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank.storage.store import CHUNK_BYTES, Store, undamaged
from streambank.storage.threads import at_once
from streambank.work.check import grouped
from streambank.work.executor import Work
from streambank.work.pace import UNLIMITED, RateLimit
from streambank.work.same_location import not_shared, portable, same_repository
from streambank.work.target import METADATA, Fence, read_note

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class PlaceTask(JsonObject):
    """One large file, or small ones whose objects lie near each other."""

    entries: tuple[FileEntry, ...]

    @property
    def files(self) -> int:
        return len(self.entries)

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Placed:
    """What came of it.

    Attributes:
        linked: Files that share their bytes with the repository.
        rewritten: Files whose bytes differ from the saved ones, and their size now.
        told: Each file was told of when it was written, as only this process can.
    """

    linked: int = 0
    rewritten: Mapping[str, int] = field(default_factory=dict)
    told: bool = False


def place_tasks(repository: Repository, entries: Sequence[FileEntry]) -> list[PlaceTask]:
    """The tasks that write some files."""
    tasks = [PlaceTask((entry,)) for entry in entries if entry.size_bytes > SMALL_BYTES]
    small = [(entry.digest, entry.size_bytes, entry) for entry in entries if entry.size_bytes <= SMALL_BYTES]
    return tasks + [PlaceTask(tuple(group)) for group in grouped(repository, small)]


@dataclass(eq=False)
class Placing(Work[PlaceTask, Placed]):
    """Writes files into a target that its restore has claimed by a note.

    Args:
        files: The target, or the view of it that `Store.bulk` gives.
        wrote: Told of each file that is written, by a process whose progress is watched.
        check: Raises where the restore that this is for is over.
    """

    kind = "place"

    repository: Repository
    files: Store
    target: str
    token: str
    _: KW_ONLY
    link: bool
    rate: RateLimit = UNLIMITED
    wrote: Callable[[FileEntry], None] | None = None
    check: Callable[[], None] = lambda: None

    def run(self, task: PlaceTask) -> Placed:
        self.check()
        if task.files == 1 and task.size_bytes > SMALL_BYTES:
            return self._large(task.entries[0])
        return self._small(task.entries)

    def _large(self, entry: FileEntry) -> Placed:
        linked = self.link and self._linked(entry)
        if not linked:
            place_large(self.repository, self.files, entry, self.rate, self.check)
        return Placed(linked=int(linked), told=self._tell(entry))

    def _tell(self, entry: FileEntry) -> bool:
        if self.wrote is not None:
            self.wrote(entry)
        return self.wrote is not None

    def _linked(self, entry: FileEntry) -> bool:
        # A link copies nothing, so this is where the bytes are hashed.
        place = self.repository.objects.hash(entry.digest, self.rate.spend)
        if place.kind != "object":
            return False  # it lies in a pack, as a sweep has condemned its own name: that is rare
        self.check()
        try:
            return self.files.link_from(self.repository.store, place.key, entry.path)
        except ConflictError as error:
            if error.code != "exists":
                raise
        # An earlier attempt at this very task, on a machine that was lost since, came as far.
        self.files.delete(entry.path)
        return self.files.link_from(self.repository.store, place.key, entry.path)

    def _small(self, entries: Sequence[FileEntry]) -> Placed:
        by_digest: dict[str, list[FileEntry]] = {}
        for entry in entries:
            by_digest.setdefault(entry.digest, []).append(entry)
        rewritten: dict[str, int] = {}
        for digest, data in self.repository.objects.read_many(by_digest):
            if isinstance(data, IntegrityError):
                raise data
            self.rate.spend(len(data))
            for entry in by_digest[digest]:
                self.check()
                self.files.write(entry.path, self._rewrite(entry, data, rewritten))
                self._tell(entry)
        return Placed(rewritten=rewritten, told=self.wrote is not None)

    def _rewrite(self, entry: FileEntry, data: bytes, rewritten: dict[str, int]) -> bytes:
        """The bytes with paths into the old checkpoint pointing into the target."""
        if not needs_rewrite(entry.path):
            return data
        moved = rewrite_paths(data, entry.path, self.target)
        if moved != data:
            rewritten[entry.path] = len(moved)
        return moved

    def at_once(self) -> int:
        return at_once(self.repository.store, self.files)

    # For machines elsewhere

    def header(self) -> dict[str, Any]:
        return {
            "repository": portable(self.repository.store.uri),
            "repository_id": self.repository.id,
            "target": portable(self.target),
            "token": self.token,
            "link": self.link,
        }

    @classmethod
    @contextmanager
    def opened(cls, header: Mapping[str, Any]) -> Iterator[Self]:
        """See `Work.opened`; what is written for a restore that is over is stopped within moments."""
        repository = same_repository(header["repository"], header["repository_id"])
        target = open_store(header["target"])
        if read_note(target) is None and not target.exists(METADATA):
            raise not_shared(target.uri, "the note of the restore is not there")
        fence = Fence(target, header["token"])
        fence.check()
        with target.bulk() as files:
            yield cls(
                repository, files, header["target"], header["token"], link=header["link"], check=fence.check
            )

    @classmethod
    def read_task(cls, data: Mapping[str, Any]) -> PlaceTask:
        return PlaceTask(tuple(FileEntry.from_dict(entry) for entry in data["entries"]))

    @classmethod
    def write_outcome(cls, outcome: Placed) -> dict[str, Any]:
        return {"linked": outcome.linked, "rewritten": dict(outcome.rewritten)}

    @classmethod
    def read_outcome(cls, task: PlaceTask, data: Mapping[str, Any]) -> Placed:
        return Placed(data["linked"], data["rewritten"])


def place_large(
    repository: Repository,
    files: Store,
    entry: FileEntry,
    rate: RateLimit = UNLIMITED,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write a large file of a savepoint.

    Args:
        check: Called at the last moment at which the file can still be left out, which it is where this
            raises: when all bytes have passed, or before a service is asked to copy them.

    Raises:
        IntegrityError: The object is missing or damaged.
    """
    if not _copied_by_the_service(repository, files, entry, check):
        undamaged(lambda: files.write(entry.path, _read(repository, entry, rate, check)))


def _read(
    repository: Repository, entry: FileEntry, rate: RateLimit, check: Callable[[], None]
) -> Iterator[bytes]:
    for chunk in repository.objects.chunks(entry.digest):
        rate.spend(len(chunk))
        yield chunk
    check()


def _copied_by_the_service(
    repository: Repository, files: Store, entry: FileEntry, check: Callable[[], None]
) -> bool:
    """Let a service that holds both sides copy the object, and hash what arrived; whether that was done."""
    if files.features.holds:  # a local disk: there reading and writing in one go is the cheaper way
        return False
    place = repository.objects.locate(entry.digest)
    if place.kind != "object":
        return False
    check()
    if not files.copy_from(repository.store, place.key, entry.path):
        return False
    undamaged(lambda: _check_digest(files, entry, place))
    return True


def _check_digest(files: Store, entry: FileEntry, place: ObjectLocation) -> None:
    with files.open(entry.path) as reader:
        checked = CheckedReader(reader, entry.digest, place)
        while checked.read(CHUNK_BYTES):
            pass
