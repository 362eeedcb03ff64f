"""Whether a Kafka source still has what a savepoint's query would read next. Asks, and decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streambank.errors import StreambankError
from streambank.kafka.broker import Broker
from streambank.kafka.connection import Brokers
from streambank.kafka.offsets import Offsets, Spot, parse_offsets, spots
from streambank.kafka.recording import KIND

Why = Literal["deleted", "past-the-end", "partition-gone", "topic-gone", "topic-remade", "added-late"]
_WHY: Mapping[Why, str] = {
    "deleted": "deleted",
    "past-the-end": "beyond the partition's end",
    "partition-gone": "the partition is gone",
    "topic-gone": "the topic is gone",
    "topic-remade": "the topic was deleted and made anew",
    "added-late": "deleted from a partition that was added since",
}
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that a restored query would not read.

    Attributes:
        topic: Their topic.
        partition: Their partition.
        first: The first offset.
        end: The offset after the last one; None where it is not known.
        why: What became of them.
    """

    topic: str
    partition: int
    first: int
    end: int | None
    why: Why

    @property
    def records(self) -> int | None:
        """How many offsets; fewer records where a topic is compacted or written in transactions."""
        return None if self.end is None else self.end - self.first

    def sentence(self) -> str:
        """`flights/0 from 10 to 20, 10 records: deleted`."""
        if self.end is None:
            return f"{self.topic}/{self.partition} from {self.first}: {_WHY[self.why]}"
        count = f"{self.records} record" + ("" if self.records == 1 else "s")
        return f"{self.topic}/{self.partition} from {self.first} to {self.end}, {count}: {_WHY[self.why]}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.first,
            "to": self.end,
            "records": self.records,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class SourceStanding:
    """A Kafka source of a savepoint as it is now.

    Attributes:
        source: Its name in the offset log.
        bootstrap: The servers that were asked.
        offsets: The next offsets to read.
        lost: What would not be read.
        added: Partitions that were added since; they are read from their beginning.
        unidentified: Topics of which nobody knows whether they are still the same.
        not_known: Why nothing of this is known; empty where it is.
        hint: What would let it be known.
        latest: Where each partition ends now.
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
                f"Whether Kafka still has what source {self.source} ({named}) would read next is not known: "
                f"{why}."
            )
        if not self.lost:
            return ""
        shown = "; ".join(one.sentence() for one in self.lost[:_MOST_SHOWN])
        more = f"; and {len(self.lost) - _MOST_SHOWN} ranges more" if len(self.lost) > _MOST_SHOWN else ""
        return f"Source {self.source} can no longer read what follows the savepoint: {shown}{more}."

    def notes(self) -> Iterator[str]:
        """What a person should know although it stops nothing."""
        if self.added:
            names = ", ".join(f"{topic}/{partition}" for topic, partition in self.added)
            yield f"Partitions were added since the savepoint: {names}. They are read from their beginning."
        for topic in self.unidentified:
            yield (
                f"Whether {topic} is still the topic that it was is not known: the savepoint does not hold "
                "its id. Its offsets fit."
            )

    def to_dict(self) -> dict[str, Any]:
        """As JSON, for plans and reports."""
        return {
            "kind": KIND,
            "source": self.source,
            "bootstrap": self.bootstrap,
            "topics": sorted(self.offsets),
            "safe": self.safe,
            "lost": [one.to_dict() for one in self.lost],
            "lost_records": None if self.not_known else sum(one.records or 0 for one in self.lost),
            "added": [f"{topic}/{partition}" for topic, partition in self.added],
            "records_to_read_again": self.waiting,
            "says": self.sentence(),
        }


def look_at_source(record: Mapping[str, Any], brokers: Brokers) -> SourceStanding | None:
    """Compare a source of a savepoint with its topics; None where it is no Kafka source.

    Args:
        record: The source in the manifest.
        brokers: Who is asked.
    """
    offsets = parse_offsets(record.get("offset"))
    if offsets is None:
        return None
    name = str(record.get("source"))
    kept = record.get(KIND)
    kept = kept if isinstance(kept, Mapping) else {}
    recorded = kept.get("bootstrap")
    recorded = recorded if isinstance(recorded, str) else None
    bootstrap = brokers.bootstrap(recorded)
    try:
        return _look(name, bootstrap, offsets, _topics(kept), brokers.at(recorded))
    except StreambankError as error:
        return SourceStanding(name, bootstrap, offsets, not_known=error.message, hint=error.hint)


def _look(
    name: str,
    bootstrap: str | None,
    offsets: Offsets,
    kept: Mapping[str, Mapping[str, Any]],
    broker: Broker,
) -> SourceStanding:
    topics = broker.topics(offsets)
    lost: list[Lost] = []
    ask: list[Spot] = []
    added: list[Spot] = []
    unidentified = []
    for topic, partitions in offsets.items():
        found, was = topics.get(topic), kept.get(topic, {})
        known = was.get("topic_id")
        if found is None or (known is not None and found.topic_id is not None and known != found.topic_id):
            lost += _all_of(topic, partitions, was, "topic-gone" if found is None else "topic-remade")
            continue
        if known is None or found.topic_id is None:
            unidentified.append(topic)
        ask += [(topic, partition) for partition in found.partitions]
        added += [(topic, partition) for partition in found.partitions if partition not in partitions]
        gone = {one: offset for one, offset in partitions.items() if one not in found.partitions}
        lost += _all_of(topic, gone, was, "partition-gone")
    earliest, latest = broker.offsets(ask, "earliest"), broker.offsets(ask, "latest")
    for spot in ask:
        lost += _of_partition(spot, offsets[spot[0]].get(spot[1]), earliest.get(spot), latest.get(spot))
    return SourceStanding(
        source=name,
        bootstrap=bootstrap,
        offsets=offsets,
        lost=tuple(sorted(lost, key=lambda one: (one.topic, one.partition, one.first))),
        added=tuple(sorted(added)),
        unidentified=tuple(unidentified),
        latest=latest,
    )


def _of_partition(spot: Spot, saved: int | None, earliest: int | None, latest: int | None) -> Iterator[Lost]:
    """Of a partition that is there: what was deleted after the saved offset, or is not there yet."""
    first, end = earliest or 0, latest or 0
    if saved is None:
        if first > 0:
            yield Lost(*spot, 0, first, "added-late")
    elif saved < first:
        yield Lost(*spot, saved, first, "deleted")
    elif saved > end:
        yield Lost(*spot, end, saved, "past-the-end")


def _all_of(topic: str, partitions: Mapping[int, int], was: Mapping[str, Any], why: Why) -> Iterator[Lost]:
    """Everything from the saved offsets on, as far as the savepoint knew then where the topic ended."""
    ends = was.get("partitions")
    for partition, offset in partitions.items():
        one = ends.get(str(partition)) if isinstance(ends, Mapping) else None
        end = one.get("latest") if isinstance(one, Mapping) else None
        yield Lost(topic, partition, offset, end if isinstance(end, int) and end > offset else None, why)


def _topics(kept: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    topics = kept.get("topics")
    if not isinstance(topics, Mapping):
        return {}
    return {str(name): one for name, one in topics.items() if isinstance(one, Mapping)}
