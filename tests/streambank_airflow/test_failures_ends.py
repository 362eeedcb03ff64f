"""How the log of a task ends in each way in which one fails: by lines that say why, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from streambank.core.errors import NotFoundError
from streambank_airflow.failures import END_GROUP
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.notify.alerts import Alert, send_alert
from streambank_airflow.operators.drill import RunDrillOperator
from streambank_airflow.operators.job import StartStreamingJobOperator
from streambank_airflow.operators.repository import ExpireSavepointsOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator
from streambank_airflow.sensors.job import BatchCommittedSensor, StreamingJobStatusSensor
from streambank_airflow.triggers.job import JobStatusTrigger
from tests.support.airflow_face.metadata_db import run_dag, task_states
from tests.support.jobs.managed_job import Managed

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_database")]

NEVER = "Airflow does not try again."


def ends(
    managed: Managed, caplog: pytest.LogCaptureFixture, operator: Callable[..., Any], **how: Any
) -> list[str]:
    """The last lines of the task's log in a DAG of one's own, without those of the DAG run."""
    more = {"retries": 1, "retry_delay": timedelta(0), "retry_exponential_backoff": False}
    with DAG("nightly") as dag:
        operator(**{"task_id": "task", "job": "flights", "jobs_file": str(managed.jobs_file), **more, **how})
    caplog.clear()
    run = run_dag(dag)
    assert task_states(run) == {"task": "failed"}
    said = [one.getMessage() for one in caplog.records if one.name != "airflow.sdk.definitions.dag"]
    last = len(said) - said[::-1].index(END_GROUP)
    return said[last:]


@pytest.mark.parametrize(
    ("operator", "how", "why", "do"),
    [
        (VerifySavepointOperator, {"savepoint": "nonsense"}, "[no-repository]", ""),
        (CreateSavepointOperator, {}, "[never-started]", "run StartStreamingJobOperator."),
        (StartStreamingJobOperator, {"job": "nobody"}, "[no-such-job]", ""),
        (ExpireSavepointsOperator, {"jobs_file": "/nowhere/jobs.toml"}, "/nowhere/jobs.toml", ""),
        (CreateSavepointOperator, {"jobs_file": None}, "No jobs file is named", ""),
        (CreateSavepointOperator, {"batch": "{{ 'soon' }}"}, "batch", ""),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_what_somebody_has_to_repair(
    managed: Managed,
    caplog: pytest.LogCaptureFixture,
    operator: Callable[..., Any],
    how: dict[str, Any],
    why: str,
    do: str,
) -> None:
    managed.declare_alerts("savepoint-damaged", "giving-up")
    lines = ends(managed, caplog, operator, **how)

    assert [line.partition(":")[0] for line in lines] == ["What", "Why", "What to do"], lines
    assert lines[0] == f"What: task nightly.task failed; {NEVER}"
    assert why in lines[1] and "\n" not in "".join(lines)
    assert do in lines[2] and "flights.run" not in lines[2]


def test_no_alert_about_a_job_that_was_not_found_is_no_second_error(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    """Its reason is the error of the task itself; any other one is said."""
    lines = ends(managed, caplog, RunDrillOperator, jobs_file=None)
    assert "No jobs file is named" in lines[1]
    assert "No alert about job" not in caplog.text

    send_alert(
        StreambankHook(jobs_file="/nowhere/jobs.toml"), "flights", Alert(("drill-failed",), "It failed."), {}
    )
    assert "No alert about job flights could be sent: " in caplog.text


def test_a_start_whose_driver_died_twice_says_that_it_gives_up(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    managed.dies.write_text("0")
    what, why, cause, do = ends(managed, caplog, StartStreamingJobOperator, retries=5)

    assert what == f"What: task nightly.task failed; {NEVER}"
    assert why.startswith("Why: Job flights is not started any more: two drivers in a row died")
    assert cause.startswith("Cause: The driver of job flights") and cause.endswith("[driver-died]")
    assert do.startswith("What to do: ")
    assert not any("Traceback" in line or "\n" in line for line in (what, why, cause, do))


@pytest.mark.parametrize(
    ("stop_on_kill", "then"), [(False, "goes on."), (True, "ask the job to stop at a batch boundary.")]
)
def test_a_task_that_takes_too_long(
    managed: Managed, caplog: pytest.LogCaptureFixture, stop_on_kill: bool, then: str
) -> None:
    managed.hangs.write_text("0")
    how = {"execution_timeout": timedelta(seconds=3), "retries": 0, "stop_on_kill": stop_on_kill}
    lines = ends(managed, caplog, StartStreamingJobOperator, **how)

    assert lines[:2] == [
        f"What: task nightly.task failed; {NEVER}",
        "Why: It took longer than its execution_timeout of 3 s.",
    ]
    assert lines[2].startswith("What to do: Give the task a longer `execution_timeout`.")
    assert lines[2].endswith(then)


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_a_sensor_that_times_out_says_what_it_lacked(
    managed: Managed, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    how: dict[str, Any] = {"timeout": 0.2, "poke_interval": 0.1, "mode": mode}
    what, why, do = ends(managed, caplog, StreamingJobStatusSensor, **how)

    assert what == f"What: task nightly.task failed; {NEVER}"
    assert why == (
        "Why: The wait for job flights to be running has not ended within 0.2 s. "
        "Job flights is never-started: its lease was never held."
    )
    assert do == "What to do: Run StartStreamingJobOperator, and run this task again when the job is there."


def test_a_sensor_that_times_out_in_the_triggerer_says_it_too(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow.providers.common.compat.sdk import AirflowSensorTimeout
    from airflow.sdk.exceptions import TaskDeferralTimeout

    managed.start(until=1)
    sensor = BatchCommittedSensor(
        task_id="task", job="flights", jobs_file=str(managed.jobs_file), after_batch=9000, timeout=60
    )

    with pytest.raises(AirflowSensorTimeout) as caught, sensor.saying_what_lacked():
        raise AirflowSensorTimeout from TaskDeferralTimeout()

    said = str(caught.value)
    assert said.startswith(
        "The wait for a batch of job flights above 9000 has not ended within 1 min. Job flights"
    )
    assert "its newest batch is" in said and "Hint: give the sensor a longer `timeout`" in said


def test_a_sensor_that_is_skipped_at_its_timeout_logs_what_it_lacked(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    with DAG("nightly") as dag:
        StreamingJobStatusSensor(
            task_id="task", job="flights", jobs_file=str(managed.jobs_file), timeout=0, soft_fail=True
        )
    assert task_states(run_dag(dag)) == {"task": "skipped"}
    out = capfd.readouterr().out
    assert "Waiting for job flights to be running. Job flights is never-started" in out
    assert "The wait for job flights to be running has not ended within 0 s." in out


@pytest.mark.parametrize(
    ("tags", "way_out"),
    [
        ((), "Start it first: run StartStreamingJobOperator."),
        (("streambank", "flights"), "Start it first: trigger flights.run."),
    ],
)
def test_a_wait_that_failed_in_the_triggerer_says_what_to_do_in_the_words_of_its_dag(
    monkeypatch: pytest.MonkeyPatch, tags: tuple[str, ...], way_out: str
) -> None:
    """The triggerer does not know the DAG, so it hands on the hint as the engine has it."""
    error = NotFoundError(
        "It was never started.", code="no-records", hint="Start it first: `streambank job start flights`."
    )
    event = JobStatusTrigger(job="flights", states=["running"])._failure(error, 1)
    assert event is not None
    with DAG("flights.sla", tags={*tags}) as dag:
        sensor = StreamingJobStatusSensor(task_id="task", job="flights")
    monkeypatch.setattr(
        "streambank_airflow.hints.get_current_context", lambda: {"task": dag.get_task("task")}
    )

    with pytest.raises(AirflowFailException) as caught:
        sensor.raise_for_error(event)

    assert str(caught.value) == f"It was never started. [no-records]\nHint: {way_out}"
