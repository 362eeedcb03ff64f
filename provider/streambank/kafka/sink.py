"""How many records a query that goes back will write twice into a Kafka sink. Asks, and decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from streambank.core.errors import StreambankError
from streambank.core.shape import JsonName, encode
from streambank.kafka.broker import Broker
from streambank.kafka.offsets import Spot
from streambank.kafka.recording import KIND, MARGIN_MS, marks_at, sink_path
from streambank.kafka.settings import Brokers

_MOST_SHOWN = 4
_SEEN = ("still", "running", "by-time")
"""How topics are counted that were there when the savepoint was taken."""
_OTHER_SERVERS = (
    "Check that these are the servers that the query writes to. Name others with --kafka, as `bootstrap` in "
    "the job's [kafka] table, or as `servers` if the query uses several clusters."
)
_NO_KAFKA = (
    "the savepoint names neither servers nor topic; earlier versions wrote this for a file sink if its path "
    'contains "kafka", and the rows of such a sink would be lost'
)
_NO_KAFKA_HINT = (
    "Find out what the query writes to. If it is a file sink, restore a savepoint that this version took."
)


@dataclass(frozen=True, slots=True)
class Range:
    """Records that came into a partition after the savepoint's batch."""

    topic: str
    partition: int
    first: Annotated[int, JsonName("from")]
    end: Annotated[int, JsonName("to")]

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"records": self.end - self.first}


@dataclass(frozen=True, slots=True)
class KafkaSinkStanding:
    """A Kafka sink of a savepoint as it is now.

    Attributes:
        repeated: What came since: the restored query writes it again.
        uncertain: How many more there may be: records that came so shortly before the batch was committed
            that, as clocks differ, they may be of a later one.
        gone: Topics that are not there any more, or were made again: what they held is gone.
        counted: How the savepoint knew where its batch ended: `still` (nothing was written meanwhile),
            `by-time` (about), `missing` (there was no such topic), or None where it did not.
        never_known: Why nobody can know, since the savepoint does not tell; empty where it does.
        transient: Whether asking again may tell what is not known now.
    """

    path: str
    batch: int
    repeated: tuple[Range, ...] = ()
    uncertain: int = 0
    gone: tuple[str, ...] = ()
    counted: str | None = None
    never_known: str = ""
    not_known: str = ""
    hint: str = ""
    transient: bool = False

    @property
    def records(self) -> int | None:
        """How many offsets came since, other writers' and marks of transactions included."""
        if self.never_known or self.not_known:
            return None
        return sum(one.end - one.first for one in self.repeated)

    @property
    def safe(self) -> bool | None:
        """Whether going back leaves the output as if nothing had happened; None where that is not known."""
        if self.never_known or self.not_known:
            return None
        return not (self.repeated or self.gone or self.uncertain)

    def sentence(self) -> str:
        """What is wrong, for a person who decides; empty where nothing is."""
        if self.never_known or self.not_known:
            why = (self.never_known or self.not_known).rstrip(".")
            return (
                f"It is not known how many records the Kafka sink {self.path} got after batch {self.batch} "
                f"and will get again: {why}."
            )
        if self.gone:
            return (
                f"The topic {', '.join(self.gone)} of the Kafka sink {self.path} was deleted"
                f" since the savepoint: what it held up to batch {self.batch} is gone."
            )
        if not self.repeated and not self.uncertain:
            return ""
        shown = [f"{one.topic}/{one.partition} from {one.first} to {one.end}" for one in self.repeated]
        if len(shown) > _MOST_SHOWN:
            shown[_MOST_SHOWN:] = [f"and {len(shown) - _MOST_SHOWN} more partitions"]
        about = "about " if self.counted is not None and "by-time" in self.counted else ""
        notes = [", ".join(shown)] if shown else []
        if self.uncertain:
            notes.append(f"up to {self.uncertain} more, as clocks differ")
        notes.append("including those of other writers and transaction markers")
        return (
            f"The Kafka sink {self.path} got {about}{_records(self.records or 0)} after batch {self.batch} "
            f"({'; '.join(notes)}): they cannot be rolled back, and the query will write its own records "
            "again."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "path": self.path,
            "guarded": False,
            "safe": self.safe,
            "can_roll_back": False,
            "savepoint_batch": self.batch,
            "repeated": [one.to_dict() for one in self.repeated],
            "repeated_records": self.records,
            "uncertain_records": None if self.records is None else self.uncertain,
            "counted": self.counted,
            "gone": list(self.gone),
            "says": self.sentence(),
        }


def look_at_kafka_sink(record: Mapping[str, Any], brokers: Brokers) -> KafkaSinkStanding | None:
    """Compare a sink of a savepoint with its topics; None where it is no Kafka sink."""
    if record.get("kind") != KIND:
        return None
    path, batch = str(record.get("path")), record.get("batch")
    number = batch if isinstance(batch, int) else -1
    topics = record.get("topics")
    if path == sink_path(None, None) and not topics:
        return KafkaSinkStanding(path, number, not_known=_NO_KAFKA, hint=_NO_KAFKA_HINT)
    if not isinstance(topics, Mapping) or not topics:
        why = str(record.get("not_asked") or "the savepoint does not name its topics")
        return KafkaSinkStanding(path, number, never_known=why)
    recorded = record.get("bootstrap")
    bootstrap = recorded if isinstance(recorded, str) else None
    try:
        return _look(path, number, topics, record, brokers.at(bootstrap), brokers.bootstrap(bootstrap))
    except StreambankError as error:
        again = brokers.bootstrap(bootstrap) is not None and error.code == "kafka-not-reachable"
        return KafkaSinkStanding(path, number, not_known=error.message, hint=error.hint, transient=again)


def _look(
    path: str,
    batch: int,
    topics: Mapping[str, Any],
    record: Mapping[str, Any],
    broker: Broker,
    servers: str | None,
) -> KafkaSinkStanding:
    now = broker.topics(topics)
    gone: list[str] = []
    ranges: list[Range] = []
    counted: set[str] = set()
    uncertain = 0
    for name, kept in topics.items():
        fields = kept if isinstance(kept, Mapping) else {}
        found, known = now.get(name), fields.get("topic_id")
        if found is None and known is None and fields.get("counted") not in _SEEN:
            why = f"there is no topic {name} at {servers}, and the savepoint does not say that there was one"
            return KafkaSinkStanding(path, batch, not_known=why, hint=_OTHER_SERVERS)
        if found is None or (known is not None and found.topic_id is not None and known != found.topic_id):
            gone.append(name)
            continue
        marks = broker.offsets([(name, partition) for partition in found.partitions], "latest")
        saved, low, how = _saved(name, kept, marks, record, broker)
        if saved is None:
            why = str(record.get("not_asked") or "the savepoint does not record how far the topic was")
            return KafkaSinkStanding(path, batch, never_known=why)
        counted.add(how)
        for spot, mark in marks.items():
            first, end = saved.get(spot, 0), mark or 0
            if end > first:
                ranges.append(Range(*spot, first, end))
            uncertain += max(0, min(first, end) - low.get(spot, first))
    return KafkaSinkStanding(
        path,
        batch,
        repeated=tuple(sorted(ranges, key=lambda one: (one.topic, one.partition))),
        uncertain=uncertain,
        gone=tuple(gone),
        counted=", ".join(sorted(counted)) or None,
    )


def _saved(
    topic: str, kept: Any, marks: Mapping[Spot, int | None], record: Mapping[str, Any], broker: Broker
) -> tuple[dict[Spot, int] | None, dict[Spot, int], str]:
    """Where each partition was after the savepoint's batch, where it was for sure, and how that is known."""
    fields = kept if isinstance(kept, Mapping) else {}
    counted, committed_ms = fields.get("counted"), record.get("committed_ms")
    saved = _marks(topic, fields.get("high_watermarks"))
    if counted in ("still", "missing"):
        return saved, saved, counted
    if counted == "by-time" and "low_watermarks" in fields:
        return saved, _marks(topic, fields["low_watermarks"]), counted
    if not isinstance(committed_ms, int):
        return (saved, saved, counted) if counted == "by-time" else (None, {}, "")
    # Kafka was not asked at the savepoint, or before there was a margin.
    low = _known(marks_at(broker, marks, committed_ms - MARGIN_MS))
    return saved if counted == "by-time" else _known(marks_at(broker, marks, committed_ms)), low, "by-time"


def _marks(topic: str, said: Any) -> dict[Spot, int]:
    marks = said if isinstance(said, Mapping) else {}
    return {(topic, int(one)): mark for one, mark in marks.items() if isinstance(mark, int)}


def _known(marks: Mapping[Spot, int | None]) -> dict[Spot, int]:
    return {spot: mark for spot, mark in marks.items() if mark is not None}


def _records(number: int) -> str:
    return f"{number} record" + ("" if number == 1 else "s")
