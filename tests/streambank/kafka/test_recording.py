"""Which cluster each source of a query is asked at, and what is no source of Kafka's at all."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.checkpoint.sources import SourceState
from streambank.declaration.kafka import kafka_sources
from streambank.kafka.recording import KafkaReader
from streambank.kafka.settings import Brokers, KafkaConnection
from streambank.kafka.source import look_at_source
from tests.support.kafka.fake_broker import FakeBroker

OFFSETS = '{"events":{"0":100}}'


class Clusters:
    """Two clusters that both have a topic `events`."""

    def __init__(self) -> None:
        self.by = {name: FakeBroker() for name in ("a:9092", "b:9092")}
        for fake in self.by.values():
            fake.put("events", (0, 150))

    def brokers(self, declared: KafkaConnection | None = None) -> Brokers:
        return Brokers(declared, connect=lambda servers, properties, timeout_s: self.by[servers])


def told(sources: list[dict[str, Any]], *words: str | None) -> dict[str, Any]:
    return {"kafka": {"sources": sources, "streams": list(words), "sink": None}}


def describe(facts: dict[str, Any], name: str, brokers: Brokers, offsets: str = OFFSETS) -> dict[str, Any]:
    state = SourceState(name, "initial", offsets, (f"sources/{name}/0",))
    return {"source": name, "offset": offsets, **kafka_sources(facts, brokers).describe(state)}


def reader(servers: str, position: int | None = None, **subscribe: str) -> dict[str, Any]:
    at = {} if position is None else {"position": position}
    return {"bootstrap": servers, **(subscribe or {"subscribe": "events"}), **at}


def test_two_sources_of_one_topic_name_are_each_asked_at_their_own_servers() -> None:
    clusters = Clusters()
    facts = told([reader("a:9092", 0), reader("b:9092", 1)], "kafka", "kafka")
    records = [describe(facts, name, clusters.brokers()) for name in ("0", "1")]
    assert [one["kafka"]["bootstrap"] for one in records] == ["a:9092", "b:9092"]
    clusters.by["b:9092"].earliest["events", 0] = 140
    standings = [look_at_source(one, clusters.brokers()) for one in records]
    assert [one is not None and one.safe for one in standings] == [True, False]


def test_a_pattern_that_fits_everything_does_not_take_the_others_place() -> None:
    facts = told([reader("a:9092", 0, subscribepattern=".*"), reader("b:9092", 1)], "kafka", "kafka")
    assert describe(facts, "1", Clusters().brokers())["kafka"]["bootstrap"] == "b:9092"


def test_a_file_source_before_it_does_not_shift_a_source_of_kafka() -> None:
    facts = told([reader("b:9092", 1)], "FileSource", "kafka")
    assert describe(facts, "1", Clusters().brokers())["kafka"]["bootstrap"] == "b:9092"


def test_several_clusters_are_each_reached_by_their_own_other_address() -> None:
    clusters = Clusters()
    declared = KafkaConnection("z:9092", {"in-a:9092": "a:9092", "in-b:9092": "b:9092"})
    facts = told([reader("in-a:9092", 0), reader("in-b:9092", 1)], "kafka", "kafka")
    records = [describe(facts, name, clusters.brokers(declared)) for name in ("0", "1")]
    assert [one["kafka"]["bootstrap"] for one in records] == ["a:9092", "b:9092"]
    for one in records:
        standing = look_at_source(one, clusters.brokers(declared))
        assert standing is not None
        assert standing.safe, "what was asked at the savepoint is asked again"
    assert clusters.brokers(declared).bootstrap("other:9092") == "z:9092"


def test_where_the_position_is_not_known_and_several_fit_nobody_is_asked() -> None:
    facts = told([reader("a:9092"), reader("b:9092")])
    found = describe(facts, "0", Clusters().brokers())["kafka"]
    assert (found["bootstrap"], found["asked_at"]) == (None, None)
    assert found["not_asked"] == "It is not known which of a:9092, b:9092 the source reads from."
    assert found["topics"]["events"]["partitions"]["0"]["next"] == 100
    standing = look_at_source({"source": "0", "offset": OFFSETS, "kafka": found}, Clusters().brokers())
    assert standing is not None
    assert standing.safe is None


def test_several_that_fit_on_the_same_servers_are_asked_there() -> None:
    clusters = Clusters()
    facts = told([reader("a:9092"), reader("a:9092", subscribepattern="e.*")])
    found = describe(facts, "0", clusters.brokers())["kafka"]
    assert (found["bootstrap"], found["not_asked"], "subscribe" in found) == ("a:9092", None, False)
    declared = KafkaConnection("b:9092")
    facts = told([reader("a:9092"), reader("c:9092")])
    assert describe(facts, "0", clusters.brokers(declared))["kafka"]["bootstrap"] == "b:9092"


def test_a_position_counts_where_the_topics_have_changed_since_the_batch() -> None:
    facts = told([reader("a:9092", 0, subscribe="other")], "kafka")
    assert describe(facts, "0", Clusters().brokers())["kafka"]["bootstrap"] == "a:9092"


def test_offsets_of_another_connector_that_look_like_kafkas_stop_nothing() -> None:
    down = FakeBroker(down=True).brokers()
    for facts, name in (
        (told([], "eventhubs"), "0"),
        (told([reader("a:9092", 0)], "kafka", "eventhubs"), "1"),
    ):
        record = describe(facts, name, Clusters().brokers())
        assert (record["format"], "kafka" in record) == ("eventhubs", False)
        assert look_at_source(record, down) is None


@pytest.mark.parametrize("facts", [{}, {"kafka": {"sources": [], "sink": None}}, told([], None)])
def test_who_has_not_said_that_there_is_no_kafka_is_not_believed_to(facts: dict[str, Any]) -> None:
    record = describe(facts, "0", FakeBroker().brokers())
    assert "format" not in record
    standing = look_at_source(record, FakeBroker().brokers())
    assert standing is not None
    assert standing.safe is None


def test_a_pattern_that_only_java_can_read_may_be_that_of_any_source() -> None:
    reader = KafkaReader("a:9092", {"subscribepattern": "[a-z&&[^q]]+"})
    assert reader.reads(["flights"]), "Python would read the classes otherwise, and find nothing"
    assert not KafkaReader("a:9092", {"subscribepattern": "flight"}).reads(["flights"])
