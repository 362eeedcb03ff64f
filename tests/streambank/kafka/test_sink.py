"""How many records going back will repeat in a Kafka sink, counted before anything is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streambank.kafka.recording import KafkaSinkCapture
from streambank.kafka.sink import KafkaSinkStanding, look_at_kafka_sink
from tests.support.kafka.fake_broker import SERVERS, FakeBroker

COMMITTED_MS = 1_000_000


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
    assert not capture.keeps_files
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
    assert "got 7 records after batch 7 (delays/0 from 40 to 45, delays/1 from 60 to 62; " in found.sentence()
    assert "including those of other writers and transaction markers" in found.sentence()


def test_records_of_later_batches_are_told_apart_by_the_time_of_the_commit(broker: FakeBroker) -> None:
    broker.times_ms["delays", 0] = {38: COMMITTED_MS - 5003, 39: COMMITTED_MS + 20}
    record = captured(broker, begun=True)
    assert record["topics"]["delays"]["counted"] == "by-time"
    assert record["topics"]["delays"]["high_watermarks"] == {"0": 39, "1": 60}
    assert look(record, broker).records == 1
    assert (
        "got about 1 record after batch 7 (delays/0 from 39 to 40; including those of other"
        in look(record, broker).sentence()
    )


def test_clocks_that_differ_do_not_hide_records_of_later_batches(broker: FakeBroker) -> None:
    """An executor whose clock is behind stamps what it writes before the commit that came first."""
    broker.times_ms["delays", 0] = {38: COMMITTED_MS - 8000, 39: COMMITTED_MS - 10}
    found = look(captured(broker, begun=True), broker)
    assert (found.safe, found.records, found.uncertain) == (False, 0, 1)
    assert "got about 0 records after batch 7 (up to 1 more, as clocks differ; " in found.sentence()
    broker.times_ms["delays", 1] = {50: COMMITTED_MS - 4000, 58: COMMITTED_MS + 1}
    told = look(captured(broker, begun=True), broker).to_dict()
    assert (told["repeated_records"], told["uncertain_records"]) == (2, 1 + 8)


def test_a_savepoint_of_before_the_margin_is_counted_with_it(broker: FakeBroker) -> None:
    broker.times_ms["delays", 0] = {37: COMMITTED_MS - 10}
    record = captured(broker, begun=True)
    del record["topics"]["delays"]["margin_ms"], record["topics"]["delays"]["low_watermarks"]
    assert (look(record, broker).records, look(record, broker).uncertain) == (0, 3)
    record["committed_ms"] = None
    assert look(record, broker).safe is True, "nobody can say more"


def test_without_later_records_the_time_changes_nothing(broker: FakeBroker) -> None:
    broker.times_ms["delays", 0] = {39: COMMITTED_MS - 5000}
    assert look(captured(broker, begun=True), broker).safe is True


@pytest.mark.parametrize("down", [True, False])
def test_a_topic_that_neither_savepoint_nor_cluster_knows_is_not_taken_for_safe(
    broker: FakeBroker, down: bool
) -> None:
    """Kafka was away, and the topic was deleted since; or it is another cluster that is asked."""
    kept = broker.known.pop("delays")
    broker.down = down
    record = captured(broker)
    broker.down = False
    found = look(record, broker)
    assert (found.safe, found.records) == (None, None)
    assert "there is no topic delays at kafka:9092" in found.sentence()
    assert "`servers`" in found.hint
    broker.known["delays"] = kept
    assert look(record, broker).records == (0 if down else 100)


def test_a_topic_that_was_there_and_has_no_id_is_gone(broker: FakeBroker) -> None:
    broker.known["delays"] = replace(broker.known["delays"], topic_id=None)
    record = captured(broker)
    del broker.known["delays"]
    assert look(record, broker).gone == ("delays",)


def test_what_was_a_file_sink_and_was_written_as_kafkas_is_not_taken_for_one() -> None:
    """Runners before took every sink with "kafka" in its description for one, and knew no servers."""
    broker = FakeBroker()
    capture = KafkaSinkCapture(
        broker.brokers(), None, None, committed_ms=lambda batch: 5, begun=lambda batch: False
    )
    found = look(dict(capture.capture(7).record), broker)
    assert (found.safe, found.never_known) == (None, "")
    assert "the rows of such a sink would be lost" in found.sentence()


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
    assert "will get again: Kafka is down." in found.sentence()


def test_rows_that_name_their_topics_are_not_counted(broker: FakeBroker) -> None:
    found = look(captured(broker, topic=None), broker)
    assert found.never_known == "Each row names its own topic."


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
