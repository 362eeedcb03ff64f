"""A Kafka cluster in memory, for what must be quick or must go wrong; the real one is in `kafka`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from streambank.core.errors import StorageError
from streambank.kafka.broker import Topic, TopicRetention, When
from streambank.kafka.offsets import Spot
from streambank.kafka.settings import Brokers, KafkaConnection

SERVERS = "kafka:9092"
QUERY_ID = "3f2a1f0e-4d1c-4c0a-9b57-1d7c1f6a2b11"


@dataclass
class FakeBroker:
    """Topics with their first and last offsets; records of partition p at offset o are of `times[p, o]`.

    Attributes:
        latest: The offset after the last one.
        kept: How long each topic keeps its records.
        down: Whether it answers nothing.
        denied: What this user may not ask: `topics`, `retention`, `times`, ...
    """

    known: dict[str, Topic] = field(default_factory=dict)
    earliest: dict[Spot, int] = field(default_factory=dict)
    latest: dict[Spot, int] = field(default_factory=dict)
    kept: dict[str, TopicRetention] = field(default_factory=dict)
    times_ms: dict[Spot, dict[int, int]] = field(default_factory=dict)
    down: bool = False
    denied: set[str] = field(default_factory=set)
    asked: int = 0

    def put(self, topic: str, *ends: tuple[int, int], topic_id: str = "") -> None:
        """Let a topic have these partitions, each with its first offset and its end."""
        self.known[topic] = Topic(topic_id or str(uuid.uuid4()), tuple(range(len(ends))))
        for partition, (first, end) in enumerate(ends):
            self.earliest[topic, partition], self.latest[topic, partition] = first, end
        self.kept.setdefault(topic, TopicRetention("delete", 604_800_000, None))

    def remake(self, topic: str) -> None:
        """Delete a topic, and make it again with the same offsets."""
        self.known[topic] = replace(self.known[topic], topic_id=str(uuid.uuid4()))

    def brokers(self, connection: KafkaConnection | None = None) -> Brokers:
        return Brokers(connection, connect=lambda servers, properties, timeout_s: self)

    def names(self) -> Sequence[str]:
        self._ask("names")
        return sorted(self.known)

    def topics(self, names: Iterable[str]) -> Mapping[str, Topic | None]:
        self._ask("topics")
        return {name: self.known.get(name) for name in names}

    def offsets(self, where: Iterable[Spot], when: When) -> Mapping[Spot, int | None]:
        self._ask("offsets")
        if isinstance(when, str):
            ends = self.earliest if when == "earliest" else self.latest
            return {spot: ends.get(spot) for spot in where}
        return {spot: self._at(spot, when) for spot in where}

    def _at(self, spot: Spot, ms: int) -> int | None:
        later = [offset for offset, time in self.times_ms.get(spot, {}).items() if time >= ms]
        return min(later, default=None)

    def retention(self, names: Iterable[str]) -> Mapping[str, TopicRetention]:
        self._ask("retention")
        return {name: self.kept[name] for name in names}

    def times(self, records: Mapping[Spot, int]) -> Mapping[Spot, int | None]:
        self._ask("times")
        return {spot: self.times_ms.get(spot, {}).get(offset) for spot, offset in records.items()}

    def _ask(self, what: str) -> None:
        self.asked += 1
        if what in self.denied:
            raise StorageError("Not allowed.", code="kafka-not-allowed", hint="Grant it.")
        if self.down:
            raise StorageError("Kafka is down.", code="kafka-not-reachable", hint="Start it.")


def write_checkpoint(folder: Path, offsets: str, batches: int = 2) -> Path:
    """A checkpoint of a stateless query that reads Kafka, as Spark writes it.

    Args:
        offsets: The source's offsets after the newest batch.
    """
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(f'{{"id":"{QUERY_ID}"}}')
    (folder / "sources/0/0").write_bytes(b"\x00v1\n" + offsets.encode())
    for batch in range(batches):
        head = f'{{"batchWatermarkMs":0,"batchTimestampMs":{1000 + batch},"conf":{{}}}}'
        (folder / "offsets" / str(batch)).write_text(f"v1\n{head}\n{offsets}")
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder
