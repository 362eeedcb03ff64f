"""A real broker that asks who is there, over TLS: passwords and certificates, and topics one may not see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import StorageError
from streambank.declaration.kafka import kafka_sources
from streambank.kafka.settings import Brokers, KafkaConnection
from streambank.recovery.plan import RestorePlan
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.kafka.broker_login import PASSWORDS, READER, Login
from tests.support.kafka.fake_broker import write_checkpoint
from tests.support.kafka.real_broker import Kafka, running
from tests.support.refuses import refuses

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(600)]

MINE, OTHER = "mine", "other"


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Login:
    return Login.make(tmp_path_factory.mktemp("login") / "keys")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, login: Login) -> Iterator[Kafka]:
    with running(tmp_path_factory.mktemp("kafka"), login=login) as broker:
        for topic in (MINE, OTHER):
            broker.create(topic, 1)
            broker.produce(topic, ((None, one) for one in range(100)), 0)
        broker.allow(MINE, "DESCRIBE", "DESCRIBE_CONFIGS", "READ", user=READER)
        broker.allow(OTHER, user=READER)
        yield broker


def connection(login: Login, **other: str) -> KafkaConnection:
    """As a job declares it, with the password in the environment."""
    return KafkaConnection(config={**login.client(READER), "sasl.password": "${KAFKA_PASSWORD}", **other})


def asking(declared: KafkaConnection, kafka: Kafka) -> Brokers:
    """Who does not wait long for a server that does not let it in, and may send it the login."""
    return Brokers(declared.at(kafka.bootstrap), timeout_s=3.0)


class Saved:
    """A savepoint of a query that has read half of a topic."""

    def __init__(self, kafka: Kafka, declared: KafkaConnection, folder: Path, topic: str = MINE) -> None:
        self.folder = folder
        facts = {"kafka": {"sources": [{"bootstrap": kafka.bootstrap, "subscribe": topic}], "sink": None}}
        offsets = json.dumps({topic: {"0": 50}})
        checkpoint = open_store(str(write_checkpoint(folder / "checkpoint", offsets)))
        self.repository = Repository.open(open_store(str(folder / "repository")), create=True)
        self.kafka = kafka
        sources = kafka_sources(facts, asking(declared, kafka))
        self.id = take(TakeRequest(checkpoint, self.repository, "job", sources=sources)).savepoint

    @property
    def told(self) -> dict[str, Any]:
        (source,) = self.repository.load("job", self.id).sources
        return dict(source["kafka"])

    def plan(self, declared: KafkaConnection) -> RestorePlan:
        into = open_store(str(self.folder / "into"))
        brokers = asking(declared, self.kafka)
        return plan_restore(RestoreRequest(self.repository, self.id, into=into, kafka=brokers))

    def written(self) -> str:
        """Everything in the repository, as text."""
        files = [one for one in (self.folder / "repository").rglob("*") if one.is_file()]
        return "".join(one.read_bytes().decode("latin-1") for one in files)


def test_who_may_is_told_over_tls(
    kafka: Kafka, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORDS[READER])
    saved = Saved(kafka, connection(login), tmp_path)
    assert saved.told["not_asked"] is None and saved.told["topics"][MINE]["topic_id"]
    plan = saved.plan(connection(login))
    assert plan.possible and plan.sources[0]["records_to_read_again"] == 50
    assert PASSWORDS[READER] not in saved.written()


def test_a_wrong_password_is_said_and_never_shown(
    kafka: Kafka, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORDS[READER])
    saved = Saved(kafka, connection(login), tmp_path)
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2-hunter2")
    plan = saved.plan(connection(login))
    assert [refusal.code for refusal in plan.refusals] == ["source-not-known"]
    said = plan.refusals[0].message + plan.refusals[0].hint
    assert "uthentication failed" in said, said
    assert "hunter2" not in said
    again = Saved(kafka, connection(login), tmp_path / "again")
    assert "uthentication failed" in again.told["not_asked"], "a savepoint is taken all the same, and says so"
    assert "hunter2" not in again.written()


def test_a_certificate_that_is_not_trusted_is_named(
    kafka: Kafka, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORDS[READER])
    stranger = Login.make(tmp_path / "stranger")
    declared = connection(login, **{"ssl.ca.location": str(stranger.certificate)})
    with refuses(StorageError, "kafka-not-reachable") as raised:
        asking(declared, kafka).at(kafka.bootstrap).topics([MINE])
    assert "certificate" in raised.value.message, raised.value.message


def test_a_topic_one_may_not_see_says_what_is_missing_and_hides_no_other(
    kafka: Kafka, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORDS[READER])
    saved = Saved(kafka, connection(login), tmp_path, OTHER)
    assert f"does not allow Streambank to ask about {OTHER}" in saved.told["not_asked"]
    plan = saved.plan(connection(login))
    assert [refusal.code for refusal in plan.refusals] == ["source-not-known"]
    assert "DESCRIBE" in plan.refusals[0].message
    brokers = asking(connection(login), kafka)
    with pytest.raises(StorageError, match=OTHER):
        brokers.at(kafka.bootstrap).topics([OTHER])
    assert brokers.at(kafka.bootstrap).topics([MINE])[MINE] is not None
