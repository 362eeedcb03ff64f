from __future__ import annotations

import inspect
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import BaseOperator
from airflow.serialization.serialized_objects import BaseSerialization
from airflow.triggers.base import BaseEventTrigger, BaseTrigger

from streambank.core.errors import InputError
from streambank_airflow.assets import batch_asset, sla_asset, watermark_asset
from streambank_airflow.get_provider_info import get_provider_info
from streambank_airflow.hooks.declared import as_plain
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.base import FindsJobs
from streambank_airflow.triggers import job
from streambank_airflow.triggers.base import check_deferrable
from streambank_airflow.triggers.events import BatchCommittedEventTrigger, WatermarkEventTrigger
from streambank_airflow.triggers.sla import SlaEventTrigger, SlaTrigger
from streambank_airflow.triggers.watermark import WatermarkTrigger
from tests.streambank_airflow.operators.test_base_templates import OPERATORS, parameters
from tests.support.airflow_face.moved import import_string

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


LATER = "2026-01-01T00:00:00.000Z"
COMMON: dict[str, Any] = {
    "job": "flights",
    "jobs_file": "/dags/streaming_jobs.toml",
    "streambank_conn_id": "elsewhere",
    "poll_interval_s": 0.25,
}
WAIT = {**COMMON, "remember": {"failures": 1}}
TRIGGERS: list[BaseTrigger] = [
    job.JobReadyTrigger(give_up_at=LATER, **WAIT),
    job.JobEndTrigger(watch=1, **WAIT),
    job.JobEndTrigger(heal=True, failures=2, watch=3, watch_id="5e0c", site="standby", **WAIT),
    job.JobWatchedTrigger(give_up_at=LATER, **WAIT),
    job.DriverGoneTrigger(epoch=3, give_up_at=LATER, **WAIT),
    job.DriverStaysTrigger(launch_id="20261130-1", give_up_at=LATER, **WAIT),
    job.JobStatusTrigger(states=["running"], failed_states=["failed"], **WAIT),
    job.BatchCommittedTrigger(after_batch=7, accept_idle=True, failed_states=["stopped"], **WAIT),
    job.PauseTrigger(until=LATER, remember={"failures": 2}),
    WatermarkTrigger(moment=LATER, checkpoint="/ck", failed_states=["failed"], **WAIT),
    SlaTrigger(until="broken", least="warn", objectives=["pause"], failed_states=["failed"], **WAIT),
    SlaEventTrigger(least="warn", checkpoint="/ck", **COMMON),
    BatchCommittedEventTrigger(every=10, checkpoint="/ck", **COMMON),
    WatermarkEventTrigger(every="1d", checkpoint="/ck", **COMMON),
]


def test_there_are_all() -> None:
    modules = [import_module(name) for name in get_provider_info()["triggers"][0]["python-modules"]]
    known = [found for module in modules for _, found in inspect.getmembers(module, inspect.isclass)]
    offered = {each for each in known if issubclass(each, BaseTrigger) and not inspect.isabstract(each)}
    assert {type(trigger) for trigger in TRIGGERS} == offered


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda trigger: type(trigger).__name__)
def test_a_trigger_is_made_again_from_what_airflow_stores(trigger: BaseTrigger) -> None:
    path, arguments = trigger.serialize()
    stored = BaseSerialization.deserialize(BaseSerialization.serialize(arguments))
    again = import_string(path)(**stored)

    assert type(again) is type(trigger)
    assert again.serialize() == (path, arguments)
    assert BaseEventTrigger.hash(path, arguments) == BaseEventTrigger.hash(path, stored)
    assert getattr(again, "memory_key", None) == getattr(trigger, "memory_key", None)


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
