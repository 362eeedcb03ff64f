"""How many records going back will repeat in a Kafka sink, counted before anything is done."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.kafka.recording import KafkaSinkCapture
from streambank.kafka.sink_standing import KafkaSinkStanding, look_at_kafka_sink
from tests.support.brokers import SERVERS, FakeBroker

COMMITTED_MS = 5000


@pytest.fixture
def broker() -> FakeBroker:
    fake = FakeBroker()
    fake.put("delays", (0, 40), (0, 60))
    return fake


def captured(
    broker: FakeBroker, *, begun: bool = False, ms: int | None = COMMITTED_MS, topic: str | None = "delays"
) -> dict[str, Any]:
    capture = KafkaSinkCapture(
        broker.brokers(), SERVERS, topic, committed_ms=lambda batch: ms, begun=lambda batch: begun
    )
    assert not capture.guarded
    return dict(capture.capture(7).record)


def look(record: dict[str, Any], broker: FakeBroker) -> KafkaSinkStanding:
    found = look_at_kafka_sink(record, broker.brokers())
    assert found is not None
    return found


def test_another_sink_is_none_of_kafkas() -> None:
    assert look_at_kafka_sink({"kind": "file", "path": "/out"}, FakeBroker().brokers()) is None


def test_what_came_since_will_be_there_twice(broker: FakeBroker) -> None:
    record = captured(broker)
    assert record["path"] == "kafka://kafka:9092/delays"
    assert record["topics"]["delays"]["high_watermarks"] == {"0": 40, "1": 60}
    assert look(record, broker).safe is True
    broker.latest["delays", 0] += 5
    broker.latest["delays", 1] += 2
    found = look(record, broker)
    assert (found.safe, found.records, found.counted) == (False, 7, "still")
    assert [one.to_dict()["records"] for one in found.repeated] == [5, 2]
    assert "got 7 records after batch 7 (delays/0 from 40 to 45, delays/1 from 60 to 62)" in found.sentence()


def test_records_of_later_batches_are_told_apart_by_the_time_of_the_commit(broker: FakeBroker) -> None:
    broker.times_ms["delays", 0] = {38: COMMITTED_MS - 3, 39: COMMITTED_MS + 20}
    record = captured(broker, begun=True)
    assert record["topics"]["delays"]["counted"] == "by-time"
    assert record["topics"]["delays"]["high_watermarks"] == {"0": 39, "1": 60}
    assert look(record, broker).records == 1


def test_where_kafka_was_down_at_the_savepoint_the_time_of_the_commit_still_tells(broker: FakeBroker) -> None:
    broker.down = True
    record = captured(broker)
    assert record["not_asked"] == "Kafka is down."
    broker.down = False
    broker.times_ms["delays", 1] = {55: COMMITTED_MS + 1}
    found = look(record, broker)
    assert (found.records, found.counted) == (5, "by-time")


def test_where_nothing_tells_it_is_said(broker: FakeBroker) -> None:
    broker.down = True
    record = captured(broker, ms=None)
    broker.down = False
    found = look(record, broker)
    assert (found.safe, found.records) == (None, None)
    assert "is not known: Kafka is down." in found.sentence()


def test_rows_that_name_their_topics_are_not_counted(broker: FakeBroker) -> None:
    found = look(captured(broker, topic=None), broker)
    assert found.never_known == "Rows name their topics themselves."


def test_a_topic_made_anew_has_lost_what_it_held(broker: FakeBroker) -> None:
    record = captured(broker)
    broker.remake("delays")
    found = look(record, broker)
    assert (found.safe, found.gone) == (False, ("delays",))
    assert "what it held up to batch 7 is gone" in found.sentence()


def test_partitions_that_were_added_count_from_their_beginning(broker: FakeBroker) -> None:
    record = captured(broker)
    broker.put("delays", (0, 40), (0, 60), (0, 3), topic_id=broker.known["delays"].topic_id or "")
    assert look(record, broker).records == 3


def test_what_cannot_be_asked_now_is_not_known(broker: FakeBroker) -> None:
    record = captured(broker)
    broker.down = True
    found = look(record, broker)
    assert (found.safe, found.not_known, found.never_known) == (None, "Kafka is down.", "")
