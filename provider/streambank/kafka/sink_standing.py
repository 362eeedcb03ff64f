"""How many records a query that goes back will write twice into a Kafka sink. Asks, and decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streambank.errors import StreambankError
from streambank.kafka.broker import Broker
from streambank.kafka.connection import Brokers
from streambank.kafka.offsets import Spot
from streambank.kafka.recording import KIND, marks_at

_MOST_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Range:
    """Records that came into a partition after the savepoint's batch.

    Attributes:
        topic: The topic.
        partition: The partition.
        first: The first of them.
        end: The offset after the last one.
    """

    topic: str
    partition: int
    first: int
    end: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.first,
            "to": self.end,
            "records": self.end - self.first,
        }


@dataclass(frozen=True, slots=True)
class KafkaSinkStanding:
    """A Kafka sink of a savepoint as it is now.

    Attributes:
        path: How it is called.
        batch: The savepoint's batch.
        repeated: What came since: the restored query writes it again.
        gone: Topics that are not there any more, or were made anew: what they held is gone.
        counted: How the savepoint knew where its batch ended: `still` (nothing was written meanwhile),
            `by-time`, or None where it did not.
        never_known: Why nobody can know, since the savepoint does not tell; empty where it does.
        not_known: Why it is not known now; empty where it is.
        hint: What would let it be known.
    """

    path: str
    batch: int
    repeated: tuple[Range, ...] = ()
    gone: tuple[str, ...] = ()
    counted: str | None = None
    never_known: str = ""
    not_known: str = ""
    hint: str = ""

    @property
    def records(self) -> int | None:
        """How many records will be there twice, those of other writers to the topic included."""
        if self.never_known or self.not_known:
            return None
        return sum(one.end - one.first for one in self.repeated)

    @property
    def safe(self) -> bool | None:
        """Whether going back leaves the output as if nothing had happened; None where that is not known."""
        return None if self.never_known or self.not_known else not self.repeated and not self.gone

    def sentence(self) -> str:
        """What is wrong, for a person who decides; empty where nothing is."""
        if self.never_known or self.not_known:
            why = (self.never_known or self.not_known).rstrip(".")
            return (
                f"How many records the Kafka sink {self.path} got after batch {self.batch}, and will get "
                f"again, is not known: {why}."
            )
        if self.gone:
            return (
                f"The topic {', '.join(self.gone)} of the Kafka sink {self.path} was deleted"
                f" since the savepoint: what it held up to batch {self.batch} is gone."
            )
        if not self.repeated:
            return ""
        count = f"{self.records} records" if self.records != 1 else "1 record"
        shown = ", ".join(
            f"{one.topic}/{one.partition} from {one.first} to {one.end}"
            for one in self.repeated[:_MOST_SHOWN]
        )
        more = (
            f", and {len(self.repeated) - _MOST_SHOWN} partitions more"
            if len(self.repeated) > _MOST_SHOWN
            else ""
        )
        return (
            f"The Kafka sink {self.path} got {count} after batch {self.batch} ({shown}{more}): they cannot "
            "be taken back, and the query will write them again."
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON, for plans and reports."""
        return {
            "kind": KIND,
            "path": self.path,
            "guarded": False,
            "safe": self.safe,
            "can_roll_back": False,
            "savepoint_batch": self.batch,
            "repeated": [one.to_dict() for one in self.repeated],
            "repeated_records": self.records,
            "counted": self.counted,
            "gone": list(self.gone),
            "says": self.sentence(),
        }


def look_at_kafka_sink(record: Mapping[str, Any], brokers: Brokers) -> KafkaSinkStanding | None:
    """Compare a sink of a savepoint with its topics; None where it is no Kafka sink.

    Args:
        record: The sink in the manifest.
        brokers: Who is asked.
    """
    if record.get("kind") != KIND:
        return None
    path, batch = str(record.get("path")), record.get("batch")
    number = batch if isinstance(batch, int) else -1
    topics = record.get("topics")
    if not isinstance(topics, Mapping) or not topics:
        why = str(record.get("not_asked") or "the savepoint does not name its topics")
        return KafkaSinkStanding(path, number, never_known=why)
    bootstrap = record.get("bootstrap")
    try:
        broker = brokers.at(bootstrap if isinstance(bootstrap, str) else None)
        return _look(path, number, topics, record, broker)
    except StreambankError as error:
        return KafkaSinkStanding(path, number, not_known=error.message, hint=error.hint)


def _look(
    path: str, batch: int, topics: Mapping[str, Any], record: Mapping[str, Any], broker: Broker
) -> KafkaSinkStanding:
    now = broker.topics(topics)
    gone: list[str] = []
    ranges: list[Range] = []
    counted: set[str] = set()
    for name, kept in topics.items():
        found, known = now.get(name), kept.get("topic_id") if isinstance(kept, Mapping) else None
        if found is None or (known is not None and found.topic_id is not None and known != found.topic_id):
            if known is not None:
                gone.append(name)
            continue
        marks = broker.offsets([(name, partition) for partition in found.partitions], "latest")
        saved, how = _saved(name, kept, marks, record, broker)
        if saved is None:
            why = str(record.get("not_asked") or "the savepoint does not hold how far the topic was")
            return KafkaSinkStanding(path, batch, never_known=why)
        counted.add(how)
        ranges += [
            Range(*spot, saved.get(spot, 0), mark)
            for spot, mark in marks.items()
            if mark is not None and mark > saved.get(spot, 0)
        ]
    return KafkaSinkStanding(
        path,
        batch,
        tuple(sorted(ranges, key=lambda one: (one.topic, one.partition))),
        tuple(gone),
        ", ".join(sorted(counted)) or None,
    )


def _saved(
    topic: str, kept: Any, marks: Mapping[Spot, int | None], record: Mapping[str, Any], broker: Broker
) -> tuple[dict[Spot, int] | None, str]:
    """Where each partition was after the savepoint's batch, and how that is known."""
    counted = kept.get("counted") if isinstance(kept, Mapping) else None
    if counted in ("still", "by-time", "missing"):
        watermarks = kept.get("high_watermarks")
        said = watermarks if isinstance(watermarks, Mapping) else {}
        return {(topic, int(one)): mark for one, mark in said.items() if isinstance(mark, int)}, counted
    committed_ms = record.get("committed_ms")
    if not isinstance(committed_ms, int):
        return None, ""
    at = marks_at(broker, marks, committed_ms)
    return {spot: mark for spot, mark in at.items() if mark is not None}, "by-time"
