"""`show` and `list --replay`: until when the input of savepoints can be read again, in bounded time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.kafka.broker import Patience
from streambank.kafka.recording import KafkaReader, SourceRecorder
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.cli import streambank
from tests.support.kafka.fake_broker import SERVERS, FakeBroker, write_checkpoint

OFFSETS = '{"flights":{"0":100}}'


class SlowBroker(FakeBroker):
    """Answers, and each of the five questions about a savepoint takes a fifth of our patience."""

    patience = Patience(3.0)
    refused = 0

    def _ask(self, what: str) -> None:
        super()._ask(what)
        with self.patience.waiting() as left_s:
            self.refused += left_s <= 0
        self.patience._spent_s += 0.6


@pytest.fixture
def broker() -> SlowBroker:
    fake = SlowBroker()
    fake.put("flights", (0, 150))
    fake.times_ms["flights", 0] = {100: 4_000_000_000_000}
    return fake


@pytest.fixture
def repository(broker: SlowBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    opened = Repository.open(open_store(str(folder)), create=True)
    for batches in (1, 2, 3):
        checkpoint = write_checkpoint(tmp_path / "checkpoint", OFFSETS, batches)
        sources = SourceRecorder(broker.brokers(), [KafkaReader(SERVERS, {"subscribe": "flights"})])
        take(TakeRequest(open_store(str(checkpoint)), opened, "orders", sources=sources))

    def connect(servers: str, properties: Any, timeout_s: float, patience: Patience) -> FakeBroker:
        assert timeout_s == 3.0
        broker.patience, broker.refused = patience, 0
        return broker

    monkeypatch.setattr("streambank.kafka.client.connect", connect)
    return folder


def test_each_savepoint_of_a_list_has_the_whole_time(broker: SlowBroker, repository: Path) -> None:
    found = streambank("list", "-r", repository, "--replay", "--json").document
    assert [one["replay"]["state"] for one in found] == ["until"] * 3
    assert broker.refused == 0


def test_one_savepoint_tells_until_when(broker: SlowBroker, repository: Path) -> None:
    name = streambank("list", "-r", repository, "--json").document[0]["savepoint"]
    answer = streambank("show", name, "-r", repository)
    assert "source 0 kafka flights: replay until 2096-10-09T07:06:40.000Z" in " ".join(answer.out.split())


def test_a_cluster_that_is_away_is_no_error_of_the_list(broker: SlowBroker, repository: Path) -> None:
    broker.down = True
    found = streambank("list", "-r", repository, "--replay", "--json").document
    assert {(one["replay"]["state"], one["replay"]["why"]) for one in found} == {
        ("not-known", "Kafka is down.")
    }


def test_a_topic_that_was_made_anew_between_two_savepoints_is_told_by_both(
    broker: SlowBroker, repository: Path, tmp_path: Path
) -> None:
    """The newest holds the id of the new topic, and offsets of the old one: alone it would look sound."""
    broker.remake("flights")
    opened = Repository.open(open_store(str(repository)))
    checkpoint = write_checkpoint(tmp_path / "checkpoint", OFFSETS, 4)
    sources = SourceRecorder(broker.brokers(), [KafkaReader(SERVERS, {"subscribe": "flights"})])
    newest = take(TakeRequest(open_store(str(checkpoint)), opened, "orders", sources=sources)).savepoint
    found = streambank("list", "-r", repository, "--replay", "--json").document
    assert [one["replay"]["state"] for one in found] == ["gone"] * 4
    told = streambank("show", newest, "-r", repository, "--json").document["replay"]
    assert "the topic was deleted and created again" in told[0]["why"]
