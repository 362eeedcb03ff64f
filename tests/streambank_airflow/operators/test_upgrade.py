"""Upgrades, run by Airflow on a job without Spark: what they leave, and what a form may ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.triggers.base import TriggerEvent

from streambank.code.chosen import as_chosen
from streambank.control.claims import Claims
from streambank.core.signing import VARIABLE, new_key
from streambank.driver.spec import HOLDER
from streambank.upgrade.record import newest_upgrade
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.operators.base import REPORT_KEY
from streambank_airflow.operators.upgrade import UpgradeStreamingJobOperator
from streambank_airflow.triggers.base import JobTrigger
from streambank_airflow.triggers.job import DriverStaysTrigger, JobReadyTrigger
from streambank_airflow.watch.job import JobView
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


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With them any host can prove what ran before; to be asked for before the job."""
    new_key(tmp_path / "signing-keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "signing-keys"))


def test_the_new_code_is_watched_in_the_triggerer(
    keys: None, running: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def watched(kind: type[JobTrigger]) -> None:
        wait = kind.run

        async def run(self: JobTrigger) -> AsyncIterator[TriggerEvent]:
            claim = Claims(running.control.store, HOLDER).view()
            last = newest_upgrade(running.control)
            seen.append((kind, claim is not None and claim.free, last and last.state))
            async for event in wait(self):
                yield event

        monkeypatch.setattr(kind, "run", run)

    watched(JobReadyTrigger)
    watched(DriverStaysTrigger)
    run = run_dag(dag_of(running, deferrable=True, poll_interval_s=0.05))
    assert task_states(run) == {"upgrade": "success"}
    assert seen == [(JobReadyTrigger, True, "swapped"), (DriverStaysTrigger, True, "swapped")]
    result = xcom(run, "upgrade")
    assert (result["state"], result["resumed"], result["warm"]) == ("upgraded", False, True)
    assert result["steps"]["watch"] >= 1.0 and result["without_processing_s"] > 0
    assert "| Upgrade | upgraded |" in xcom(run, "upgrade", REPORT_KEY)


@pytest.mark.storm
def test_new_code_that_dies_while_the_triggerer_watches_is_undone(
    keys: None, running: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.declare('[[jobs.flights.sinks]]\nkind = "idempotent-by-key"\n')
    chat, look = running.declare_alerts("upgrade-failed"), DriverStaysTrigger.outcome
    looks: list[str | None] = []

    def outcome(self: DriverStaysTrigger, view: JobView) -> str | None:
        looks.append(look(self, view))
        if looks == [None]:
            running.kill()
        return looks[-1]

    monkeypatch.setattr(DriverStaysTrigger, "outcome", outcome)
    run = run_dag(dag_of(running, deferrable=True, poll_interval_s=0.05, watch_s=60.0, retries=2))
    assert task_states(run) == {"upgrade": "failed"}
    assert (looks[0], looks[-1]) == (None, "changed")
    result = xcom(run, "upgrade")
    assert (result["state"], result["code"]) == ("undone", "new-code-failed")
    assert result["steps"]["watch"] < 60.0 and running.driver_lives()
    (alert,) = told(chat)
    assert alert.startswith("upgrade-failed: ")


def test_a_form_runs_no_code_from_elsewhere(managed: Managed) -> None:
    """What it takes: tests/attacks/test_upgrade_form.py."""
    for asked in ({"application": "/elsewhere/app.py"}, {"conf": {"spark.jars": "/elsewhere.jar"}}):
        task: Any = dag_of(managed, from_form=True, **asked).get_task("upgrade")
        with pytest.raises(AirflowFailException, match="form"):
            task.execute({})
    task = build_dags(managed.jobs_file)["flights.upgrade"].get_task("upgrade")
    assert task.from_form
