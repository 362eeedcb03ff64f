from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import BaseOperator
from airflow.serialization.serialized_objects import BaseSerialization

from streambank.core.errors import InputError
from streambank_airflow.assets import batch_asset, sla_asset, watermark_asset
from streambank_airflow.hooks.declared import as_plain
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.base import FindsJobs
from streambank_airflow.triggers.base import check_deferrable
from tests.streambank_airflow.operators.test_base_templates import OPERATORS, parameters

CONTEXT: Any = {
    "dag_run": SimpleNamespace(dag_id="d", run_id="r", run_type="manual", triggering_user_name=None),
    "ti": SimpleNamespace(task_id="t", dag_id="d", run_id="r", map_index=-1, max_tries=0),
}
DEFERRING = [
    each
    for each in OPERATORS
    if issubclass(each, FindsJobs) and ("deferrable" in parameters(each) or each.deferrable)
]


class Name(StrEnum):
    ORDERS = "orders"


def test_a_path_is_its_text_wherever_it_stands() -> None:
    given = {Path("/a"): [Path("/b"), ("c", Path("d"))], "e": 1}

    assert as_plain(given) == {"/a": ["/b", ("c", "d")], "e": 1}
    assert as_plain(None) is None
    assert as_plain("{{ ds }}") == "{{ ds }}"


@pytest.mark.parametrize(
    "value", [Decimal(2), timedelta(seconds=2), Name.ORDERS, b"x", {1: "x"}, [Path("x")], {1}]
)
def test_what_no_trigger_can_be_stored_with_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="cannot hand to the triggerer"):
        check_deferrable({"job": "orders", "some": value})


@pytest.mark.parametrize("interval", [0, -1.0, None, "2"])
def test_an_interval_is_a_number_of_seconds(interval: Any) -> None:
    with pytest.raises(InputError, match="a number of seconds above 0"):
        check_deferrable({"poll_interval_s": interval})
    check_deferrable({"job": "orders", "jobs_file": None, "poll_interval_s": 0.5, "more": [{"a": [1, True]}]})


def test_these_defer() -> None:
    assert {each.__name__ for each in DEFERRING} >= {
        "BatchCommittedSensor",
        "JobWatchedOperator",
        "KeepStreamingJobRunningOperator",
        "RestartStreamingJobOperator",
        "SlaSensor",
        "StartStreamingJobOperator",
        "StopStreamingJobOperator",
        "StreamingJobStatusSensor",
        "WatermarkSensor",
    }


@pytest.mark.parametrize("operator", DEFERRING, ids=lambda each: each.__name__)
def test_what_cannot_be_deferred_is_refused_before_anything_is_done(
    operator: type[BaseOperator], monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(self: object) -> None:
        raise AssertionError("the job was touched")

    monkeypatch.setattr(FindsJobs, "hook", property(touched))
    monkeypatch.setattr("streambank_airflow.watch.paused.is_paused", lambda context, dag: False)
    own: dict[str, Any] = {
        "deferrable": True,
        "moment": "2026-01-01T00:00:00+00:00",
        "run_dag_id": "orders.run",
    }
    own = {name: value for name, value in own.items() if name in parameters(operator)}
    task: Any = operator(task_id="t", job="orders", jobs_file=Name.ORDERS, **own)

    with pytest.raises(AirflowFailException, match="jobs_file is a Name, which a task that defers"):
        task.execute(CONTEXT)


def test_a_trigger_of_an_asset_takes_a_path() -> None:
    for asset in (
        batch_asset("orders", jobs_file=Path("/dags/jobs.toml"), checkpoint=Path("/data/orders")),
        watermark_asset("orders", jobs_file=Path("/dags/jobs.toml"), checkpoint=Path("/data/orders")),
        sla_asset("orders", jobs_file=Path("/dags/jobs.toml"), checkpoint=Path("/data/orders")),
    ):
        trigger: Any = asset.watchers[0].trigger
        _, stored = trigger.serialize()
        assert BaseSerialization.deserialize(BaseSerialization.serialize(stored)) == stored
        assert (stored["jobs_file"], stored["checkpoint"]) == ("/dags/jobs.toml", "/data/orders")


def test_a_hook_takes_a_path() -> None:
    assert StreambankHook(jobs_file=Path("/dags/jobs.toml")).declared.jobs_file == "/dags/jobs.toml"
