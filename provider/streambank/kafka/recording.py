"""What a savepoint keeps of a query's Kafka: offsets, topic ids, and how far a sink's topics were.

A take goes on where a cluster does not answer: what the checkpoint itself says is kept, and why the rest
could not be asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.sources import SourceState
from streambank.errors import StreambankError
from streambank.kafka.broker import Broker
from streambank.kafka.connection import Brokers
from streambank.kafka.offsets import Offsets, Spot, parse_offsets, spots
from streambank.savepoint.capture import Captured
from streambank.times import to_json_time, utc_now

KIND = "kafka"
SUBSCRIPTIONS = ("assign", "subscribe", "subscribepattern")
"""Spark's options by which a query names its topics, in lower case."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A Kafka source as the application declared it to Spark.

    Attributes:
        bootstrap: Its `kafka.bootstrap.servers`.
        subscribe: How it named its topics: one of `SUBSCRIPTIONS`, with its value.
    """

    bootstrap: str | None
    subscribe: Mapping[str, str]

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Reader:
        """From the runner's record."""
        named = {name: str(facts[name]) for name in SUBSCRIPTIONS if facts.get(name)}
        bootstrap = facts.get("bootstrap")
        return Reader(str(bootstrap) if bootstrap else None, named)

    def reads(self, topics: Iterable[str]) -> bool:
        """Whether all these topics may be of this source."""
        if names := self.subscribe.get("subscribe"):
            return set(topics) <= {name.strip() for name in names.split(",")}
        if pattern := self.subscribe.get("subscribepattern"):
            try:
                return all(re.fullmatch(pattern, topic) for topic in topics)
            except re.error:  # Java's patterns know more than Python's
                return True
        if assigned := self.subscribe.get("assign"):
            return all(f'"{topic}"' in assigned for topic in topics)
        return True


class SourceRecorder:
    """Asks about the Kafka sources of the query whose savepoint is taken (see `capture.SourceCapture`).

    Args:
        brokers: Who is asked.
        readers: The query's Kafka sources as its application declared them, where the runner knows.
    """

    def __init__(self, brokers: Brokers, readers: Sequence[Reader] = ()) -> None:
        self._brokers = brokers
        self._readers = readers

    def describe(self, source: SourceState) -> Mapping[str, Any]:
        """`kafka` of a source that counts by topic and partition; nothing for any other."""
        offsets = parse_offsets(source.offset)
        if offsets is None:
            return {}
        reader = next((one for one in self._readers if one.reads(offsets)), Reader(None, {}))
        bootstrap = self._brokers.bootstrap(reader.bootstrap)
        record = {"bootstrap": bootstrap, **reader.subscribe}
        try:
            asked = _ask_source(self._brokers.at(reader.bootstrap), offsets)
            return {KIND: {**record, "asked_at": to_json_time(utc_now()), "not_asked": None, "topics": asked}}
        except StreambankError as error:
            said = _said(offsets, {}, {}, {})
            return {KIND: {**record, "asked_at": None, "not_asked": error.message, "topics": said}}


def _ask_source(broker: Broker, offsets: Offsets) -> dict[str, Any]:
    topics = broker.topics(offsets)
    there = {name: one.topic_id for name, one in topics.items() if one is not None}
    partitions = {name: set(one.partitions) for name, one in topics.items() if one is not None}
    where = [spot for spot in spots(offsets) if spot[1] in partitions.get(spot[0], ())]
    return _said(offsets, there, broker.offsets(where, "earliest"), broker.offsets(where, "latest"))


def _said(
    offsets: Offsets,
    ids: Mapping[str, str | None],
    earliest: Mapping[Spot, int | None],
    latest: Mapping[Spot, int | None],
) -> dict[str, Any]:
    return {
        topic: {
            "topic_id": ids.get(topic),
            "partitions": {
                str(partition): {
                    "next": offset,
                    "earliest": earliest.get((topic, partition)),
                    "latest": latest.get((topic, partition)),
                }
                for partition, offset in sorted(partitions.items())
            },
        }
        for topic, partitions in sorted(offsets.items())
    }


class KafkaSinkCapture:
    """A Kafka sink: how far its topic was when the savepoint's batch was committed.

    A topic's tail cannot be cut, so a restore cannot take it back: it can only tell beforehand how many
    records will be there twice. While the query runs on, records of later batches are in the topic already;
    they are told from those of the savepoint by the time at which its batch was committed.

    Args:
        brokers: Who is asked.
        bootstrap: The servers that the query writes to.
        topic: Its `topic` option; None where rows name their topics themselves.
        committed_ms: When a batch was committed, in ms since the epoch; None where that is not known.
        begun: Whether a batch was begun.
    """

    kind = KIND
    guarded = False

    def __init__(
        self,
        brokers: Brokers,
        bootstrap: str | None,
        topic: str | None,
        *,
        committed_ms: Callable[[int], int | None],
        begun: Callable[[int], bool],
    ) -> None:
        self._brokers = brokers
        self._bootstrap = bootstrap
        self._topic = topic
        self._committed_ms = committed_ms
        self._begun = begun
        self.path = sink_path(bootstrap, topic)

    def capture(self, batch: int) -> Captured:
        """How far the topic is; never refused, whatever the cluster says."""
        record: dict[str, Any] = {
            "kind": KIND,
            "path": self.path,
            "guarded": False,
            "batch": batch,
            "bootstrap": self._brokers.bootstrap(self._bootstrap),
            "committed_ms": self._committed_ms(batch),
            "asked_at": None,
            "not_asked": None,
            "topics": {},
        }
        if self._topic is None:
            return Captured(record | {"not_asked": "Rows name their topics themselves."})
        try:
            topics = self._ask(self._brokers.at(self._bootstrap), self._topic, batch, record["committed_ms"])
        except StreambankError as error:
            unknown: dict[str, Any] = {"topic_id": None, "counted": None, "high_watermarks": {}}
            return Captured(record | {"not_asked": error.message, "topics": {self._topic: unknown}})
        return Captured(record | {"asked_at": to_json_time(utc_now()), "topics": {self._topic: topics}})

    def _ask(self, broker: Broker, topic: str, batch: int, committed_ms: int | None) -> dict[str, Any]:
        found = broker.topics([topic])[topic]
        if found is None:
            return {"topic_id": None, "counted": "missing", "high_watermarks": {}}
        marks = broker.offsets([(topic, partition) for partition in found.partitions], "latest")
        counted = "still"
        if self._begun(batch + 1):
            counted = "running" if committed_ms is None else "by-time"
            if committed_ms is not None:
                marks = marks_at(broker, marks, committed_ms)
        watermarks = {str(partition): marks[topic, partition] for partition in found.partitions}
        return {"topic_id": found.topic_id, "counted": counted, "high_watermarks": watermarks}


def marks_at(broker: Broker, marks: Mapping[Spot, int | None], ms: int) -> dict[Spot, int | None]:
    """How far partitions were at a time: where the first record after it is, else where they end.

    Args:
        broker: Who is asked.
        marks: Where they end now.
        ms: The time, in ms since the epoch.
    """
    later = broker.offsets(marks, ms + 1)
    return {spot: mark if later.get(spot) is None else later[spot] for spot, mark in marks.items()}


def sink_path(bootstrap: str | None, topic: str | None) -> str:
    """How plans and reports call a Kafka sink: `kafka://host:9092/topic`."""
    return f"kafka://{bootstrap or ''}" + (f"/{topic}" if topic else "")
