"""Holding many files at once by open descriptors, so that a query that cleans up cannot take them away."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from streambank.core.errors import NotFoundError
from streambank.storage.store import Held, Store
from streambank.work.copy import CopyTask, check_unmoved, moved

_SPARE_DESCRIPTORS = 256
_FALLBACK_SLICE = 512
_LIMIT_LOCK = threading.Lock()


def slices(tasks: Sequence[CopyTask], stores: Mapping[int, Store]) -> Iterator[Sequence[CopyTask]]:
    """Cut tasks into slices that can be held at once, keeping their order.

    Args:
        tasks: What will be copied, the files that Spark deletes first in front.
        stores: The store of each origin.
    """
    if not any(store.features.holds for store in stores.values()):
        yield tasks
        return
    size = _room_for(len(tasks))
    for start in range(0, len(tasks), size):
        yield tasks[start : start + size]


@contextmanager
def held(tasks: Sequence[CopyTask], stores: Mapping[int, Store]) -> Iterator[dict[tuple[int, str], Held]]:
    """Hold the files of tasks for a `with` block; files of stores that cannot hold are left out.

    Raises:
        ConflictError: `checkpoint-moved`: one of them went away or is another one already.
    """
    files: dict[tuple[int, str], Held] = {}
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
