"""`streambank take` of a query that reads Kafka behind a login: the declaration says how it is reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.cli import succeed
from tests.support.jobs.declared import write_jobs
from tests.support.kafka.fake_broker import FakeBroker, write_checkpoint

LOGIN = """
[jobs.flights.kafka]
bootstrap = "kafka:9093"
config = { "security.protocol" = "SASL_SSL", "sasl.password" = "${FLIGHTS_KAFKA}" }
"""


def test_a_take_uses_the_declared_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    broker = FakeBroker()
    broker.put("flights", (0, 150))

    def reach(servers: str, properties: Any, timeout_s: float, patience: Any) -> FakeBroker:
        asked.update(properties, servers=servers)
        return broker

    monkeypatch.setattr("streambank.kafka.client.connect", reach)
    monkeypatch.setenv("FLIGHTS_KAFKA", "hush")
    jobs = write_jobs(tmp_path, more=LOGIN)
    checkpoint = write_checkpoint(tmp_path / "checkpoint", '{"flights":{"0":100}}')
    where = ("-r", str(tmp_path / "repository"), "--job", "flights", "--jobs", str(jobs))

    said = succeed("take", checkpoint, *where)

    assert (asked["servers"], asked["sasl.password"]) == ("kafka:9093", "hush")
    repository = Repository.open(open_store(tmp_path / "repository"))
    manifest = repository.load("flights", repository.find("b", "flights")[1])
    assert manifest.sources[0]["kafka"]["topics"]["flights"]["topic_id"]
    assert "hush" not in said.out + said.err + str(manifest.sources)
