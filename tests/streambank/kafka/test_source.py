"""What a restored query could no longer read, told before anything is started."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.checkpoint.sources import SourceState
from streambank.kafka.broker import TopicRetention
from streambank.kafka.offsets import parse_offsets
from streambank.kafka.recording import KafkaReader, SourceRecorder
from streambank.kafka.source import SourceStanding, look_at_source
from streambank.kafka.topics import topic_pattern
from tests.support.kafka.fake_broker import SERVERS, FakeBroker

OFFSETS = '{"flights":{"0":100,"1":120}}'
STATE = SourceState("0", "initial", OFFSETS, ("sources/0/0",))
READER = KafkaReader.of({"bootstrap": SERVERS, "subscribe": "flights"})


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
    assert "does not record its id" in "".join(found.notes())


def test_what_cannot_be_asked_is_not_known(broker: FakeBroker) -> None:
    record = saved(broker)
    broker.down = True
    found = look(record, broker)
    assert (found.safe, found.lost, found.hint) == (None, (), "Start it.")
    assert "would read next: Kafka is down." in found.sentence()


def grown(broker: FakeBroker, by: int) -> None:
    for spot in broker.latest:
        broker.latest[spot] += by


def test_a_topic_made_anew_before_the_savepoint_is_not_vouched_for(broker: FakeBroker) -> None:
    """The offsets are of the old topic, and the id that the cluster tells is that of the new one."""
    broker.put("flights", (0, 30), (0, 125))
    record = saved(broker)
    assert record["kafka"]["topics"]["flights"]["topic_id"] == broker.known["flights"].topic_id
    grown(broker, 500)
    found = look(record, broker)
    assert (found.safe, {one.why for one in found.lost}) == (False, {"topic-remade"})
    assert (found.lost[0].end, found.lost_records) == (None, None), "where the old one ended nobody knows"


def test_a_topic_that_a_savepoint_before_knew_by_another_id_is_another_one(broker: FakeBroker) -> None:
    before = saved(broker) | {"offset": '{"flights":{"0":90,"1":120}}'}
    for partition in before["kafka"]["topics"]["flights"]["partitions"].values():
        partition["next"] -= 10
    broker.remake("flights")
    record = saved(broker)  # the new topic has grown past the offsets already
    assert look(record, broker).safe is True, "nothing in it tells"
    found = look_at_source(record, broker.brokers(), before)
    assert found is not None
    assert (found.safe, {one.why for one in found.lost}) == (False, {"topic-remade"})
    assert found.lost_records is None


def test_a_query_that_began_anew_in_the_new_topic_is_at_home_there(broker: FakeBroker) -> None:
    before = saved(broker)
    before["kafka"]["topics"]["flights"]["partitions"]["0"]["next"] = 4000
    broker.remake("flights")
    found = look_at_source(saved(broker), broker.brokers(), before)
    assert found is not None
    assert found.safe is True


def test_the_id_of_a_savepoint_before_stands_in_for_one_that_was_not_asked(broker: FakeBroker) -> None:
    before = saved(broker)
    broker.down = True
    record = saved(broker)
    broker.down = False
    found = look_at_source(record, broker.brokers(), before)
    assert found is not None
    assert (found.safe, found.unidentified) == (True, ())
    broker.remake("flights")
    found = look_at_source(record, broker.brokers(), before)
    assert found is not None
    assert found.safe is False


def test_of_a_topic_that_is_gone_the_count_is_the_least(broker: FakeBroker) -> None:
    record = saved(broker)
    del broker.known["flights"]
    found = look(record, broker)
    assert "flights/0 from 100 to 150, at least 50 records: the topic is gone" in found.sentence()
    assert found.to_dict()["lost_records"] == 60
    record["kafka"]["topics"]["flights"]["partitions"]["1"]["latest"] = None
    assert look(record, broker).to_dict()["lost_records"] is None, "0 would read as none"


def test_a_partition_that_goes_while_it_is_asked_about_is_not_known(broker: FakeBroker) -> None:
    offset = '{"flights":{"0":0,"1":0}}'
    record = {"source": "0", "offset": offset, "kafka": {"bootstrap": SERVERS}}
    del broker.earliest["flights", 1], broker.latest["flights", 1]
    found = look(record, broker)
    assert (found.safe, found.transient) == (None, True)
    assert "flights/1" in found.not_known


def by(broker: FakeBroker, **subscribed: str) -> dict[str, Any]:
    recorder = SourceRecorder(broker.brokers(), [KafkaReader.of({"bootstrap": SERVERS, **subscribed})])
    return {"source": "0", "offset": OFFSETS, **recorder.describe(STATE)}


@pytest.mark.parametrize("how", [{"subscribepattern": "fl.*"}, {"subscribe": "flights, flown"}])
def test_topics_that_came_since_are_read_from_their_beginning(
    broker: FakeBroker, how: dict[str, str]
) -> None:
    record = by(broker, **how)
    broker.put("weather", (7, 9))
    assert look(record, broker).added == ()
    broker.put("flown", (0, 9), (0, 3))
    found = look(record, broker)
    assert (found.safe, found.added) == (True, (("flown", 0), ("flown", 1)))
    broker.earliest["flown", 1] = 2
    found = look(record, broker)
    assert [(one.topic, one.partition, one.first, one.end, one.why) for one in found.lost] == [
        ("flown", 1, 0, 2, "added-late")
    ]


def test_a_pattern_that_only_java_can_read_is_said(broker: FakeBroker) -> None:
    record = by(broker, subscribepattern="\\p{Lower}+")
    broker.put("flown", (3, 9))
    found = look(record, broker)
    assert (found.safe, found.added) == (True, ())
    assert "only Java can read this pattern" in "".join(found.notes())


@pytest.mark.parametrize(
    ("pattern", "finds"),
    [
        ("fl.*", True),
        ("fligh", False),
        ("(flights|weather)", True),
        ("(?i)FLIGHTS", True),
        ("flight[a-z&&[^s]]", None),
        ("flight[r[s]]", None),
        ("\\Qflights\\E", None),
        ("\\p{Alpha}+", None),
        ("(?<name>fl).*", None),
        ("[\\[s]", False),
        ("*", None),
    ],
)
def test_which_patterns_of_java_are_read(pattern: str, finds: bool | None) -> None:
    read = topic_pattern(pattern)
    assert (None if read is None else read.fullmatch("flights") is not None) is finds


def test_partitions_that_the_query_does_not_read_are_not_looked_at(broker: FakeBroker) -> None:
    broker.put("flights", (0, 150), (0, 130), (40, 50))
    record = by(broker, assign='{"flights":[0,1]}')
    found = look(record, broker)
    assert (found.safe, found.added) == (True, ())
    assert look(by(broker, subscribe="flights"), broker).safe is False, "it is the assignment that tells"
    assert look(by(broker, assign='"flights" 0'), broker).safe is False


def test_a_compacted_topic_has_not_all_that_came(broker: FakeBroker) -> None:
    record = saved(broker)
    broker.kept["flights"] = TopicRetention("compact", None, None, 86_400_000)
    found = look(record, broker)
    assert (found.safe, found.compacted, found.to_dict()["compacted"]) == (True, ("flights",), ["flights"])
    said = "".join(found.notes())
    assert "only the newest record of each key" in said
    assert "Deletions of keys are removed 24 h after" in said


def test_settings_that_may_not_be_asked_for_refuse_nothing(broker: FakeBroker) -> None:
    record = saved(broker)
    broker.denied = {"retention"}
    found = look(record, broker)
    assert (found.safe, found.compacted) == (True, ())
    assert "whether it compacts it: Not allowed." in "".join(found.notes())


def test_what_somebody_has_to_grant_does_not_come_by_waiting(broker: FakeBroker) -> None:
    record = saved(broker)
    broker.denied = {"topics"}
    assert (look(record, broker).safe, look(record, broker).transient) == (None, False)
    broker.denied, broker.down = set(), True
    assert (look(record, broker).safe, look(record, broker).transient) == (None, True)
    del record["kafka"]["bootstrap"]
    assert look(record, broker).transient is False, "nobody says where it is"


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
    assert KafkaReader.of(facts).reads(["flights"]) is reads
