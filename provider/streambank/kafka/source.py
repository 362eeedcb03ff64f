"""Whether a Kafka source still has what a savepoint's query would read next. Asks, and decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from streambank.checkpoint.text import load_json
from streambank.core.errors import FormatError, StorageError, StreambankError
from streambank.core.shape import JsonName, encode
from streambank.kafka.broker import Broker, TopicRetention
from streambank.kafka.offsets import Offsets, Spot, parse_offsets, spots
from streambank.kafka.recording import FORMAT, KIND
from streambank.kafka.settings import Brokers
from streambank.kafka.topics import ids_of, is_another, partitions_of, topic_pattern, topics_of

Why = Literal["deleted", "past-the-end", "partition-gone", "topic-gone", "topic-remade", "added-late"]
_WHY: Mapping[Why, str] = {
    "deleted": "deleted",
    "past-the-end": "beyond the partition's end",
    "partition-gone": "the partition is gone",
    "topic-gone": "the topic is gone",
    "topic-remade": "the topic was deleted and created again",
    "added-late": "deleted from a partition that was added since",
}
_AT_LEAST: tuple[Why, ...] = ("partition-gone", "topic-gone", "topic-remade")
"""Where the end is that of the time of the savepoint: more may have come before all of it went away."""
_MOST_SHOWN = 3
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that a restored query would not read.

    Attributes:
        end: The offset after the last one, as far as the savepoint knew where all of them are gone; None
            where it is not known.
    """

    topic: str
    partition: int
    first: Annotated[int, JsonName("from")]
    end: Annotated[int | None, JsonName("to")]
    why: Why

    @property
    def records(self) -> int | None:
        """How many offsets; fewer records where a topic is compacted or written in transactions."""
        return None if self.end is None else self.end - self.first

    def sentence(self) -> str:
        """`flights/0 from 10 to 20, 10 records: deleted`."""
        if self.end is None:
            return f"{self.topic}/{self.partition} from {self.first}: {_WHY[self.why]}"
        least = "at least " if self.why in _AT_LEAST else ""
        count = f"{least}{self.records} record" + ("" if self.records == 1 else "s")
        return f"{self.topic}/{self.partition} from {self.first} to {self.end}, {count}: {_WHY[self.why]}"

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"records": self.records}


@dataclass(frozen=True, slots=True)
class SourceStanding:
    """A Kafka source of a savepoint as it is now.

    Attributes:
        offsets: The next offsets to read.
        added: Partitions that were added since; they are read from their beginning.
        unidentified: Topics of which nobody knows whether they are still the same.
        kept: How long topics keep their records, where Kafka tells.
        kept_not_known: Why Kafka does not tell; empty where it does.
        unjudged: The pattern by which the query finds its topics, where only Java can read it.
        transient: Whether asking again may tell what is not known now.
    """

    source: str
    bootstrap: str | None
    offsets: Offsets
    lost: tuple[Lost, ...] = ()
    added: tuple[Spot, ...] = ()
    unidentified: tuple[str, ...] = ()
    not_known: str = ""
    hint: str = ""
    latest: Mapping[Spot, int | None] | None = None
    kept: Mapping[str, TopicRetention] | None = None
    kept_not_known: str = ""
    unjudged: str = ""
    transient: bool = False

    @property
    def compacted(self) -> tuple[str, ...]:
        """Topics that let a record go when a newer one has its key."""
        return tuple(sorted(topic for topic, one in (self.kept or {}).items() if one.compacts))

    @property
    def lost_records(self) -> int | None:
        """How many offsets would not be read, at least; None where that is not known of some."""
        counts = [span.records for span in self.lost if span.records is not None]
        return None if self.not_known or len(counts) < len(self.lost) else sum(counts)

    @property
    def safe(self) -> bool | None:
        """Whether a restored query reads everything; None where that is not known."""
        return None if self.not_known else not self.lost

    @property
    def waiting(self) -> int | None:
        """Records from the savepoint to the end of the partitions, which will be read again."""
        if self.latest is None:
            return None
        return sum(
            max(0, (self.latest.get(spot) or 0) - offset) for spot, offset in spots(self.offsets).items()
        )

    def sentence(self) -> str:
        """What is wrong, for a person who decides; empty where nothing is."""
        named = ", ".join(self.offsets)
        if self.not_known:
            why = self.not_known.rstrip(".")
            return (
                f"It is not known whether Kafka still has what source {self.source} ({named}) would read "
                f"next: {why}."
            )
        if not self.lost:
            return ""
        shown = "; ".join(span.sentence() for span in self.lost[:_MOST_SHOWN])
        more = f"; and {len(self.lost) - _MOST_SHOWN} more ranges" if len(self.lost) > _MOST_SHOWN else ""
        return f"Source {self.source} can no longer read what follows the savepoint: {shown}{more}."

    def notes(self) -> Iterator[str]:
        if self.added:
            names = ", ".join(f"{topic}/{partition}" for topic, partition in self.added)
            yield f"Partitions were added since the savepoint: {names}. They are read from their beginning."
        for topic in self.unidentified:
            yield (
                f"It is not known whether {topic} is still the same topic: the savepoint does not record its "
                "id. Its offsets fit."
            )
        for topic in self.compacted:
            yield _compacted(topic, self.kept[topic] if self.kept else None)
        if self.kept_not_known:
            yield (
                f"It is not known how long Kafka keeps {', '.join(self.offsets)}, and whether it compacts "
                f"it: {self.kept_not_known}"
            )
        if self.unjudged:
            yield (
                f"It is not known whether topics that match {self.unjudged} were added since the savepoint, "
                "and whether Kafka has all of them: only Java can read this pattern."
            )

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "source": self.source,
            "bootstrap": self.bootstrap,
            "topics": sorted(self.offsets),
            "safe": self.safe,
            "lost": [span.to_dict() for span in self.lost],
            "lost_records": self.lost_records,
            "added": [f"{topic}/{partition}" for topic, partition in self.added],
            "compacted": list(self.compacted),
            "records_to_read_again": self.waiting,
            "says": self.sentence(),
        }


def _compacted(topic: str, kept: TopicRetention | None) -> str:
    ms = kept.tombstones_ms if kept is not None else None
    after = "after a while" if ms is None else f"{ms / _HOUR_MS:g} h after it has compacted them"
    return (
        f"{topic} is compacted: after the savepoint, only the newest record of each key is certain to exist. "
        f"Deletions of keys are removed {after} (delete.retention.ms), and the restored state keeps a key "
        "whose deletion it does not read."
    )


def look_at_source(
    record: Mapping[str, Any], brokers: Brokers, earlier: Mapping[str, Any] | None = None
) -> SourceStanding | None:
    """Compare a source of a savepoint with its topics; None where it is no Kafka source.

    Args:
        earlier: The same source in the query's savepoint before, where there is one: it tells a topic that
            was made again between the two.
    """
    offsets = parse_offsets(record.get("offset"))
    if offsets is None or record.get(FORMAT, KIND) != KIND:
        return None
    name = str(record.get("source"))
    kept = record.get(KIND)
    kept = kept if isinstance(kept, Mapping) else {}
    recorded = kept.get("bootstrap")
    recorded = recorded if isinstance(recorded, str) else None
    bootstrap = brokers.bootstrap(recorded)
    try:
        return _look(name, bootstrap, offsets, kept, ids_of(offsets, kept, earlier), brokers.at(recorded))
    except StreambankError as error:
        again = bootstrap is not None and error.code == "kafka-not-reachable"
        return SourceStanding(
            name, bootstrap, offsets, not_known=error.message, hint=error.hint, transient=again
        )


def _look(
    name: str,
    bootstrap: str | None,
    offsets: Offsets,
    kept: Mapping[str, Any],
    ids: Mapping[str, frozenset[str]],
    broker: Broker,
) -> SourceStanding:
    names, unjudged = _names(offsets, kept, broker)
    topics, was = broker.topics(names), topics_of(kept)
    assigned = _assigned(kept)
    lost: list[Lost] = []
    ask: list[Spot] = []
    added: list[Spot] = []
    unidentified = []
    for topic, found in topics.items():
        partitions = offsets.get(topic, {})
        if found is None and topic not in offsets:
            continue  # subscribed to, and not there yet
        if found is None or is_another(found, ids.get(topic, frozenset())):
            ends = was if len(ids.get(topic, ())) <= 1 else {}  # else those of the new topic
            lost += _all_of(topic, partitions, ends, "topic-gone" if found is None else "topic-remade")
            continue
        if topic in offsets and (found.topic_id is None or not ids.get(topic)):
            unidentified.append(topic)
        there = [
            partition
            for partition in found.partitions
            if partition in partitions or _reads(assigned, topic, partition)
        ]
        ask += [(topic, partition) for partition in there]
        added += [(topic, partition) for partition in there if partition not in partitions]
        gone = {one: offset for one, offset in partitions.items() if one not in found.partitions}
        lost += _all_of(topic, gone, was, "partition-gone")
    earliest, latest = broker.offsets(ask, "earliest"), broker.offsets(ask, "latest")
    for spot in ask:
        first, end = earliest.get(spot), latest.get(spot)
        lost += _of_partition(spot, offsets.get(spot[0], {}).get(spot[1]), first, end)
    retention, why = _retention(broker, sorted({topic for topic, _ in ask}))
    return SourceStanding(
        source=name,
        bootstrap=bootstrap,
        offsets=offsets,
        lost=tuple(sorted(lost, key=lambda one: (one.topic, one.partition, one.first))),
        added=tuple(sorted(added)),
        unidentified=tuple(unidentified),
        latest=latest,
        kept=retention,
        kept_not_known=why,
        unjudged=unjudged,
    )


def _names(offsets: Offsets, kept: Mapping[str, Any], broker: Broker) -> tuple[list[str], str]:
    """The topics that were read or that a subscription finds, and a pattern that only Java can read."""
    subscribed, pattern = kept.get("subscribe"), kept.get("subscribepattern")
    more: list[str] = []
    if isinstance(subscribed, str):
        more = [name for each in subscribed.split(",") if (name := each.strip())]
    elif isinstance(pattern, str):
        matching = topic_pattern(pattern)
        if matching is None:
            return sorted(offsets), pattern
        more = [name for name in broker.names() if matching.fullmatch(name)]
    return sorted({*offsets, *more}), ""


def _assigned(kept: Mapping[str, Any]) -> Offsets | None:
    """The partitions that the query named (`assign`), by topic; None where it reads all of its topics."""
    try:
        said = load_json(str(kept["assign"])) if "assign" in kept else None
    except FormatError:
        return None
    if not isinstance(said, dict) or not all(isinstance(each, list) for each in said.values()):
        return None
    return {
        topic: {partition: 0 for partition in each if isinstance(partition, int)}
        for topic, each in said.items()
    }


def _reads(assigned: Offsets | None, topic: str, partition: int) -> bool:
    return assigned is None or partition in assigned.get(topic, {})


def _retention(broker: Broker, topics: list[str]) -> tuple[Mapping[str, TopicRetention] | None, str]:
    try:
        return (broker.retention(topics) if topics else {}), ""
    except StreambankError as error:
        return None, error.message


def _of_partition(spot: Spot, saved: int | None, first: int | None, end: int | None) -> Iterator[Lost]:
    """Of a partition that is there: what was deleted after the saved offset, or is not there yet.

    Raises:
        StorageError: It went away while Kafka was asked, so that nothing can be said (`kafka-not-reachable`).
    """
    if first is None or end is None:
        raise StorageError(
            f"Kafka does not say where {spot[0]}/{spot[1]} begins and ends.",
            code="kafka-not-reachable",
            hint="Check whether the topic is being deleted or moved to other brokers, then try again.",
        )
    if saved is None:
        if first > 0:
            yield Lost(*spot, 0, first, "added-late")
    elif saved < first:
        yield Lost(*spot, saved, first, "deleted")
    elif saved > end:
        yield Lost(*spot, end, saved, "past-the-end")


def _all_of(
    topic: str, partitions: Mapping[int, int], was: Mapping[str, Mapping[str, Any]], why: Why
) -> Iterator[Lost]:
    """Everything from the saved offsets on, as far as the savepoint knew then where the topic ended."""
    ends = partitions_of(was.get(topic, {}))
    for partition, offset in partitions.items():
        end = ends.get(str(partition), {}).get("latest")
        yield Lost(topic, partition, offset, end if isinstance(end, int) and end > offset else None, why)
