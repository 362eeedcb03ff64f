"""Moving objects from one repository to another, as a `Work`: each one is hashed as it passes.

Small objects are read pack by pack and gathered into new packs; large ones are streamed, or copied by the
service that holds both repositories. Such a copy never passes through here, so the source is read and hashed
first, and of the copy that very version (identity) and the size are compared: no object ever stands under its
name without its bytes having been hashed. On a local disk nothing is copied that way: the copy could share
its blocks with the source (a reflink), and would be lost with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from streambank.core.errors import NotFoundError, StreambankError
from streambank.repository.objects.large import object_key
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import ObjectWriter, Repository
from streambank.storage.threads import at_once
from streambank.work.check import ObjectsTask
from streambank.work.damage import Reading, read_small
from streambank.work.executor import Work
from streambank.work.pace import UNLIMITED, RateLimit
from streambank.work.plan_lines import read_error
from streambank.work.same_location import portable, same_repository

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(slots=True)
class Moved:
    """What moving objects came to.

    Attributes:
        service_bytes: How many of them the service copied: hashed at the source, compared by size here.
        errors: What is wrong with those that did not, by digest.
    """

    objects: int = 0
    bytes: int = 0
    service_bytes: int = 0
    errors: dict[str, StreambankError] = field(default_factory=dict)

    def arrived(self, size_bytes: int, *, by_service: bool = False) -> None:
        self.objects += 1
        self.bytes += size_bytes
        self.service_bytes += size_bytes if by_service else 0

    def add(self, other: Moved) -> None:
        self.objects += other.objects
        self.bytes += other.bytes
        self.service_bytes += other.service_bytes
        self.errors.update(other.errors)


@dataclass(eq=False)
class Moving(Work[ObjectsTask, Moved]):
    """Brings objects to another repository; what cannot be read is in the outcome, and the rest goes on."""

    kind = "move"

    source: Repository
    target: Repository
    writer: ObjectWriter
    _: KW_ONLY
    by_service: bool
    rate: RateLimit = UNLIMITED

    def run(self, task: ObjectsTask) -> Moved:
        moved = Moved()
        small = {digest: size_bytes for digest, size_bytes in task.objects if size_bytes <= SMALL_BYTES}
        for digest, data in read_small(self.source, small, rate=self.rate):
            if isinstance(data, bytes):
                self.writer.add(data, len(data))
                moved.arrived(len(data))
            else:
                moved.errors[digest] = data
        for digest, size_bytes in task.objects:
            if digest not in small:
                self._large(digest, size_bytes, moved)
        return moved

    def _large(self, digest: str, size_bytes: int, moved: Moved) -> None:
        reading = Reading(self.source, digest, rate=self.rate)
        try:
            by_service = self.by_service and self._copy(reading, size_bytes)
            if not by_service:
                self.writer.add(reading.chunks(), size_bytes)
        except StreambankError as error:
            if reading.error is None:
                raise
            moved.errors[digest] = error
        else:
            moved.arrived(size_bytes, by_service=by_service)

    def _copy(self, reading: Reading, size_bytes: int) -> bool:
        """Let the service copy one object, once it is known to be whole; False where it is to be streamed."""
        store, key = self.source.store, object_key(reading.digest)
        location = reading.location()
        if location.kind != "object" or self.target.objects.condemned([reading.digest]):
            return False
        try:
            identity = store.stat(key).identity
            for _ in reading.chunks():
                pass  # the last step compares the digest
            if not self.target.store.copy_from(store, key, key):
                self.by_service = False
                return False
            unchanged = store.stat(key).identity == identity
            if unchanged and self.target.store.stat(key).size_bytes == size_bytes:
                return True
        except NotFoundError:
            pass  # it went away meanwhile: reading it again says so
        self.writer.damaged.add(reading.digest)  # whatever was copied is replaced by bytes that are hashed
        return False

    def at_once(self) -> int:
        return at_once(self.source.store, self.target.store)

    # For machines elsewhere

    def header(self) -> dict[str, Any]:
        return {
            "source": portable(self.source.store.uri),
            "source_id": self.source.id,
            "target": portable(self.target.store.uri),
            "target_id": self.target.id,
            "by_service": self.by_service,
        }

    @classmethod
    @contextmanager
    def opened(cls, header: Mapping[str, Any]) -> Iterator[Self]:
        """See `Work.opened`: one writer, and so packs and its own index file."""
        source = same_repository(header["source"], header["source_id"])
        target = same_repository(header["target"], header["target_id"])
        with target.objects.writer() as writer:
            yield cls(source, target, writer, by_service=header["by_service"])

    @classmethod
    def read_task(cls, data: Mapping[str, Any]) -> ObjectsTask:
        return ObjectsTask.from_dict(data)

    @classmethod
    def write_outcome(cls, outcome: Moved) -> dict[str, Any]:
        return {
            "objects": outcome.objects,
            "bytes": outcome.bytes,
            "service_bytes": outcome.service_bytes,
            "errors": {digest: error.to_dict() for digest, error in outcome.errors.items()},
        }

    @classmethod
    def read_outcome(cls, task: ObjectsTask, data: Mapping[str, Any]) -> Moved:
        errors = {digest: read_error(error) for digest, error in data["errors"].items()}
        return Moved(data["objects"], data["bytes"], data["service_bytes"], errors)

    def done_elsewhere(self) -> None:
        """See `Work.done_elsewhere`: packs were indexed there that this process has not heard of."""
        self.target.objects.refresh()
