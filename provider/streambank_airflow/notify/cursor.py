"""What an event trigger has told, what is to be told next, and how that outlives a triggerer.

Positions only grow while a query runs: batches, or moments of event time. A restore takes both back. What
passes again after that is told again, and said to be so, because the output was written again.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streambank.core.errors import FormatError, InputError

if TYPE_CHECKING:
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors

T = TypeVar("T")

SETTLE_S = 30.0
"""How long after it was told something is remembered: by then the triggerer has written the event to
Airflow's database, which takes it two rounds of a second. One that dies before tells the same again."""


@dataclass(frozen=True, slots=True)
class EventCursor:
    """How far events have been told.

    Attributes:
        upto: The position of the newest event, or where a restore went back to.
        highest: The highest that ever was told; what passes below it passes again.
    """

    upto: int
    highest: int


@dataclass(frozen=True, slots=True)
class EventSpan:
    """What is to be told.

    Attributes:
        after: Up to where the event before has told; None for the first one, and for one that tells that the
            query went back.
        upto: The position that is reached.
        again: Whether some of it was told before, in a timeline that a restore has ended.
    """

    after: int | None
    upto: int
    again: bool


def next_news(
    reached: int | None, told: EventCursor | None, step: int
) -> tuple[EventSpan | None, EventCursor | None]:
    """What there is to tell, and how far has been told then.

    Args:
        reached: The position now; None for none yet.
        told: How far has been told; None for nothing.
        step: How much further it has to be for another event.
    """
    if reached is None:
        return None, told
    if told is None:
        return EventSpan(None, reached, False), EventCursor(reached, reached)
    if reached < told.upto:
        # Nobody saw how far back it was, nor what of it has passed again since.
        return EventSpan(None, reached, True), EventCursor(reached, told.highest)
    if reached < told.upto + step:
        return None, told
    return EventSpan(told.upto, reached, told.upto < told.highest), EventCursor(
        reached, max(reached, told.highest)
    )


class Memory(Generic[T]):
    """What has been told, kept in the state store of the asset that a trigger watches for.

    Args:
        store: Airflow's; None where a trigger runs without an asset, and forgets with its process.
        key: Which of the asset's values.
        clock: Seconds that only grow; tests give another one.
    """

    def __init__(
        self,
        store: AssetStateStoreAccessors | None,
        key: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._noted: deque[tuple[float, T]] = deque()
        self._newest: T | None = None

    @abstractmethod
    def read(self, value: Any) -> T:
        """What `write` has made a value of.

        Raises:
            LookupError, TypeError, ValueError: It is something else.
            FormatError: The same.
        """

    @abstractmethod
    def write(self, told: T) -> dict[str, Any]:
        """A value for the store."""

    async def recall(self) -> T | None:
        """What was told by whoever ran before; None for nothing.

        Raises:
            FormatError: The value was changed by hand (code `damaged-record`).
            InputError: Several assets are watched by one trigger (code `bad-option`).
        """
        if self._store is None:
            return None
        try:
            value: Any = await self._store.aget(self._key)
        except ValueError as error:
            raise InputError(
                "Several assets are watched by triggers with the same arguments, which Airflow merges into "
                "one.",
                code="bad-option",
                hint="Let all DAGs use one asset: watermark_asset, batch_asset or sla_asset of "
                "streambank_airflow.assets.",
            ) from error
        if value is None:
            return None
        try:
            self._newest = self.read(value)
        except (FormatError, LookupError, TypeError, ValueError) as error:
            raise FormatError(
                f"The asset's state {self._key!r} does not say which events were sent: {error!r}.",
                code="damaged-record",
                hint="Delete that key on the asset's page; the next event is then the first one.",
            ) from error
        return self._newest

    def note(self, told: T | None) -> None:
        """Remember what was told, once it has settled."""
        if told is not None and told != self._newest:
            self._newest = told
            self._noted.append((self._clock() + SETTLE_S, told))

    async def keep(self) -> None:
        """Write down what has settled."""
        settled = None
        while self._noted and self._noted[0][0] <= self._clock():
            settled = self._noted.popleft()[1]
        if settled is not None and self._store is not None:
            await self._store.aset(self._key, self.write(settled))


class PositionMemory(Memory[EventCursor]):
    """How far has been told."""

    def read(self, value: Any) -> EventCursor:
        return EventCursor(int(value["upto"]), int(value["highest"]))

    def write(self, told: EventCursor) -> dict[str, Any]:
        return {"upto": told.upto, "highest": told.highest}
