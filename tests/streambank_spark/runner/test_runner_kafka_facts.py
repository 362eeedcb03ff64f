"""What a driver writes down of a query's Kafka: by the classes of Spark's connector, and by position."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types

from streambank_spark.private import jvm
from streambank_spark.runner.runner import _kafka

TABLE = "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable"


class Part:
    """A sink or a table, as far as it is asked."""

    def __init__(self, name: str) -> None:
        self.name = name

    def getClass(self) -> Part:
        return self

    def getName(self) -> str:
        return self.name


class Leaf:
    """A leaf of a plan: one of the second version has a table and options, one of the first has neither."""

    def __init__(self, word: str | None, table: str | None = None, **options: str) -> None:
        self.word, self.table_class, self.options = word, table, options

    def isStreaming(self) -> bool:
        return True

    def equals(self, other: Leaf) -> bool:
        return self is other

    def sourceName(self) -> str:
        if self.word is None:
            raise Py4JError("no such method")
        return self.word

    def table(self) -> Part:
        if self.table_class is None:
            raise Py4JError("no such method")
        return Part(self.table_class)

    def extraOptions(self) -> Leaf:
        if self.table_class is None:
            raise Py4JError("no such method")
        return self

    def get(self, option: str) -> str | None:
        return self.options.get(option.replace(".", "_").lower())


class Static(Leaf):
    def isStreaming(self) -> bool:
        return False


class Frame:
    def __init__(self, *leaves: Leaf) -> None:
        self.leaves = leaves
        self._jdf = self

    def queryExecution(self) -> Frame:
        return self

    analyzed = collectLeaves = queryExecution

    def size(self) -> int:
        return len(self.leaves)

    def apply(self, number: int) -> Leaf:
        return self.leaves[number]


class Query:
    def __init__(self, sink: str) -> None:
        self._jsq, self.of = self, sink

    def streamingQuery(self) -> Query:
        return self

    def sink(self) -> Part:
        return Part(self.of)


@pytest.mark.parametrize(
    ("name", "kafkas"),
    [
        (TABLE, True),
        ("org.apache.spark.sql.kafka010.KafkaSink", True),
        ("org.apache.spark.sql.execution.streaming.sinks.FileStreamSink", False),
        ("com.example.kafka.OtherSink", False),
    ],
)
def test_a_sink_is_kafkas_by_its_class_and_never_by_a_path(name: str, kafkas: bool) -> None:
    query: Any = Query(name)
    assert jvm.is_kafka_sink(query) is kafkas
    assert _kafka({"sink": {"topic": "out"}}, kafkas)["sink"] == ({"topic": "out"} if kafkas else None)


def test_each_kafka_source_is_known_by_its_position_among_all_that_stream() -> None:
    told = jvm.kafka_of(
        Frame(
            Static("LogicalRelation"),
            Leaf("FileSource[/data/kafka-in]"),
            Leaf("KAFKA", TABLE, kafka_bootstrap_servers="a:9092", subscribe="events", kafka_password="hush"),
            Leaf("com.example.Provider", TABLE, kafka_bootstrap_servers="b:9092", subscribepattern="e.*"),
            Leaf("rate-micro-batch", "RateStreamTable"),
        )
    )
    assert told["streams"] == ["FileSource", "kafka", "kafka", "rate-micro-batch"]
    assert told["sources"] == [
        {"bootstrap": "a:9092", "subscribe": "events", "position": 1},
        {"bootstrap": "b:9092", "subscribepattern": "e.*", "position": 2},
    ]


def test_a_leaf_that_is_there_twice_leaves_positions_out() -> None:
    leaf = Leaf("kafka", TABLE, kafka_bootstrap_servers="a:9092", subscribe="events")
    told = jvm.kafka_of(Frame(leaf, leaf))
    assert told["sources"] == [{"bootstrap": "a:9092", "subscribe": "events"}] * 2


def test_what_spark_has_no_word_for_is_not_taken_for_another_connector() -> None:
    assert jvm.kafka_of(Frame(Leaf(None))) == {"sources": [], "streams": [None]}
    told = jvm.kafka_of(Frame(Leaf("kafka")))
    assert told == {"sources": [{"position": 0}], "streams": ["kafka"]}
