"""A table that is asked for a while and no longer: whatever its library does, a savepoint goes on.

The libraries that reach catalogs and databases wait as they like, some without an end, and raise errors of
their own. A savepoint, a plan and a start must not hang or fail by that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import datetime
from typing import Any, TypeVar

from streambank.core.errors import StorageError, StreambankError
from streambank.core.patience import Waited
from streambank.savepoint.sinks import Captured
from streambank.sinks.table import (
    TITLES,
    Changing,
    TableGuard,
    TableRollback,
    TableStanding,
    UnknownTable,
)

CAPTURE_S = 30.0
"""How long a savepoint waits for a table."""
SETTLE_S = 120.0
"""How long tags of savepoints are brought up to date."""
STAND_S = 600.0
"""How long a plan or a restore does: a log of a day of short batches takes a while to read."""

T = TypeVar("T")


class BoundedGuard:
    """The same table, waited for by a savepoint for 30 s, and by a restore for 10 minutes."""

    keeps_files = False

    def __init__(self, guard: TableGuard, *, capture_s: float = CAPTURE_S, stand_s: float = STAND_S) -> None:
        self._guard = guard
        self._capture_s, self._stand_s = capture_s, stand_s
        self.kind, self.path = guard.kind, guard.path

    def capture(self, batch: int) -> Captured:
        try:
            return within(self._capture_s, lambda: self._guard.capture(batch), self._name)
        except StreambankError as error:
            return UnknownTable(self.kind, self.path, error).capture(batch)

    def stand(self, batch: int, record: Mapping[str, Any] | None) -> TableStanding:
        try:
            return within(self._stand_s, lambda: self._guard.stand(batch, record), self._name)
        except StreambankError as error:
            return UnknownTable(self.kind, self.path, error).stand(batch, record)

    def same_batch(self, batch: int, at: datetime) -> bool | None:
        try:
            return within(self._stand_s, lambda: self._guard.same_batch(batch, at), self._name)
        except StreambankError:
            return None

    def roll_back(self, standing: TableStanding, changing: Changing = nullcontext) -> TableRollback:
        """See `TableGuard.roll_back`; what is changed is waited for as long as it takes."""
        return self._guard.roll_back(standing, changing)

    def lost(self) -> list[str]:
        """Data files of its newest version that are gone; none of a kind that is not looked through.

        Raises:
            StorageError: It cannot be asked (code `sink-not-reachable`).
        """
        ask: Callable[[], list[str]] | None = getattr(self._guard, "lost", None)
        return [] if ask is None else within(self._stand_s, ask, self._name)

    @property
    def _name(self) -> str:
        return f"{TITLES[self.kind]} {self.path}"


def within(seconds: float, ask: Callable[[], T], name: str) -> T:
    """What a question comes to, if it comes to an end in time.

    Raises:
        StorageError: There was no answer, or an error of a library (code `sink-not-reachable`). Its text is
            not repeated: it may hold what no message may.
        StreambankError: What `ask` itself raises.
    """
    asked = Waited(ask, f"asks {name}")
    ended, failure = asked.ends_within(seconds), asked.failure
    if ended and (failure is None or isinstance(failure, StreambankError)):
        return asked.result()
    why = f"it failed by {type(failure).__name__}" if failure else f"no answer within {seconds:.0f} s"
    raise StorageError(
        f"The {name} cannot be asked: {why}.",
        code="sink-not-reachable",
        hint="Look at what the job declares of it, and whether its catalog or database answers.",
    ) from (failure if isinstance(failure, OSError) else None)
