"""Which cluster is asked, with which properties, and that no secret shows."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, StorageError
from streambank.declaration.load import load_jobs
from streambank.kafka.client import connect
from streambank.kafka.secrets import is_secret
from streambank.kafka.settings import Brokers, KafkaConnection
from tests.support.jobs.declared import write_jobs
from tests.support.kafka.fake_broker import FakeBroker
from tests.support.refuses import refuses

DECLARED = """
[jobs.flights.kafka]
bootstrap = "kafka:9093"
config = {{ "sasl.username" = "streambank", "sasl.password" = "{password}" }}

[jobs.flights.restore]
source = "accept"
"""


def test_a_job_declares_how_its_kafka_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_jobs(tmp_path, more=DECLARED.format(password="${FLIGHTS_KAFKA}"))
    job = load_jobs(file).job("flights")  # the variable is not set, and need not be to read the file
    assert job.restore.source == "accept"
    assert job.kafka.bootstrap == "kafka:9093"
    with pytest.raises(StorageError, match="FLIGHTS_KAFKA"):
        Brokers(job.kafka).at(None)
    monkeypatch.setenv("FLIGHTS_KAFKA", "hush")
    asked: dict[str, Any] = {}

    def reach(servers: str, properties: Any, timeout_s: float) -> FakeBroker:
        asked.update(properties, servers=servers)
        return FakeBroker()

    Brokers(job.kafka, connect=reach).at("recorded:9092")
    assert (asked["servers"], asked["sasl.password"]) == ("kafka:9093", "hush")
    assert "hush" not in repr(job)


def test_a_secret_in_plain_text_is_refused_and_not_repeated(tmp_path: Path) -> None:
    file = write_jobs(tmp_path, more=DECLARED.format(password="hush"))
    with pytest.raises(InputError, match=r"sasl.password: it is a secret") as raised:
        load_jobs(file)
    assert "hush" not in raised.value.message + raised.value.hint


@pytest.mark.parametrize(
    "line",
    [
        'config = "sasl.password=hunter2"',
        'config = ["sasl.password=hunter2"]',
        'config = { "SASL.PASSWORD" = "hunter2" }',
        'config = { "sasl.password" = "${NAME:-hunter2}" }',
        'config = { "sasl.password" = ["hunter2"] }',
        'config = { "client.id" = "${hunter2" }',
    ],
)
def test_no_mistake_in_the_client_properties_repeats_what_stands_there(tmp_path: Path, line: str) -> None:
    file = write_jobs(tmp_path, more=f"[jobs.flights.kafka]\n{line}\n")
    with refuses(InputError, "bad-declaration") as raised:
        load_jobs(file)
    assert "hunter2" not in raised.value.message + raised.value.hint


def test_a_string_where_the_kafka_table_should_be_is_not_repeated(tmp_path: Path) -> None:
    file = write_jobs(tmp_path, more='kafka = "sasl.password=hunter2"')
    with pytest.raises(InputError, match="must be a table, not a string"):
        load_jobs(file)


def test_client_properties_have_the_variables_of_the_rest_of_the_file() -> None:
    config = {"a": "${UNSET:-plain}", "b": "5$$", "c": "${SET}/${EMPTY:-x}", "d": "$${SET}"}
    found = KafkaConnection(config=config).properties({"SET": "hush", "EMPTY": ""})
    assert found == {"a": "plain", "b": "5$", "c": "hush/x", "d": "${SET}"}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("sasl.password", True),
        ("ssl.key.password", True),
        ("ssl.keystore.password", True),
        ("ssl.key.pem", True),
        ("sasl.oauthbearer.client.secret", True),
        ("sasl.oauthbearer.config", True),
        ("ssl.ca.pem", False),
        ("ssl.key.location", False),
        ("sasl.username", False),
        ("SASL.PASSWORD", True),
        ("Ssl.Key.Pem", True),
    ],
)
def test_which_properties_are_secrets(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_a_cluster_that_nobody_names_is_not_asked() -> None:
    with pytest.raises(StorageError, match="The address of the query's Kafka") as raised:
        Brokers().at(None)
    assert "--kafka" in raised.value.hint


def test_what_failed_is_not_tried_again() -> None:
    tries = []

    def reach(servers: str, properties: Any, timeout_s: float) -> FakeBroker:
        tries.append(servers)
        raise StorageError("no", code="kafka-not-reachable")

    brokers = Brokers(connect=reach)
    for _ in range(3):
        with pytest.raises(StorageError, match="no"):
            brokers.at("a:1")
    assert tries == ["a:1"]


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("confluent_kafka"):
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StorageError, match="needs the package confluent-kafka") as raised:
        connect("127.0.0.1:1", {}, 1)
    assert (raised.value.code, "[kafka]" in raised.value.hint) == ("missing-package", True)


def test_properties_that_cannot_be_are_told_without_secrets() -> None:
    with refuses(InputError, "bad-kafka-config") as raised:
        connect("127.0.0.1:1", {"security.protocol": "hush", "sasl.password": "hush"}, 1)
    assert raised.value.__suppress_context__, "the client's own text may hold what is cleaned out of ours"
    assert "hush" not in raised.value.message


def test_nobody_listening_is_told_in_time() -> None:
    broker = connect("127.0.0.1:1", {}, 0.5)
    with refuses(StorageError, "kafka-not-reachable", match=r"127\.0\.0\.1:1 cannot be asked") as raised:
        broker.topics(["flights"])
    assert raised.value.__suppress_context__
    with pytest.raises(StorageError):
        broker.times({("flights", 0): 1})
