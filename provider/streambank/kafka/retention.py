"""Until when a savepoint's input can be read again: how long its topics keep the records that come next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from streambank.core.errors import StreambankError
from streambank.core.shape import JsonObject
from streambank.core.units import from_epoch_ms, to_json_time
from streambank.kafka.broker import Broker, TopicRetention
from streambank.kafka.offsets import spots
from streambank.kafka.recording import KIND, Before
from streambank.kafka.settings import Brokers
from streambank.kafka.source import SourceStanding, look_at_source

State = Literal["until", "for-ever", "gone", "not-known"]


@dataclass(frozen=True, slots=True)
class KafkaReplay(JsonObject):
    """How long a Kafka source of a savepoint can be read again.

    Attributes:
        state: `until` a time, `for-ever`, `gone` already, or `not-known`.
        until: For `until`: no record that comes next goes away before this; Kafka deletes whole segments, so
            it may be later. Of a compacted topic: no deletion of a key goes away before this, while records
            that newer ones of their keys replace may go at once. A time in the past: at any moment.
    """

    source: str
    topics: tuple[str, ...]
    state: State
    until: datetime | None
    why: str

    def sentence(self, now: datetime) -> str:
        if self.until is None:
            return {"for-ever": "for ever", "gone": "gone"}.get(self.state, "not known")
        return "may be deleted at any moment" if self.until <= now else f"until {to_json_time(self.until)}"


def replay_of(
    sources: Sequence[Any], brokers: Brokers, now: datetime, before: Before | None = None
) -> Iterator[KafkaReplay]:
    """How long each Kafka source of a savepoint can be read again; what no cluster answers is `not-known`."""
    for record in sources:
        if not isinstance(record, Mapping):
            continue
        standing = look_at_source(record, brokers, (before or {}).get(str(record.get("source"))))
        if standing is not None:
            yield replay_of_standing(standing, record, brokers, now)


def replay_of_standing(
    standing: SourceStanding, record: Mapping[str, Any], brokers: Brokers, now: datetime
) -> KafkaReplay:
    """How long a Kafka source that was looked at can be read again; `not-known` without an answer."""
    topics = tuple(sorted(standing.offsets))
    if standing.not_known:
        return KafkaReplay(standing.source, topics, "not-known", None, standing.not_known)
    if standing.lost:
        return KafkaReplay(standing.source, topics, "gone", None, standing.sentence())
    if standing.kept is None:
        return KafkaReplay(standing.source, topics, "not-known", None, standing.kept_not_known)
    kept = record.get(KIND)
    recorded = kept.get("bootstrap") if isinstance(kept, Mapping) else None
    try:
        broker = brokers.at(recorded if isinstance(recorded, str) else None)
        state, until, why = _kept(standing, broker, standing.kept, now)
    except StreambankError as error:
        return KafkaReplay(standing.source, topics, "not-known", None, error.message)
    return KafkaReplay(standing.source, topics, state, until, why)


def shortest(replays: list[KafkaReplay]) -> KafkaReplay | None:
    """The one that ends first, which is how long the savepoint as a whole can be read again; None of none."""
    order: Mapping[State, int] = {"gone": 0, "not-known": 1, "until": 2, "for-ever": 3}
    return min(
        replays,
        key=lambda one: (order[one.state], one.until.timestamp() if one.until is not None else 0.0),
        default=None,
    )


def _kept(
    standing: SourceStanding, broker: Broker, retention: Mapping[str, TopicRetention], now: datetime
) -> tuple[State, datetime | None, str]:
    retention = {topic: one for topic, one in retention.items() if topic in standing.offsets}
    limits = {topic: ms for topic, one in retention.items() if (ms := _limit_ms(one)) is not None}
    sized = sorted(topic for topic, one in retention.items() if one.deletes and one.max_bytes is not None)
    untold = [topic for topic, one in retention.items() if one.compacts and one.tombstones_ms is None]
    why = [f"{topic} keeps no more than retention.bytes, which may end it sooner" for topic in sized]
    why += [
        f"{topic} is compacted: the newest record of each key stays, older ones may be gone, and deletions "
        "go after delete.retention.ms"
        for topic in standing.compacted
    ]
    if set(retention) != set(standing.offsets) or untold:
        return "not-known", None, "Kafka does not say how long it keeps the topic."
    if not limits:
        return ("not-known" if sized else "for-ever"), None, "; ".join(why or ["nothing is deleted by age"])
    latest = standing.latest or {}
    waiting = {
        spot: offset
        for spot, offset in spots(standing.offsets).items()
        if spot[0] in limits and offset < (latest.get(spot) or 0)
    }
    times = broker.times(waiting)
    if any(time is None for time in times.values()):
        return "not-known", None, "Kafka did not say in time when the next records were written."
    ends = [
        written + timedelta(milliseconds=limits[topic])
        for (topic, _), time in times.items()
        if time is not None and (written := from_epoch_ms(time)) is not None
    ]
    if not ends:
        why.insert(0, "no record has come since the savepoint")
        ends = [now + timedelta(milliseconds=min(limits.values()))]
    else:
        setting = (
            "retention.ms" if any(retention[limit].deletes for limit in limits) else "delete.retention.ms"
        )
        why.insert(0, f"{setting}, counted from the next records' own time")
    return "until", min(ends), "; ".join(why)


def _limit_ms(kept: TopicRetention) -> int | None:
    """How long a record that comes next stays at least, whatever it says; None for no limit of time."""
    by_age = kept.ms if kept.deletes else None
    deletions = kept.tombstones_ms if kept.compacts else None
    return min((ms for ms in (by_age, deletions) if ms is not None), default=None)
