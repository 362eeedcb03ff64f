"""What a restored query could no longer read, told before anything is started."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.checkpoint.sources import SourceState
from streambank.kafka.offsets import parse_offsets
from streambank.kafka.recording import Reader, SourceRecorder
from streambank.kafka.source_standing import SourceStanding, look_at_source
from tests.support.brokers import SERVERS, FakeBroker

OFFSETS = '{"flights":{"0":100,"1":120}}'
STATE = SourceState("0", "initial", OFFSETS, ("sources/0/0",))
READER = Reader.of({"bootstrap": SERVERS, "subscribe": "flights"})


@pytest.fixture
def broker() -> FakeBroker:
    fake = FakeBroker()
    fake.put("flights", (0, 150), (0, 130))
    return fake


def saved(broker: FakeBroker) -> dict[str, Any]:
    """The source in the manifest of a savepoint that is taken now."""
    recorder = SourceRecorder(broker.brokers(), [READER])
    return {"source": "0", "offset": OFFSETS, **recorder.describe(STATE)}


def look(record: dict[str, Any], broker: FakeBroker) -> SourceStanding:
    found = look_at_source(record, broker.brokers())
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [None, "17", '{"logOffset":3}', "{}", '{"a":{}}', '{"a":{"x":1}}', '{"a":{"0":true}}', "no json"],
)
def test_only_offsets_by_topic_and_partition_are_kafkas(text: str | None) -> None:
    assert parse_offsets(text) is None
    assert look_at_source({"source": "0", "offset": text}, FakeBroker().brokers()) is None


def test_a_savepoint_keeps_offsets_topic_ids_and_ends(broker: FakeBroker) -> None:
    told = saved(broker)["kafka"]
    assert (told["bootstrap"], told["subscribe"], told["not_asked"]) == (SERVERS, "flights", None)
    assert told["topics"] == {
        "flights": {
            "topic_id": broker.known["flights"].topic_id,
            "partitions": {
                "0": {"next": 100, "earliest": 0, "latest": 150},
                "1": {"next": 120, "earliest": 0, "latest": 130},
            },
        }
    }


def test_a_take_goes_on_where_kafka_is_down_and_keeps_why(broker: FakeBroker) -> None:
    broker.down = True
    told = saved(broker)["kafka"]
    assert (told["asked_at"], told["not_asked"]) == (None, "Kafka is down.")
    assert told["topics"]["flights"] == {
        "topic_id": None,
        "partitions": {
            "0": {"next": 100, "earliest": None, "latest": None},
            "1": {"next": 120, "earliest": None, "latest": None},
        },
    }


def test_what_is_all_there_is_safe(broker: FakeBroker) -> None:
    found = look(saved(broker), broker)
    assert (found.safe, found.sentence(), found.waiting) == (True, "", 60)
    assert list(found.notes()) == []


@pytest.mark.parametrize("first", [100, 0])
def test_offsets_at_the_very_edge_are_there(broker: FakeBroker, first: int) -> None:
    record = saved(broker)
    broker.put(
        "flights", (first, 100 + first // 100), (120, 120), topic_id=broker.known["flights"].topic_id or ""
    )
    assert look(record, broker).safe is True


def test_aged_out_records_are_told_by_range(broker: FakeBroker) -> None:
    record = saved(broker)
    broker.earliest["flights", 0] = 140
    found = look(record, broker)
    assert found.safe is False
    assert [one.to_dict() for one in found.lost] == [
        {"topic": "flights", "partition": 0, "from": 100, "to": 140, "records": 40, "why": "deleted"}
    ]
    assert "flights/0 from 100 to 140, 40 records: deleted" in found.sentence()


def test_an_offset_beyond_the_end_is_told(broker: FakeBroker) -> None:
    record = saved(broker)
    broker.latest["flights", 1] = 110
    assert [(one.first, one.end, one.why) for one in look(record, broker).lost] == [
        (110, 120, "past-the-end")
    ]


def test_a_topic_made_anew_is_another_one_though_its_offsets_fit(broker: FakeBroker) -> None:
    record = saved(broker)
    broker.remake("flights")
    found = look(record, broker)
    assert {one.why for one in found.lost} == {"topic-remade"}
    assert [(one.first, one.end) for one in found.lost] == [(100, 150), (120, 130)], "as far as was known"
    record["kafka"]["topics"]["flights"]["topic_id"] = broker.known["flights"].topic_id
    assert look(record, broker).safe is True, "it was the id that told"


def test_a_topic_that_is_gone_is_told(broker: FakeBroker) -> None:
    record = saved(broker)
    del broker.known["flights"]
    assert {one.why for one in look(record, broker).lost} == {"topic-gone"}


def test_partitions_that_were_added_are_read_from_their_beginning(broker: FakeBroker) -> None:
    record = saved(broker)
    broker.put("flights", (0, 150), (0, 130), (0, 9), topic_id=broker.known["flights"].topic_id or "")
    found = look(record, broker)
    assert (found.safe, found.added) == (True, (("flights", 2),))
    assert "read from their beginning" in "".join(found.notes())
    broker.earliest["flights", 2] = 4
    assert [(one.first, one.end, one.why) for one in look(record, broker).lost] == [(0, 4, "added-late")]


def test_a_partition_that_is_gone_is_told(broker: FakeBroker) -> None:
    record = saved(broker)
    broker.put("flights", (0, 150), topic_id=broker.known["flights"].topic_id or "")
    assert [(one.partition, one.why) for one in look(record, broker).lost] == [(1, "partition-gone")]


def test_without_an_id_it_is_said_that_nobody_knows_whether_it_is_the_same(broker: FakeBroker) -> None:
    broker.down = True
    record = saved(broker)
    broker.down = False
    found = look(record, broker)
    assert found.safe is True
    assert "does not hold its id" in "".join(found.notes())


def test_what_cannot_be_asked_is_not_known(broker: FakeBroker) -> None:
    record = saved(broker)
    broker.down = True
    found = look(record, broker)
    assert (found.safe, found.lost, found.hint) == (None, (), "Start it.")
    assert "is not known: Kafka is down." in found.sentence()


@pytest.mark.parametrize(
    ("facts", "reads"),
    [
        ({"subscribe": "flights, weather"}, True),
        ({"subscribe": "weather"}, False),
        ({"subscribepattern": "fl.*"}, True),
        ({"subscribepattern": "w.*"}, False),
        ({"subscribepattern": "\\p{Alpha}+"}, True),
        ({"assign": '{"flights":[0,1]}'}, True),
        ({"assign": '{"weather":[0]}'}, False),
        ({}, True),
    ],
)
def test_a_source_is_known_by_the_topics_that_it_subscribed_to(facts: dict[str, str], reads: bool) -> None:
    assert Reader.of(facts).reads(["flights"]) is reads
