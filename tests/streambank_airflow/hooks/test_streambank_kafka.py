"""Operators say where the Kafka of a query is that nobody declared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import RefusedError
from streambank.core.verb_options import TakeOptions
from streambank.savepoint.take import TakeRequest
from streambank.storage import open_store
from streambank_airflow.hooks.recovery import RestoreOptions
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator
from tests.support.kafka.fake_broker import FakeBroker, write_checkpoint

pytestmark = pytest.mark.usefixtures("airflow_database")

OFFSETS = '{"flights":{"0":100}}'


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every server that was asked; all of them have the topic."""
    servers: list[str] = []
    broker = FakeBroker()
    broker.put("flights", (0, 150))

    def reach(bootstrap: str, properties: Any, timeout_s: float, patience: Any) -> FakeBroker:
        servers.append(bootstrap)
        return broker

    monkeypatch.setattr("streambank.kafka.client.connect", reach)
    return servers


def test_an_undeclared_query_is_taken_and_restored_by_the_servers_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    extra = {"repository": str(tmp_path / "repository")}
    monkeypatch.setenv(
        "AIRFLOW_CONN_STREAMBANK_DEFAULT", json.dumps({"conn_type": "streambank", "extra": extra})
    )
    hook = StreambankHook()
    checkpoint = str(write_checkpoint(tmp_path / "checkpoint", OFFSETS))
    taken = hook.savepoints.take("orders", TakeOptions(kafka="kafka:9092"), checkpoint=checkpoint, by={})
    (source,) = hook.declared.open_repository("orders").load("orders", taken["savepoint"]).sources
    assert source["kafka"]["topics"]["flights"]["topic_id"]
    assert asked == ["kafka:9092"]

    into = str(tmp_path / "restored")
    options = RestoreOptions(into=into, kafka="elsewhere:9092")
    plan = hook.recovery.plan("orders", options, may_stop=False)
    assert plan.plans["main"].sources[0]["safe"] is True
    assert asked == ["kafka:9092", "elsewhere:9092"]
    hook.recovery.restore("orders", replace(options, kafka="mirror:9092"), note="", by={})
    assert set(asked[2:]) == {"mirror:9092"}, "before the files are laid out, and after"
    assert open_store(into).exists("metadata")


def test_a_savepoint_that_names_no_servers_is_restored_by_those_of_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    from streambank.repository.repository import Repository
    from streambank.savepoint.take import take

    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    take(TakeRequest(open_store(write_checkpoint(tmp_path / "checkpoint", OFFSETS)), repository, "orders"))
    extra = {"repository": str(tmp_path / "repository")}
    monkeypatch.setenv(
        "AIRFLOW_CONN_STREAMBANK_DEFAULT", json.dumps({"conn_type": "streambank", "extra": extra})
    )
    options = RestoreOptions(into=str(tmp_path / "restored"))
    with pytest.raises(RefusedError, match="The address of the query's Kafka") as refused:
        StreambankHook().recovery.plan("orders", options, may_stop=False)
    assert "`kafka` of an Airflow operator" in refused.value.hint
    options = replace(options, kafka="kafka:9092")
    assert StreambankHook().recovery.plan("orders", options, may_stop=False).plans["main"].sources
    assert asked == ["kafka:9092"]


def test_operators_take_it_as_a_template() -> None:
    taking = CreateSavepointOperator(task_id="take", job="orders", checkpoint="/ck", kafka="{{ params.k }}")
    restoring = RestoreSavepointOperator(task_id="restore", job="orders", into="/to", kafka="kafka:9092")
    for operator in (taking, restoring):
        assert "kafka" in operator.template_fields
