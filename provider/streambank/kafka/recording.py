"""What a savepoint keeps of a query's Kafka: offsets, topic ids, and how far a sink's topics were.

A take goes on where a cluster does not answer: what the checkpoint itself says is kept, and why the rest
could not be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from streambank.checkpoint.sources import SourceState
from streambank.core.errors import StorageError, StreambankError
from streambank.core.units import to_json_time, utc_now
from streambank.kafka.broker import Broker
from streambank.kafka.offsets import Offsets, Spot, parse_offsets, spots
from streambank.kafka.settings import Brokers
from streambank.kafka.topics import topic_pattern
from streambank.repository.catalog import glimpse
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.sinks import Captured

KIND = "kafka"
FORMAT = "format"
"""Spark's word for a source that is known to be another connector's than Kafka's."""
MARGIN_MS = 5000
"""How far the clocks of those who write records may be from that of the checkpoint's storage. Where time
tells records apart, those of so shortly before the commit may be of later batches."""
SUBSCRIPTIONS = ("assign", "subscribe", "subscribepattern")
"""Spark's options by which a query names its topics, in lower case."""

_WHICH = "Start the job again: its driver then records which Kafka each of its sources reads."


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """A Kafka source as the application declared it to Spark.

    Attributes:
        subscribe: How it named its topics: one of `SUBSCRIPTIONS`, with its value.
        position: Which of the query's sources it is, counted from 0 as Spark's offset log does; None where
            that is not known.
    """

    bootstrap: str | None
    subscribe: Mapping[str, str]
    position: int | None = None

    @staticmethod
    def of(facts: Mapping[str, Any]) -> KafkaReader:
        named = {name: str(facts[name]) for name in SUBSCRIPTIONS if facts.get(name)}
        bootstrap = facts.get("bootstrap")
        position = facts.get("position")
        return KafkaReader(
            str(bootstrap) if bootstrap else None, named, position if isinstance(position, int) else None
        )

    def reads(self, topics: Iterable[str]) -> bool:
        """Whether all these topics may be of this source."""
        if names := self.subscribe.get("subscribe"):
            return set(topics) <= {name.strip() for name in names.split(",")}
        if pattern := self.subscribe.get("subscribepattern"):
            matching = topic_pattern(pattern)
            return matching is None or all(matching.fullmatch(topic) for topic in topics)
        if assigned := self.subscribe.get("assign"):
            return all(f'"{topic}"' in assigned for topic in topics)
        return True


@dataclass(frozen=True, slots=True)
class SourceRecorder:
    """Asks about the Kafka sources of the query whose savepoint is taken (see `capture.SourceCapture`).

    Attributes:
        streams: Spark's word for each source of the query, by position, where the runner knows: `kafka`, or
            what else it is; None for one that has no word.
    """

    brokers: Brokers
    readers: Sequence[KafkaReader] = ()
    streams: Sequence[str | None] = ()

    def describe(self, source: SourceState) -> Mapping[str, Any]:
        """`kafka` of a source that counts by topic and partition; `format` of another connector's.

        Other connectors write offsets that look the same (that of Azure Event Hubs does).
        """
        offsets = parse_offsets(source.offset)
        if offsets is None:
            word = self.word(source)
            return {} if word is None else {FORMAT: word}
        if (word := self._other(source)) is not None:
            return {FORMAT: word}
        reader, unsure = self._reader(source, offsets)
        bootstrap = self.brokers.bootstrap(reader.bootstrap)
        record = {"bootstrap": bootstrap, **reader.subscribe}
        try:
            if unsure:
                raise StorageError(unsure, code="kafka-not-reachable", hint=_WHICH)
            asked = _ask_source(self.brokers.at(reader.bootstrap), offsets)
            return {KIND: {**record, "asked_at": to_json_time(utc_now()), "not_asked": None, "topics": asked}}
        except StreambankError as error:
            said = _said(offsets, {}, {}, {})
            return {KIND: {**record, "asked_at": None, "not_asked": error.message, "topics": said}}

    def word(self, source: SourceState) -> str | None:
        words = [stream for stream in self.streams if stream != KIND]
        if len(set(words)) == 1:
            return words[0]
        word = self._stream(source)
        return None if word == KIND else word

    def _stream(self, source: SourceState) -> str | None:
        number = int(source.source) if source.source.isdecimal() else len(self.streams)
        return self.streams[number] if number < len(self.streams) else None

    def _other(self, source: SourceState) -> str | None:
        """Spark's word for a source that is none of Kafka's; None where it is, or may be."""
        if self.streams and None not in self.streams and KIND not in self.streams:
            return self._stream(source) or self.streams[0]
        word = self._stream(source)
        placed = any(reader.position is not None for reader in self.readers)
        return word if placed and word != KIND else None

    def _reader(self, source: SourceState, offsets: Offsets) -> tuple[KafkaReader, str]:
        """Which of the query's readers a source is, or one that says nothing; and why it is not known."""
        fitting = [reader for reader in self.readers if reader.reads(offsets)]
        placed = [reader for reader in self.readers if str(reader.position) == source.source]
        if placed and (placed[0] in fitting or not fitting):
            return placed[0], ""
        if len(fitting) < 2:
            return (fitting[0] if fitting else KafkaReader(None, {})), ""
        servers = sorted({self.brokers.bootstrap(reader.bootstrap) or "" for reader in fitting})
        if len(servers) > 1:
            unsure = f"It is not known which of {', '.join(servers)} the source reads from."
            return KafkaReader(None, {}), unsure
        same = all(reader.subscribe == fitting[0].subscribe for reader in fitting)
        return KafkaReader(fitting[0].bootstrap, fitting[0].subscribe if same else {}), ""


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


@dataclass(frozen=True, slots=True)
class KafkaSinkCapture:
    """A Kafka sink: how far its topic was when the savepoint's batch was committed.

    A topic's tail cannot be cut, so a restore cannot take it back: it can only tell beforehand how many
    records will be there twice. While the query runs on, records of later batches are in the topic already;
    they are told from those of the savepoint by the time at which its batch was committed, and what came
    less than `MARGIN_MS` before that may be of either.
    """

    brokers: Brokers
    bootstrap: str | None
    topic: str | None
    _: KW_ONLY
    committed_ms: Callable[[int], int | None]
    begun: Callable[[int], bool]
    kind: ClassVar[str] = KIND
    keeps_files: ClassVar[bool] = False

    @property
    def path(self) -> str:
        return sink_path(self.bootstrap, self.topic)

    def capture(self, batch: int) -> Captured:
        """How far the topic is; never refused, whatever the cluster says."""
        record: dict[str, Any] = {
            "kind": KIND,
            "path": self.path,
            "guarded": False,
            "batch": batch,
            "bootstrap": self.brokers.bootstrap(self.bootstrap),
            "committed_ms": self.committed_ms(batch),
            "asked_at": None,
            "not_asked": None,
            "topics": {},
        }
        if self.topic is None:
            return Captured(record | {"not_asked": "Each row names its own topic."})
        try:
            topics = self._ask(self.brokers.at(self.bootstrap), self.topic, batch, record["committed_ms"])
        except StreambankError as error:
            unknown: dict[str, Any] = {"topic_id": None, "counted": None, "high_watermarks": {}}
            return Captured(record | {"not_asked": error.message, "topics": {self.topic: unknown}})
        return Captured(record | {"asked_at": to_json_time(utc_now()), "topics": {self.topic: topics}})

    def _ask(self, broker: Broker, topic: str, batch: int, committed_ms: int | None) -> dict[str, Any]:
        found = broker.topics([topic])[topic]
        if found is None:
            return {"topic_id": None, "counted": "missing", "high_watermarks": {}}
        marks = broker.offsets([(topic, partition) for partition in found.partitions], "latest")
        counted: dict[str, Any] = {"counted": "still"}
        if self.begun(batch + 1):
            counted = {"counted": "running"}
            if committed_ms is not None:
                low = marks_at(broker, marks, committed_ms - MARGIN_MS)
                counted = {"counted": "by-time", "margin_ms": MARGIN_MS, "low_watermarks": _by_partition(low)}
                marks = marks_at(broker, marks, committed_ms)
        return {"topic_id": found.topic_id, **counted, "high_watermarks": _by_partition(marks)}


def _by_partition(marks: Mapping[Spot, int | None]) -> dict[str, int | None]:
    return {str(partition): mark for (_, partition), mark in sorted(marks.items())}


def marks_at(broker: Broker, marks: Mapping[Spot, int | None], ms: int) -> dict[Spot, int | None]:
    """How far partitions were at a time in ms: where the first record after it is, else where they end."""
    later = broker.offsets(marks, ms + 1)
    return {spot: mark if later.get(spot) is None else later[spot] for spot, mark in marks.items()}


def sink_path(bootstrap: str | None, topic: str | None) -> str:
    """How plans and reports call a Kafka sink: `kafka://host:9092/topic`."""
    return f"kafka://{bootstrap or ''}" + (f"/{topic}" if topic else "")


_MOST_EARLIER = 8
"""How many savepoints of before are looked at for one whose Kafka was asked."""

Before = Mapping[str, Mapping[str, Any]]
"""Sources of a savepoint by their names in the offset log, as its manifest has them."""


def sources_before(repository: Repository, manifest: Manifest) -> Before:
    """The sources of the query's savepoint before one; none without it, or without a Kafka source here."""
    if not any(isinstance(source, Mapping) and source.get(KIND) is not None for source in manifest.sources):
        return {}
    one = manifest
    try:
        for _ in range(_MOST_EARLIER):
            before = one.parent if one.derived_from is None else one.derived_from
            if before is None:
                break
            found_one = glimpse(repository.store, manifest.job, before)
            if found_one is None or found_one.query_id != manifest.query_id:
                break
            one = found_one
            found = {str(each.get("source")): each for each in one.sources if isinstance(each, Mapping)}
            asked = any(_asked(each) for each in found.values())
            if one.batch < manifest.batch and asked:
                return found
    except StreambankError:
        pass  # it was expired, or is damaged, which `verify` tells: then nothing is known of before
    return {}


def _asked(record: Mapping[str, Any]) -> bool:
    kept = record.get(KIND)
    return isinstance(kept, Mapping) and kept.get("asked_at") is not None
