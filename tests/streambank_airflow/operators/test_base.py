"""What operators send as metrics of their work: each that is done, well or not, and nothing else."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, TaskDeferred
from airflow.sdk import DAG, Context

from streambank.core.units import to_json_time, utc_now
from streambank_airflow.failures import close_log
from streambank_airflow.notify.stats import Gauges
from streambank_airflow.operators.base import StreambankOperator, alert_of_failure, keep_page, measured
from streambank_airflow.operators.job import StartStreamingJobOperator
from streambank_airflow.operators.repository import ExpireSavepointsOperator
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator
from streambank_airflow.operators.sla import CheckSlaOperator
from streambank_airflow.triggers.job import PauseTrigger
from tests.support.airflow_face.dashboard import operators
from tests.support.airflow_face.metadata_db import run_dag, task_states
from tests.support.jobs.managed_job import Managed

CONTEXT: Any = {
    "dag_run": SimpleNamespace(dag_id="d", run_id="r", triggering_user_name=None),
    "ti": SimpleNamespace(task_id="take"),
}
Sent = list[tuple[str, tuple[str, ...], float]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What is given to Airflow's metrics of operations from now on."""
    found: Sent = []

    def gauge(name: str, value: float, *, tags: dict[str, str]) -> None:
        if name == "streambank.operation.seconds":
            found.append((name, tuple(tags.values()), value))

    monkeypatch.setattr(Gauges, "of_settings", lambda: Gauges(on=True, tagged=True))
    monkeypatch.setattr("streambank_airflow.notify.stats.Stats.gauge", gauge)
    return found


class Work(StreambankOperator):
    """Does as it is asked to."""

    operation = "work"
    plan_only: bool | str = False
    error: BaseException | None = None

    @measured
    def execute(self, context: Context) -> str:
        if self.error is not None:
            raise self.error
        return "done"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "success"),
        (AirflowFailException("no"), "failed"),
        (SystemExit("ended from outside"), "failed"),
        (AirflowSkipException("not this time"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_work_sends_how_it_ended_unless_it_is_skipped_or_only_planned(
    error: BaseException | None, outcome: str | None, sent: Sent
) -> None:
    work = Work(task_id="work", job="flights")
    work.error = error
    for planned in (False, "False", True, "True"):
        work.plan_only = planned
        with nullcontext() if error is None else pytest.raises(type(error)):
            assert work.execute(CONTEXT) == "done"
    found = [tags for _, tags, _ in sent]
    assert found == ([] if outcome is None else [("flights", "main", "work", outcome)] * 2)


class WorkThatWaits(Work):
    """Waits in the triggerer, and goes on."""

    @measured
    def execute(self, context: Context) -> str:
        self.defer(trigger=PauseTrigger(until=to_json_time(utc_now())), method_name="execute_complete")

    @measured
    def execute_complete(self, context: Context, event: Any) -> str:
        return "done"


def test_work_that_waits_is_sent_once_with_all_of_its_seconds(sent: Sent) -> None:
    work, began = WorkThatWaits(task_id="work", job="flights"), utc_now() - timedelta(seconds=90)
    with pytest.raises(TaskDeferred):
        work.execute(CONTEXT)
    assert sent == []
    resumed: Any = {**CONTEXT, "ti": SimpleNamespace(task_id="work", start_date=began)}
    assert work.execute_complete(resumed, event={}) == "done"
    ((_, tags, seconds),) = sent
    assert tags[-1] == "success" and 90 <= seconds < 100


class WorkOnAll(Work):
    """As a restore of all queries does, which names the job alone once it has begun."""

    @measured
    def execute(self, context: Context) -> str:
        self.job = self.job.partition("/")[0]
        return "done"


def test_work_on_all_queries_is_sent_as_that(sent: Sent) -> None:
    WorkOnAll(task_id="work", job="flights/*").execute(CONTEXT)
    WorkOnAll(task_id="work", job="flights/one").execute(CONTEXT)
    assert [tags[1] for _, tags, _ in sent] == ["all", "one"]


@pytest.mark.storm
@pytest.mark.usefixtures("airflow_database")
def test_the_operations_of_a_savepoint_send_their_seconds_and_their_outcome(
    managed: Managed, sent: Sent
) -> None:
    where: dict[str, Any] = {"job": "flights", "jobs_file": str(managed.jobs_file), "retries": 0}
    with DAG("measured", schedule=None) as dag:
        start = StartStreamingJobOperator(task_id="start", **where)
        take = CreateSavepointOperator(task_id="take", **where)
        verify = VerifySavepointOperator(task_id="verify", **where)
        off = VerifySavepointOperator(task_id="off", level="none", **where)
        plan = ExpireSavepointsOperator(task_id="plan", keep_last=1, plan_only=True, **where)
        refused = RestoreSavepointOperator(task_id="restore", savepoint="b999999", **where)
        start >> take >> verify >> [off, plan, refused]
    run = run_dag(dag)

    assert task_states(run) == {
        **dict.fromkeys(("start", "take", "verify", "plan"), "success"),
        **{"off": "skipped", "restore": "failed"},
    }
    assert sorted(tags for _, tags, _ in sent) == [
        ("flights", "main", "restore", "failed"),
        ("flights", "main", "take", "success"),
        ("flights", "main", "verify", "success"),
    ], "neither what is skipped nor what is only planned"
    assert all(0 < seconds < 600 for _, _, seconds in sent)


@pytest.mark.parametrize(
    ("job", "tags"),
    [
        ("flights/left", ("flights", "left")),
        ("flights/*", ("flights", "all")),
        ("flights@staging/left", ("flights-staging", "left")),
    ],
)
def test_the_query_and_the_copy_are_named(job: str, tags: tuple[str, ...], sent: Sent) -> None:
    operator = CreateSavepointOperator(task_id="take", job=job, jobs_file="/nowhere.toml")
    with pytest.raises(AirflowFailException):
        operator.execute(CONTEXT)
    assert [found[:2] for _, found, _ in sent] == [tags]


def test_metrics_that_cannot_be_sent_change_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **how: Any) -> None:
        raise OSError("no route")

    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    monkeypatch.setattr("streambank_airflow.notify.stats.Stats.gauge", fail)
    operator = CreateSavepointOperator(task_id="take", job="flights", jobs_file="/nowhere.toml")
    with pytest.raises(AirflowFailException, match="nowhere"):
        operator.execute(CONTEXT)


def test_what_names_its_operation_is_measured() -> None:
    for one in (each for each in operators() if each.operation):
        measured = getattr(getattr(one.execute, "__wrapped__", None), "__wrapped__", None)
        assert measured is not None, f"{one.__name__} names its operation, and sends nothing"


def of_the_user(context: Context) -> None:
    """What a DAG file has."""


def test_callbacks_of_the_user_come_first_and_their_list_stays_as_it_is() -> None:
    users = [of_the_user]
    task = Work(task_id="work", job="flights", on_failure_callback=users, on_success_callback=users)
    assert task.on_failure_callback == [of_the_user, alert_of_failure, keep_page, close_log]
    assert task.on_success_callback == [of_the_user, keep_page]
    assert task.on_retry_callback == [keep_page, close_log]
    assert users == [of_the_user]
    alone: dict[str, Any] = {"on_failure_callback": of_the_user}  # Airflow takes one that is in no list, too
    many = CheckSlaOperator(task_id="sla", jobs="all", **alone)
    assert many.on_failure_callback == [of_the_user, alert_of_failure, keep_page, close_log]
