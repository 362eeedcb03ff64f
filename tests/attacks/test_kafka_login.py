"""Who can write savepoints or records names Kafka servers there, and waits for the job's login."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streambank.checkpoint.sources import SourceState
from streambank.core.errors import StorageError
from streambank.kafka.recording import KafkaReader, SourceRecorder
from streambank.kafka.settings import Brokers, KafkaConnection
from streambank.kafka.sink import look_at_kafka_sink
from streambank.kafka.source import look_at_source
from tests.support.kafka.fake_broker import SERVERS, FakeBroker
from tests.support.refuses import refuses

THEIRS = "collector.example:9093"
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "streambank",
    "sasl.password": "${KAFKA_PASSWORD}",
}
OFFSETS = '{"flights":{"0":100}}'


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, Mapping[str, str]]:
    """What each servers were asked with."""
    monkeypatch.setenv("KAFKA_PASSWORD", "hush")
    return {}


def brokers(sent: dict[str, Mapping[str, str]], **declared: Any) -> Brokers:
    def connect(servers: str, properties: Mapping[str, str], timeout_s: float) -> FakeBroker:
        sent[servers] = properties
        fake = FakeBroker()
        fake.put("flights", (0, 150))
        return fake

    return Brokers(KafkaConnection(**declared), connect=connect)


@pytest.mark.parametrize("declared", [{}, {"servers": {SERVERS: SERVERS}}], ids=["nothing", "another"])
def test_a_savepoint_never_says_where_the_login_goes(
    sent: dict[str, Mapping[str, str]], declared: dict[str, Any]
) -> None:
    record = {"source": "0", "offset": OFFSETS, "kafka": {"bootstrap": THEIRS, "subscribe": "flights"}}
    standing = look_at_source(record, brokers(sent, config=LOGIN, **declared))
    assert standing is not None
    assert "is not sent to collector.example:9093" in (standing.not_known or "")
    assert "bootstrap" in standing.hint and not standing.transient
    sink = {
        "path": "kafka:totals",
        "kind": "kafka",
        "batch": 3,
        "topics": {"totals": {}},
        "bootstrap": THEIRS,
    }
    found = look_at_kafka_sink(sink, brokers(sent, config=LOGIN, **declared))
    assert found is not None and "is not sent to" in str(found.not_known)
    assert sent == {}


def test_nor_does_a_record_of_the_query(sent: dict[str, Mapping[str, str]]) -> None:
    reader = KafkaReader.of({"bootstrap": THEIRS, "subscribe": "flights"})
    recorder = SourceRecorder(brokers(sent, config=LOGIN), [reader])
    told = recorder.describe(SourceState("0", "initial", OFFSETS, ("sources/0/0",)))
    assert "is not sent to" in str(told["kafka"])
    assert sent == {}


def test_declared_servers_get_it_and_without_a_secret_any_may_be_asked(
    sent: dict[str, Mapping[str, str]],
) -> None:
    brokers(sent, config=LOGIN, bootstrap="mine:9093").at(THEIRS)
    brokers(sent, config=LOGIN, servers={"inner:9092": "outer:9093"}).at("inner:9092")
    brokers(sent, config=LOGIN, servers={"inner:9092": "outer:9093"}).at("outer:9093")
    brokers(sent, config={"client.id": "streambank"}).at(SERVERS)
    assert {name: properties.get("sasl.password") for name, properties in sent.items()} == {
        "mine:9093": "hush",
        "outer:9093": "hush",
        SERVERS: None,
    }


def test_servers_that_a_person_names_get_it(sent: dict[str, Mapping[str, str]]) -> None:
    connection = KafkaConnection(config=LOGIN)
    assert connection.at("byhand:9093").may_ask("byhand:9093")
    with refuses(StorageError, "kafka-not-declared"):
        brokers(sent, config=LOGIN).at(THEIRS)
