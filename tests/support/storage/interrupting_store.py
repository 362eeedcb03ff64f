"""A store in front of whose calls something else happens: two processes, interleaved on order.

    store = InterruptingStore(inner, {7: lambda: sweep(Repository.open(inner))})

Every call through it is counted from 1; before the call of a number, what was ordered for it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from streambank.storage.store import Store


class InterruptingStore:
    """Calls of another store, counted."""

    def __init__(self, inner: Store, interruptions: Mapping[int, Callable[[], object]]) -> None:
        self.calls = 0
        self.happened: list[int] = []
        self._inner = inner
        self._interruptions = interruptions

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls in self._interruptions:
                self.happened.append(self.calls)
                self._interruptions[self.calls]()
            return found(*arguments, **named)

        return call


def interrupting(
    inner: Store, interruptions: Mapping[int, Callable[[], object]]
) -> tuple[Store, InterruptingStore]:
    """The store, and the same object to ask what happened."""
    made = InterruptingStore(inner, interruptions)
    return cast("Store", made), made
