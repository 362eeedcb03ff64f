"""What a replica lacks, and bringing it there by `Moving` (work/move.py), whoever does it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set

from streambank.core.errors import StreambankError
from streambank.repository.catalog import found_damaged
from streambank.repository.objects.large import object_key
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import Repository
from streambank.work.check import check_objects
from streambank.work.executor import Executor
from streambank.work.hashing import BAD_DISK
from streambank.work.move import Moved, Moving
from streambank.work.object_tasks import ObjectsTask, object_tasks
from streambank.work.pace import UNLIMITED, RateLimit
from streambank.work.progress import Meter


class Transfer:
    """Moves objects between two repositories; keeps what it learns about them from one savepoint to the next.

    Args:
        source: Where the objects are.
        target: Where they are wanted.
        executor: Who reads and moves them.
        rate: How fast this process may read them.
    """

    def __init__(
        self, source: Repository, target: Repository, executor: Executor, rate: RateLimit = UNLIMITED
    ) -> None:
        self.source = source
        self.target = target
        self._executor = executor
        self._rate = rate
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
        bad = check_objects(self.target, rest, self._executor, rate=self._rate, meter=meter, also=BAD_DISK)
        self._hashed.update(rest.keys() - bad.keys())
        return bad

    def move(self, objects: Mapping[str, int], meter: Meter) -> Moved:
        """Bring objects to the target, and index them there.

        What cannot be read at the source is in the result, and the rest goes on.

        Raises:
            StorageError, ConflictError: Either place failed as a whole.
        """
        moved = Moved()
        lock = threading.Lock()

        def done(task: ObjectsTask, outcome: Moved) -> None:
            with lock:
                moved.add(outcome)
            meter.add(task.files, task.size_bytes)

        tasks = object_tasks(self.source, objects)
        large = [task for task in tasks if task.size_bytes > SMALL_BYTES * task.files]
        with self.target.writer() as writer:
            work = Moving(self.source, self.target, writer, by_service=self._by_service, rate=self._rate)
            if large and self._by_service:  # the smallest one tells whether the service does it
                first = min(large, key=lambda task: task.size_bytes)
                done(first, work.run(first))
                tasks.remove(first)
            self._executor.run(work, tasks, done)
        self._by_service = work.by_service
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
