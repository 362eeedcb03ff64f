"""Until when a savepoint's input can be read again: how long its topics keep the records that come next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from streambank.errors import StreambankError
from streambank.kafka.broker import Broker, Retention
from streambank.kafka.connection import Brokers
from streambank.kafka.offsets import spots
from streambank.kafka.source_standing import SourceStanding, look_at_source
from streambank.times import from_epoch_ms, to_json_time

State = Literal["until", "for-ever", "gone", "not-known"]


@dataclass(frozen=True, slots=True)
class Replay:
    """How long a Kafka source of a savepoint can be read again.

    Attributes:
        source: Its name in the offset log.
        topics: Its topics.
        state: `until` a time, `for-ever`, `gone` already, or `not-known`.
        until: For `until`: no record that comes next goes away before this; Kafka deletes whole segments, so
            it may be later. A time in the past: at any moment.
        why: What that rests on.
    """

    source: str
    topics: tuple[str, ...]
    state: State
    until: datetime | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "source": self.source,
            "topics": list(self.topics),
            "state": self.state,
            "until": None if self.until is None else to_json_time(self.until),
            "why": self.why,
        }

    def sentence(self, now: datetime) -> str:
        """In a few words, for a table."""
        if self.until is not None:
            return "may go at any moment" if self.until <= now else f"until {to_json_time(self.until)}"
        return {"for-ever": "for ever", "gone": "gone", "not-known": "not known", "until": "not known"}[
            self.state
        ]


def replay_of(sources: Sequence[Any], brokers: Brokers, now: datetime) -> Iterator[Replay]:
    """How long each Kafka source of a savepoint can be read again; nothing for other sources.

    Args:
        sources: `sources` of the manifest.
        brokers: Who is asked; what they do not answer is `not-known`.
        now: The time.
    """
    for record in sources:
        if not isinstance(record, Mapping):
            continue
        standing = look_at_source(record, brokers)
        if standing is not None:
            yield _of(standing, record, brokers, now)


def shortest(replays: list[Replay]) -> Replay | None:
    """The one that ends first, which is how long the savepoint as a whole can be read again; None of none."""
    order: Mapping[State, int] = {"gone": 0, "not-known": 1, "until": 2, "for-ever": 3}
    return min(
        replays,
        key=lambda one: (order[one.state], one.until.timestamp() if one.until is not None else 0.0),
        default=None,
    )


def _of(standing: SourceStanding, record: Mapping[str, Any], brokers: Brokers, now: datetime) -> Replay:
    topics = tuple(sorted(standing.offsets))
    if standing.not_known:
        return Replay(standing.source, topics, "not-known", None, standing.not_known)
    if standing.lost:
        return Replay(standing.source, topics, "gone", None, standing.sentence())
    try:
        broker = brokers.at(standing.bootstrap)
        state, until, why = _kept(standing, broker, broker.retention(topics), now)
    except StreambankError as error:
        return Replay(standing.source, topics, "not-known", None, error.message)
    return Replay(standing.source, topics, state, until, why)


def _kept(
    standing: SourceStanding, broker: Broker, retention: Mapping[str, Retention], now: datetime
) -> tuple[State, datetime | None, str]:
    limited = {topic: one for topic, one in retention.items() if one.deletes and one.ms is not None}
    sized = sorted(topic for topic, one in retention.items() if one.deletes and one.max_bytes is not None)
    why = [f"{topic} keeps no more than retention.bytes, which may end it sooner" for topic in sized]
    compacted = sorted(topic for topic, one in retention.items() if not one.deletes)
    why += [f"{topic} is compacted: the newest record of each key stays" for topic in compacted]
    if set(retention) != set(standing.offsets):
        return "not-known", None, "Kafka does not say how long it keeps the topic."
    if not limited:
        return ("not-known" if sized else "for-ever"), None, "; ".join(why or ["nothing is deleted by age"])
    latest = standing.latest or {}
    waiting = {
        spot: offset
        for spot, offset in spots(standing.offsets).items()
        if spot[0] in limited and offset < (latest.get(spot) or 0)
    }
    times = broker.times(waiting)
    if any(time is None for time in times.values()):
        return "not-known", None, "Kafka did not say in time when the next records were written."
    ends = [
        written + timedelta(milliseconds=limited[topic].ms or 0)
        for (topic, _), time in times.items()
        if time is not None and (written := from_epoch_ms(time)) is not None
    ]
    if not ends:
        why.insert(0, "nothing has come since the savepoint")
        ends = [now + timedelta(milliseconds=min(one.ms or 0 for one in limited.values()))]
    else:
        why.insert(0, "retention.ms, counted from the next records' own time")
    return "until", min(ends), "; ".join(why)
