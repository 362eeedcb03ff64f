"""The size of a checkpoint directory as it is now, put to the newest batch of a history.

Progress records do not tell it: it takes a listing, so it is looked at only where an objective asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.listing import list_checkpoint
from streambank.sla.history.history import StreamedHistory
from streambank.sla.history.point import History, Point
from streambank.sla.history.unmanaged import directory_sizes
from streambank.sla.objectives import Objective
from streambank.storage import open_store


def with_directory(history: History, location: str, wanted: Sequence[Objective]) -> History:
    """A history whose newest batch tells the size of the checkpoint directory, where anybody wants to know.

    Args:
        history: It.
        location: The checkpoint.
        wanted: The objectives that are judged.

    Raises:
        StorageError: The checkpoint cannot be listed.
    """
    if not any(one.name == "checkpoint_bytes" for one in wanted):
        return history
    index = CheckpointIndex.build(list_checkpoint(open_store(location)))
    return StreamedHistory(history.query, _LastWith(history, directory_sizes(index)))


class _LastWith:
    """The points of a history; the last has some values more."""

    def __init__(self, history: History, values: Mapping[str, float]) -> None:
        self._history = history
        self._values = values

    @property
    def runs(self) -> int:
        return self._history.runs

    def notes(self) -> tuple[str, ...]:
        return self._history.notes

    def __iter__(self) -> Iterator[Point]:
        last: Point | None = None
        for point in self._history.points:
            if last is not None:
                yield last
            last = point
        if last is not None:
            yield replace(last, values={**last.values, **self._values})
