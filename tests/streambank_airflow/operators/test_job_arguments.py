"""Arguments of the application for one launch, from the task that launches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.code.chosen import choose_code, newest_choice
from streambank.code.code import Code
from streambank.code.vouched import vouch
from streambank.driver.fingerprints import application_fingerprint
from streambank.driver.spec import LaunchSpec, read_launch
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.job import (
    KeepStreamingJobRunningOperator,
    RestartStreamingJobOperator,
    StartStreamingJobOperator,
)
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.jobs.managed_job import BY, Managed, meanwhile
from tests.support.waiting import poll

pytestmark = pytest.mark.usefixtures("airflow_database")


def newest(managed: Managed) -> LaunchSpec:
    view = managed.control.lease.view()
    assert view is not None and view.launch_id is not None
    return read_launch(managed.control, view.launch_id)


def args(period_s: str) -> Sequence[str]:
    return ["--period-s", period_s]


def test_a_start_and_a_restart_launch_with_what_they_say(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    with DAG("own", schedule=None, params={"period": "0.2"}) as dag:
        start = StartStreamingJobOperator(
            task_id="start",
            job="flights",
            jobs_file=managed.jobs_file,
            application_args=["--period-s", "{{ params.period }}"],
        )
        again = StartStreamingJobOperator(
            task_id="again", job="flights", jobs_file=managed.jobs_file, application_args=args("0.3")
        )
        start >> again
    run = run_dag(dag)

    assert set(task_states(run).values()) == {"success"}
    assert newest(managed).args == ("--period-s", "0.2")
    assert xcom(run, "again", "state") == "already-running"
    assert "was launched with other arguments" in capfd.readouterr().out

    restart = one_task(RestartStreamingJobOperator, managed, application_args=args("0.3"))
    assert task_states(run_dag(restart)) == {"task": "success"}
    assert newest(managed).args == ("--period-s", "0.3")

    plain = one_task(RestartStreamingJobOperator, managed)
    assert task_states(run_dag(plain)) == {"task": "success"}
    assert newest(managed).args == managed.job.args


@pytest.mark.storm
def test_who_keeps_a_job_running_starts_it_again_with_its_own(managed: Managed) -> None:
    dag = one_task(
        KeepStreamingJobRunningOperator, managed, poll_interval_s=0.1, application_args=args("0.2")
    )
    began = partial(managed.wait_for_batch, 1)

    def restarted() -> bool:
        return len(managed.control.lease.recent_launches()) >= 2 and managed.driver_lives()

    with meanwhile(managed, began, managed.kill, lambda: poll(restarted, timeout_s=60), managed.stop):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    assert newest(managed).args == ("--period-s", "0.2")


def test_what_an_upgrade_has_chosen_still_counts(
    managed: Managed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    declared = Code.declared(managed.job)
    chosen = replace(declared, spark={"spark.chosen": "yes"})
    vouch(managed.control, "code", chosen.to_dict())
    choose_code(managed.control, declared, chosen, by=BY, why="a test")

    run = run_dag(one_task(StartStreamingJobOperator, managed, application_args=args("0.2")))

    assert task_states(run) == {"task": "success"}
    launch, choice = newest(managed), newest_choice(managed.control)
    assert launch.code is not None and launch.code["spark"] == {"spark.chosen": "yes"}
    assert launch.args == ("--period-s", "0.2")
    assert tuple(launch.code["args"]) == managed.job.args, "an upgrade goes back to what is declared"
    assert choice is not None and choice.code is not None and choice.counts(declared)


def test_a_savepoint_tells_the_arguments_of_the_driver_that_it_is_of(managed: Managed) -> None:
    hook = StreambankHook(jobs_file=managed.jobs_file)

    def fingerprint() -> Any:
        hook.jobs.stop("flights", savepoint=True)
        return hook.savepoints.show("flights").application["args_digest"]

    hook.jobs.start("flights", application_args=args("0.2"))
    assert fingerprint() == application_fingerprint(Path("app.py"), args("0.2"))["args_digest"]
    hook.jobs.start("flights")
    assert fingerprint() == application_fingerprint(Path("app.py"), managed.job.args)["args_digest"]
