"""What is asked of a Kafka cluster. A real one is asked by `client`; tests bring their own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from streambank.kafka.offsets import Spot

When = Literal["earliest", "latest"] | int
"""The first offset that is there, the one after the last, or the first of a time in ms since the epoch."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now.

    Attributes:
        topic_id: Given by the cluster when the topic was made: another one where it was made again. None
            where the cluster has none (before Kafka 2.8; some brokers answer with the id of zeros).
    """

    topic_id: str | None
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """How long a topic keeps its records.

    Attributes:
        cleanup: `delete`, `compact`, or both: `compact,delete`.
        ms: `retention.ms`; None for no limit of time.
        max_bytes: `retention.bytes` of each partition; None for no limit of size.
        tombstones_ms: `delete.retention.ms`: how long a compacted topic keeps the records that say that a key
            was deleted; None where it is not told.
    """

    cleanup: str
    ms: int | None
    max_bytes: int | None
    tombstones_ms: int | None = None

    @property
    def deletes(self) -> bool:
        """Whether records go away by age or size."""
        return "delete" in self.cleanup

    @property
    def compacts(self) -> bool:
        """Whether a record may go away when a newer one has its key."""
        return "compact" in self.cleanup


class Broker(Protocol):
    """A cluster that answers questions, or raises StorageError in time.

    The code is `kafka-not-reachable`, or `kafka-not-allowed` where it answers that this user may not ask
    that: then other topics may still be asked about.
    """

    def names(self) -> Sequence[str]:
        """The topics that are there and that this user may see, without Kafka's own."""

    def topics(self, names: Iterable[str]) -> Mapping[str, Topic | None]:
        """The topics of these names; None for one that is not there."""

    def offsets(self, where: Iterable[Spot], when: When) -> Mapping[Spot, int | None]:
        """An offset of each partition; None where no record is of that time or later."""

    def retention(self, names: Iterable[str]) -> Mapping[str, TopicRetention]:
        """How long topics that are there keep their records."""

    def times(self, records: Mapping[Spot, int]) -> Mapping[Spot, int | None]:
        """When records were written, in ms since the epoch, as they say themselves, by the offset of each.

        None for a record that says no time, or that did not come in time. A partition of which no record
        comes any more, only marks of transactions, is left out.
        """


class Patience:
    """The time that all questions of one piece of work may wait together.

    Only waiting counts: what is done between two questions takes nothing of it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._spent_s = 0.0

    @contextmanager
    def waiting(self) -> Iterator[float]:
        """One question; gives the seconds that are left for it, which may be none."""
        began = time.monotonic()
        try:
            yield max(0.0, self.seconds - self._spent_s)
        finally:
            self._spent_s += time.monotonic() - began

    def renew(self) -> None:
        self._spent_s = 0.0
