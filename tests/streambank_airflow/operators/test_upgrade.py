"""Upgrades, run by Airflow on a job without Spark: what they leave, and what a form may ask."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from streambank.code.chosen import as_chosen
from streambank.upgrade.record import newest_upgrade
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.operators.base import REPORT_KEY
from streambank_airflow.operators.upgrade import UpgradeStreamingJobOperator
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.airflow_face.notifiers import told
from tests.support.jobs.managed_job import Managed
from tests.support.jobs.upgraded_job import deploy

pytestmark = [pytest.mark.usefixtures("airflow_database"), pytest.mark.timeout(180)]


@pytest.fixture
def running(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> Managed:
    """A running job, of which other code is declared than runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(managed.folder / "state"))
    managed.hangs.write_text("8", encoding="utf-8")
    managed.start()
    managed.wait_for_batch(7)
    deploy(managed)
    return managed


dag_of = partial(one_task, UpgradeStreamingJobOperator, dag_id="one_upgrade", task_id="upgrade", watch_s=1.0)


@pytest.mark.storm
def test_the_form_of_a_job_upgrades_it(running: Managed) -> None:
    dag = build_dags(running.jobs_file)["flights.upgrade"]
    run = run_dag(dag, run_conf={"watch": "1s", "conf": {"spark.sql.shuffle.partitions": 3}, "note": "v2"})
    assert task_states(run) == {"upgrade": "success"}
    result, shown = xcom(run, "upgrade"), xcom(run, "upgrade", REPORT_KEY)
    assert (result["state"], len(result["changes"]), result["resumed"]) == ("upgraded", 2, False)
    assert "| Upgrade | upgraded |" in shown and "| Without processing |" in shown
    done = newest_upgrade(running.control)
    assert done is not None and (done.why, done.by["task_id"]) == ("v2", "upgrade")
    assert done.after.spark == {"spark.sql.shuffle.partitions": "3"}
    again = build_dags(running.jobs_file)["flights.upgrade"]  # a run leaves its answers in the DAG
    only_shown = run_dag(again, run_conf={"plan_only": True})
    assert xcom(only_shown, "upgrade")["state"] == "planned", "the setting is not declared"
    assert newest_upgrade(running.control) == done


def test_an_upgrade_that_is_refused_fails_the_task_for_good(
    running: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    chat = running.declare_alerts("upgrade-failed")
    running.differs.touch()
    run = run_dag(dag_of(running, compare="values", retries=2))
    assert task_states(run) == {"upgrade": "failed"}
    result = xcom(run, "upgrade")
    assert (result["state"], result["code"]) == ("refused", "drill-differs")
    assert result["differences"]
    (alert,) = told(chat)
    assert alert.startswith("upgrade-failed: ")
    assert running.driver_lives()
    assert as_chosen(running.job, running.control)[1] is not None, "each start keeps to the old code"


def test_a_form_runs_no_code_from_elsewhere(managed: Managed) -> None:
    """What it takes: tests/attacks/test_upgrade_form.py."""
    for asked in ({"application": "/elsewhere/app.py"}, {"conf": {"spark.jars": "/elsewhere.jar"}}):
        task: Any = dag_of(managed, from_form=True, **asked).get_task("upgrade")
        with pytest.raises(AirflowFailException, match="form"):
            task.execute({})
    task = build_dags(managed.jobs_file)["flights.upgrade"].get_task("upgrade")
    assert task.from_form
