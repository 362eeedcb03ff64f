"""Moving objects from one repository to another: only what is missing there, each one hashed as it passes.

Small objects are read pack by pack and gathered into new packs; large ones are streamed, or copied by the
service that holds both repositories. Such a copy never passes through here, so the source is read and hashed
first, and of the copy that very version (identity) and the size are compared: no object ever stands under its
name without its bytes having been hashed. On a local disk nothing is copied that way: the copy could share
its blocks with the source (a reflink), and would be lost with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial

from streambank.errors import NotFoundError, StreambankError
from streambank.savepoint.catalog import found_damaged
from streambank.savepoint.hashing import BAD_DISK, DAMAGE, Reading, damaged_objects, read_small
from streambank.savepoint.packs import SMALL_BYTES
from streambank.savepoint.progress import Meter
from streambank.savepoint.rate import UNLIMITED, RateLimit
from streambank.savepoint.repository import ObjectWriter, Repository
from streambank.savepoint.threads import each
from streambank.savepoint.writer import object_key


@dataclass(slots=True)
class Moved:
    """What moving objects came to.

    Attributes:
        objects: How many arrived.
        bytes: How many bytes those have.
        service_bytes: How many of them the service copied: hashed at the source, compared by size here.
        errors: What is wrong with those that did not, by digest.
    """

    objects: int = 0
    bytes: int = 0
    service_bytes: int = 0
    errors: dict[str, StreambankError] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def arrived(self, size_bytes: int, *, by_service: bool = False) -> None:
        """One more has."""
        with self.lock:
            self.objects += 1
            self.bytes += size_bytes
            self.service_bytes += size_bytes if by_service else 0

    def failed(self, digest: str, error: StreambankError) -> None:
        """One is not what it should be."""
        with self.lock:
            self.errors[digest] = error


class Transfer:
    """Moves objects between two repositories; keeps what it learns about them from one savepoint to the next.

    Args:
        source: Where the objects are.
        target: Where they are wanted.
        parallel: How many packs or large objects are read at once.
        rate: How fast they may be read.
    """

    def __init__(
        self, source: Repository, target: Repository, parallel: int, rate: RateLimit = UNLIMITED
    ) -> None:
        self.source = source
        self.target = target
        self.parallel = parallel
        self.rate = rate
        self._known: set[str] = set()
        self._listed: dict[str, int] | None = None
        self._by_service = not target.store.features.links
        self._found_damaged: Set[tuple[str, str]] | None = None
        self._hashed: set[str] = set()

    def missing(self, objects: Mapping[str, int]) -> dict[str, int]:
        """Those of some objects that the target does not hold, or not with this size."""
        lacking = self._not_there({it: size for it, size in objects.items() if it not in self._known})
        if lacking:
            self.target.check_index()  # takes in what others have indexed meanwhile
            lacking = self._not_there(lacking)
        self._known.update(objects.keys() - lacking.keys())
        return lacking

    def look_again(self) -> None:
        """Believe nothing that was learned: something at the target is about to be deleted.

        Copies by the service end, too, since they choose the name of an object by its digest alone.
        """
        self._known.clear()
        self._hashed.clear()
        self._listed = {}
        self._by_service = False

    def found_damaged(self) -> Set[tuple[str, str]]:
        """Job and id of the savepoints at the target whose last verification there found damage."""
        if self._found_damaged is None:
            self._found_damaged = frozenset(found_damaged(self.target.store))
        return self._found_damaged

    def damaged(self, objects: Mapping[str, int]) -> dict[str, StreambankError]:
        """Those of some objects that the target holds and that are not what they were.

        Nothing is read where all that was verified there was found whole, as in a take.
        """
        if not self.found_damaged():
            return {}
        rest = {digest: size for digest, size in objects.items() if digest not in self._hashed}
        meter = Meter(None, "check", len(rest), sum(rest.values()))
        found = damaged_objects(
            self.target, rest, parallel=self.parallel, rate=self.rate, meter=meter, also=BAD_DISK
        )
        bad = dict(found)
        self._hashed.update(rest.keys() - bad.keys())
        return bad

    def move(self, objects: Mapping[str, int], meter: Meter) -> Moved:
        """Bring objects to the target, and index them there.

        What cannot be read at the source is in the result, and the rest goes on.

        Raises:
            StorageError, ConflictError: Either place failed as a whole.
        """
        moved = Moved()
        small = {digest: size for digest, size in objects.items() if size <= SMALL_BYTES}
        large = sorted(objects.keys() - small.keys(), key=lambda digest: objects[digest])
        with self.target.writer() as writer:
            if large and self._by_service:  # the smallest one tells whether the service does it
                self._move_large(large[0], objects[large[0]], writer, moved, meter)
                del large[0]
            tasks: list[Callable[[], None]] = [
                partial(self._move_small, group, writer, moved, meter) for group in self._by_pack(small)
            ]
            tasks += [
                partial(self._move_large, digest, objects[digest], writer, moved, meter) for digest in large
            ]
            for _ in each(lambda task: task(), tasks, self.parallel):
                pass
        self._known.update(objects.keys() - moved.errors.keys())
        return moved

    def _not_there(self, objects: Mapping[str, int]) -> dict[str, int]:
        return {it: size for it, size in objects.items() if not self._is_there(it, size)}

    def _is_there(self, digest: str, size_bytes: int) -> bool:
        if size_bytes > SMALL_BYTES:
            if self._listed is None:  # one listing instead of a request for each
                self._listed = {info.path: info.size_bytes for info in self.target.store.list("objects")}
            if self._listed.get(object_key(digest)) == size_bytes:
                return True
        return self.target.has(digest, size_bytes)

    def _by_pack(self, small: Mapping[str, int]) -> list[dict[str, int]]:
        """Small objects in groups that lie together at the source."""
        groups: dict[str, dict[str, int]] = {}
        for digest, size_bytes in small.items():
            try:
                key = self.source.object_location(digest).key
            except DAMAGE:
                key = ""  # reading says what is wrong
            groups.setdefault(key, {})[digest] = size_bytes
        return list(groups.values())

    def _move_small(self, group: Mapping[str, int], writer: ObjectWriter, moved: Moved, meter: Meter) -> None:
        for digest, data in read_small(self.source, group, rate=self.rate):
            if isinstance(data, bytes):
                writer.add(data, len(data))
                moved.arrived(len(data))
            else:
                moved.failed(digest, data)
            meter.add(1, group[digest])

    def _move_large(
        self, digest: str, size_bytes: int, writer: ObjectWriter, moved: Moved, meter: Meter
    ) -> None:
        reading = Reading(self.source, digest, rate=self.rate)
        try:
            by_service = self._by_service and self._copy(reading, size_bytes, writer)
            if not by_service:
                writer.add(reading.chunks(), size_bytes)
        except StreambankError as error:
            if reading.error is None:
                raise
            moved.failed(digest, error)
        else:
            moved.arrived(size_bytes, by_service=by_service)
        meter.add(1, size_bytes)

    def _copy(self, reading: Reading, size_bytes: int, writer: ObjectWriter) -> bool:
        """Let the service copy one object, once it is known to be whole; False where it is to be streamed."""
        store, key = self.source.store, object_key(reading.digest)
        location = reading.location()
        if location.kind != "object" or self.target.condemned([reading.digest]):
            return False
        try:
            identity = store.stat(key).identity
            for _ in reading.chunks():
                pass  # the last step compares the digest
            if not self.target.store.copy_from(store, key, key):
                self._by_service = False
                return False
            unchanged = store.stat(key).identity == identity
            if unchanged and self.target.store.stat(key).size_bytes == size_bytes:
                return True
        except NotFoundError:
            pass  # it went away meanwhile: reading it again says so
        writer.damaged.add(reading.digest)  # whatever was copied is replaced by bytes that are hashed
        return False
