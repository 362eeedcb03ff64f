"""The same work on many things at once, in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from streambank.core.last_read import named_in_errors
from streambank.storage.store import Store

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(work: Callable[[Item], Result], items: Sequence[Item], parallel: int) -> Iterator[Result]:
    """What the work gives for each item, in their order; the first error is raised, and ends the rest.

    Args:
        parallel: How many at once; one is done in this thread.
    """
    if parallel == 1 or len(items) < 2:
        yield from map(work, items)
        return

    def told(item: Item) -> Result:
        with named_in_errors():
            return work(item)

    with ThreadPoolExecutor(parallel, thread_name_prefix="streambank") as pool:
        futures = [pool.submit(told, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def at_once(*stores: Store) -> int:
    """How many files are best worked on at the same time: as many as the store wants that answers latest."""
    return max(store.features.at_once for store in stores)
