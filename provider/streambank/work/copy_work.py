"""Copying files into a repository, as a `Work`: each is held, hashed on the way, and looked at once more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from streambank.core.errors import NotFoundError
from streambank.repository.entry import FileEntry
from streambank.repository.repository import ObjectWriter, Repository
from streambank.storage import open_store
from streambank.storage.store import Held, Store
from streambank.storage.threads import at_once
from streambank.work.copy import CHECKPOINT, CopyTask, run_task
from streambank.work.executor import Portions, Work
from streambank.work.holding import held, slices
from streambank.work.pace import UNLIMITED, RateLimit
from streambank.work.same_location import not_shared, portable, same_repository

_WITNESS = "metadata"
"""A file of every checkpoint that is never written again: who sees the same one sees the same checkpoint."""


class Copying(Work[CopyTask, FileEntry]):
    """Copies files; the outcome is what the manifest says about each.

    Args:
        repository: Where to.
        stores: The store of each origin.
        writer: Adds objects to the repository; whoever made it flushes it.
        rate: How fast files may be read here; it does not go to machines elsewhere.
    """

    kind = "copy"

    def __init__(
        self,
        repository: Repository,
        stores: Mapping[int, Store],
        writer: ObjectWriter,
        rate: RateLimit = UNLIMITED,
    ) -> None:
        self._repository = repository
        self._stores = stores
        self._writer = writer
        self._rate = rate

    def run(self, task: CopyTask) -> FileEntry:
        """See `Work.run`."""
        return self._copy({}, task)

    def portions(self, tasks: Sequence[CopyTask]) -> Portions[CopyTask, FileEntry]:
        """See `Work.portions`: as many files at once as can be held."""
        for portion in slices(tasks, self._stores):
            with held(portion, self._stores) as files:
                yield portion, partial(self._copy, files)

    def _copy(self, files: Mapping[tuple[int, str], Held], task: CopyTask) -> FileEntry:
        file = files.get((task.origin, task.path))
        return run_task(task, self._stores[task.origin], self._writer, file, self._rate)

    def at_once(self) -> int:
        """See `Work.at_once`."""
        return at_once(self._repository.store, self._stores[CHECKPOINT])

    # For machines elsewhere

    def keeps(self) -> bool:
        """See `Work.keeps`: a file that is held can be read when its name is gone."""
        return self._stores[CHECKPOINT].features.holds

    def is_portable(self, task: CopyTask) -> bool:
        """See `Work.is_portable`: the logs of sinks are few and small, and read here."""
        return task.origin == CHECKPOINT

    def header(self) -> dict[str, Any]:
        """See `Work.header`."""
        source = self._stores[CHECKPOINT]
        return {
            "repository": portable(self._repository.store.uri),
            "repository_id": self._repository.id,
            "source": portable(source.uri),
            "witness": source.stat(_WITNESS).identity,
        }

    @classmethod
    @contextmanager
    def opened(cls, header: Mapping[str, Any]) -> Iterator[Self]:
        """See `Work.opened`: one writer, and so packs and an index file of its own."""
        repository = same_repository(header["repository"], header["repository_id"])
        source = open_store(header["source"])
        try:
            seen = source.stat(_WITNESS).identity
        except NotFoundError as error:
            raise not_shared(source.uri, f"there is no {_WITNESS}") from error
        if seen != header["witness"]:
            raise not_shared(source.uri, f"its {_WITNESS} is another file")
        with repository.writer() as writer:
            yield cls(repository, {CHECKPOINT: source}, writer)

    @classmethod
    def read_task(cls, data: Mapping[str, Any]) -> CopyTask:
        """See `Work.read_task`."""
        return CopyTask.from_dict(data)

    @classmethod
    def write_outcome(cls, outcome: FileEntry) -> dict[str, Any]:
        """See `Work.write_outcome`: everything else is in the task."""
        return {"digest": outcome.digest}

    @classmethod
    def read_outcome(cls, task: CopyTask, data: Mapping[str, Any]) -> FileEntry:
        """See `Work.read_outcome`."""
        return task.entry(data["digest"])

    def counts(self) -> dict[str, int]:
        """See `Work.counts`."""
        writer = self._writer
        return {
            "new_objects": writer.new_objects,
            "new_bytes": writer.new_bytes,
            "known_objects": writer.known_objects,
        }

    def absorb(self, counts: Mapping[str, int]) -> None:
        """See `Work.absorb`."""
        self._writer.new_objects += counts["new_objects"]
        self._writer.new_bytes += counts["new_bytes"]
        self._writer.known_objects += counts["known_objects"]

    def done_elsewhere(self) -> None:
        """See `Work.done_elsewhere`: packs were indexed that this process has not heard of."""
        self._repository.refresh()
