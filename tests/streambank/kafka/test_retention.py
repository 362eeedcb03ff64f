"""Until when the input after a savepoint can be read again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from streambank.kafka.broker import TopicRetention
from streambank.kafka.offsets import Spot
from streambank.kafka.retention import KafkaReplay, replay_of, shortest
from tests.support.kafka.fake_broker import FakeBroker

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
HOUR_MS = 3_600_000
SOURCE = {"source": "0", "offset": '{"flights":{"0":10,"1":20}}'}
FILES = {"source": "1", "offset": '{"logOffset":4}'}


@pytest.fixture
def broker() -> FakeBroker:
    fake = FakeBroker()
    fake.put("flights", (0, 30), (0, 30))
    fake.kept["flights"] = TopicRetention("delete", 2 * HOUR_MS, None)
    fake.times_ms = {("flights", 0): {10: NOW_MS - HOUR_MS}, ("flights", 1): {20: NOW_MS}}
    return fake


def asked(broker: FakeBroker, source: dict[str, str] | None = None) -> KafkaReplay:
    from streambank.kafka.settings import KafkaConnection

    brokers = broker.brokers(KafkaConnection("kafka:9092"))
    (found,) = replay_of([FILES, source or SOURCE, "of a newer version"], brokers, NOW)
    return found


def test_the_oldest_record_that_comes_next_says_how_long(broker: FakeBroker) -> None:
    found = asked(broker)
    assert (found.state, found.until) == ("until", NOW + timedelta(hours=1))
    assert found.sentence(NOW) == "until 2026-11-22T01:00:00.000Z"
    assert found.sentence(NOW + timedelta(hours=2)) == "may be deleted at any moment"


def test_where_nothing_has_come_since_a_whole_retention_is_left(broker: FakeBroker) -> None:
    broker.latest = {("flights", 0): 10, ("flights", 1): 20}
    assert asked(broker).until == NOW + timedelta(hours=2)


@pytest.mark.parametrize(
    ("kept", "state", "why"),
    [
        (TopicRetention("compact", None, None, 2 * HOUR_MS), "until", "newest record of each key"),
        (
            TopicRetention("compact", None, None, 2 * HOUR_MS),
            "until",
            "deletions go after delete.retention.ms",
        ),
        (TopicRetention("compact", None, None), "not-known", "does not say"),
        (TopicRetention("delete", None, None), "for-ever", "nothing is deleted by age"),
        (TopicRetention("delete", None, 1000), "not-known", "retention.bytes"),
        (TopicRetention("delete", 2 * HOUR_MS, 1000), "until", "may end it sooner"),
        (TopicRetention("compact,delete", 2 * HOUR_MS, None, HOUR_MS), "until", "is compacted"),
    ],
)
def test_what_the_topic_keeps(broker: FakeBroker, kept: TopicRetention, state: str, why: str) -> None:
    broker.kept["flights"] = kept
    found = asked(broker)
    assert found.state == state
    assert why in found.why


@pytest.mark.parametrize(
    ("kept", "hours"),
    [
        (TopicRetention("compact", HOUR_MS, None, 3 * HOUR_MS), 2),
        (TopicRetention("compact,delete", 2 * HOUR_MS, None, 9 * HOUR_MS), 1),
        (TopicRetention("compact,delete", 9 * HOUR_MS, None, 2 * HOUR_MS), 1),
        (TopicRetention("compact,delete", None, None, 2 * HOUR_MS), 1),
        (TopicRetention("compact", None, None, 0), -1),
    ],
)
def test_deletions_of_a_compacted_topic_go_first(
    broker: FakeBroker, kept: TopicRetention, hours: int
) -> None:
    broker.kept["flights"] = kept
    assert asked(broker).until == NOW + timedelta(hours=hours)


def test_a_partition_of_which_only_marks_are_left_has_nothing_that_may_go(broker: FakeBroker) -> None:
    times = broker.times

    def without(records: Mapping[Spot, int]) -> Mapping[Spot, int | None]:
        return {spot: time for spot, time in times(records).items() if spot[1] == 1}

    broker.times = without  # type: ignore[method-assign]
    assert asked(broker).until == NOW + timedelta(hours=2)


def test_settings_that_may_not_be_asked_for_leave_it_unknown(broker: FakeBroker) -> None:
    broker.denied = {"retention"}
    assert (asked(broker).state, asked(broker).why) == ("not-known", "Not allowed.")


def test_what_is_gone_or_not_known_is_said(broker: FakeBroker) -> None:
    broker.earliest["flights", 0] = 11
    assert (asked(broker).state, asked(broker).sentence(NOW)) == ("gone", "gone")
    broker.down = True
    assert (asked(broker).state, asked(broker).why) == ("not-known", "Kafka is down.")


def test_a_record_that_says_no_time_leaves_it_unknown(broker: FakeBroker) -> None:
    broker.times_ms = {}
    assert asked(broker).state == "not-known"


def test_the_source_that_ends_first_counts(broker: FakeBroker) -> None:
    soon, ever = asked(broker), KafkaReplay("1", ("w",), "for-ever", None, "")
    gone = KafkaReplay("2", ("x",), "gone", None, "")
    assert shortest([ever, soon]) is soon
    assert shortest([soon, gone, ever]) is gone
    assert shortest([]) is None
