"""Drills, run by Airflow beside a job without Spark: what they leave, and how they end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streambank.code.vouched import state_folder
from streambank.control.control import JobControl
from streambank.control.drills import drills_of
from streambank.control.processes import ProcessId
from streambank.core.units import utc_now
from streambank.drills.each import RoundReport
from streambank.job.savepoint import savepoint_job
from streambank.repository.catalog import listed
from streambank.storage import local_path, open_store
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.operators.base import REPORT_KEY
from streambank_airflow.operators.drill import RunDrillOperator
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.airflow_face.notifiers import told
from tests.support.jobs.managed_job import BY, Managed
from tests.support.repository.damaged_savepoints import damage_alone
from tests.support.waiting import poll

pytestmark = [pytest.mark.usefixtures("airflow_database"), pytest.mark.timeout(120)]


@pytest.fixture
def saved(managed: Managed) -> Managed:
    """A running job with a savepoint, and batches after it; then it commits no more, and so purges none."""
    managed.start()
    managed.wait_for_batch(2)
    poll(lambda: managed.control.query_facts() is not None)
    savepoint_job(managed.job, by=BY)
    batches = managed.last_batch() + 6
    managed.hangs.write_text(str(batches), encoding="utf-8")
    managed.wait_for_batch(batches - 1)
    return managed


dag_of = partial(one_task, RunDrillOperator, dag_id="one_drill", task_id="drill", retries=0)


def copies(managed: Managed) -> list[Path]:
    """What drills have left beside the checkpoint."""
    return list((managed.folder / "checkpoints/flights.drills/flights").glob("*"))


def reports(managed: Managed) -> list[dict[str, Any]]:
    return list(drills_of(managed.control))


def test_a_drill_leaves_its_report_and_the_job_runs_on(saved: Managed) -> None:
    before = saved.control.lease.view()
    run = run_dag(dag_of(saved, batches="{{ 2 }}", note="the audit"))
    kept = [one.name for one in state_folder("flights").parent.iterdir()]
    assert "flights" in kept and not [one for one in kept if "drill" in one], "nothing goes back to its code"

    assert task_states(run) == {"drill": "success"}
    result, shown = xcom(run, "drill"), xcom(run, "drill", REPORT_KEY)
    (query,) = result["queries"]
    assert (result["passed"], result["failed_step"], result["code"]) == (True, None, None)
    assert (query["batches"], query["state_equal"], query["differences"]) == (2, True, [])
    assert result["rto_s"] > 0 and result["rpo_s"] >= 0 and result["scratch"] is None
    assert xcom(run, "drill", "rto_s") == result["rto_s"], "each field is a separate XCom"
    facts = ("| Drill | passed |", "s, as in the live query: ", "| Step restore |", "| RPO |")
    for fact in facts:
        assert fact in shown
    assert "| Not compared | the live query's progress" in shown
    (report,) = reports(saved)
    assert (report["why"], report["by"]["task_id"]) == ("the audit", "drill")
    after = saved.control.lease.view()
    assert before is not None and after is not None
    assert saved.driver_lives() and after.epoch == before.epoch
    assert copies(saved) == []


def test_a_drill_that_fails_fails_the_task_for_good_and_its_report_is_kept(
    saved: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    chat = saved.declare_alerts("drill-failed")
    saved.differs.touch()
    dag = dag_of(saved, retries=3)
    run = run_dag(dag)

    assert task_states(run) == {"drill": "failed"}
    assert len(reports(saved)) == 1, "a retry would find the same"
    result = xcom(run, "drill")
    assert (result["passed"], result["failed_step"], result["code"]) == (False, "compare", "drill-differs")
    assert "| Differs | the output of batch" in xcom(run, "drill", REPORT_KEY)
    said = capfd.readouterr().out
    assert "The drill of job flights failed at the step compare: The copy did not compute" in said
    assert "RunDrillOperator with `keep=True` leaves the copy" in said
    run_dag(dag)
    (alert,) = told(chat)
    assert alert.startswith("drill-failed: one_drill.drill: The drill of job flights failed at the step")
    assert saved.driver_lives() and copies(saved) == []

    saved.differs.unlink()
    assert task_states(run_dag(dag)) == {"drill": "success"}, "the negative control"


@pytest.mark.storm
def test_each_savepoint_is_drilled_and_those_that_fail_are_named(
    saved: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the DAG, since its form and schedule ask by templates."""
    saved.hangs.write_text(str(saved.last_batch() + 4), encoding="utf-8")
    saved.wait_for_batch(saved.last_batch() + 1)
    savepoint_job(saved.job, by=BY)
    newest, older = sorted((one for _, one in listed(saved.repository.store)), reverse=True)
    saved.declare('\n[jobs.flights.drill]\nsavepoint = "each"\nbatches = 1\n')
    dag = build_dags(saved.jobs_file)["flights.drill"]
    damage_alone(saved.repository, "flights", older)
    run = run_dag(dag)

    assert task_states(run) == {"drill": "failed"}
    result, shown = xcom(run, "drill"), xcom(run, "drill", REPORT_KEY)
    assert (result["passed"], result["failed_step"]) == (False, reports(saved)[0]["failed_step"])
    assert [one["savepoints"] for one in result["drills"]] == [{"main": newest}, {"main": older}]
    assert result["rto_s"] == result["drills"][0]["rto_s"] > 0
    assert "| Drill | 1 of 2 passed |" in shown
    assert f"| Drill of {newest} | passed, RTO " in shown
    assert f"| Drill of {older} | " in shown and " old, failed at the step " in shown
    said = capfd.readouterr().out
    assert f"Of the drills of job flights 1 of 2 failed: {older} at the step " in said
    assert f"Drill of job flights: savepoint 2 of 2: {older}." in said

    # The negative control: the newest alone.
    run = run_dag(dag, run_conf={"limit": 1})
    assert task_states(run) == {"drill": "success"}
    assert [one["savepoints"] for one in xcom(run, "drill")["drills"]] == [{"main": newest}]


@pytest.mark.storm
def test_the_retry_of_a_task_that_was_killed_goes_on_with_what_is_left(saved: Managed) -> None:
    saved.hangs.write_text(str(saved.last_batch() + 4), encoding="utf-8")
    saved.wait_for_batch(saved.last_batch() + 1)
    savepoint_job(saved.job, by=BY)
    newest, older = sorted((one for _, one in listed(saved.repository.store)), reverse=True)

    def kill() -> None:
        poll(lambda: len(reports(saved)) == 1, timeout_s=60)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=kill)
    thread.start()
    run = run_dag(dag_of(saved, savepoint="each", batches=1, retries=1, retry_delay=timedelta(0)))
    thread.join()

    assert task_states(run) == {"drill": "success"}
    result = xcom(run, "drill")
    assert (result["passed"], result["resumed"]) == (True, 1)
    assert [one["round"]["savepoints"]["main"] for one in reports(saved)] == [older, newest]
    assert copies(saved) == []


def test_the_message_of_many_that_failed_names_three_and_the_report_all(tmp_path: Path) -> None:
    drills = tuple(
        {
            "passed": False,
            "round": {"savepoints": {"main": f"b00000{number}"}},
            "failed_step": "restore",
            "code": "savepoint-damaged",
            "error": "It is damaged.",
        }
        for number in range(1, 6)
    )
    report = RoundReport("r", "flights", "file:///r", drills, (), 0, utc_now(), 1.0)
    operator = RunDrillOperator(task_id="drill", job="flights", jobs_file=str(tmp_path / "jobs.toml"))
    says = operator._failure(report).message
    assert "b000003" in says and "b000004" not in says and says.endswith("; and 2 more.")
    assert report.error.count("at the step") == 5


@pytest.mark.storm
def test_a_copy_that_takes_too_long_fails_and_may_be_kept(
    saved: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    saved.hangs.write_text("0", encoding="utf-8")
    run = run_dag(dag_of(saved, batches=0, timeout_s="4s", keep=True))  # the copy starts in less

    result = xcom(run, "drill")
    assert (result["failed_step"], result["code"]) == ("batches", "drill-timeout")
    assert "run RunDrillOperator with fewer `batches`" in capfd.readouterr().out
    kept = local_path(result["scratch"])
    assert kept is not None and copies(saved) == [kept]
    assert (kept / "checkpoint/main/commits").is_dir()


@contextmanager
def once_it_runs(managed: Managed, act: Callable[[], None]) -> Iterator[list[ProcessId]]:
    """Do something as soon as the driver of a copy lives; its processes are there afterwards."""
    found: list[ProcessId] = []

    def is_there() -> bool:
        for records in (managed.folder / "checkpoints/flights.drills/flights").glob("*/control/*"):
            view = JobControl(open_store(records), records.name).lease.view()
            if view is not None and view.state == "live" and view.holder is not None:
                found.extend(view.holder.processes)
                return True
        return False

    def work() -> None:
        poll(is_there)
        act()

    thread = threading.Thread(target=work)
    thread.start()
    yield found
    thread.join()


def test_a_task_that_is_killed_ends_the_driver_and_removes_the_copy(saved: Managed) -> None:
    saved.hangs.write_text("0", encoding="utf-8")  # or it would end by itself
    with once_it_runs(saved, lambda: os.kill(os.getpid(), signal.SIGTERM)) as found:
        run = run_dag(dag_of(saved, batches=0, timeout_s="30s"))

    assert task_states(run) == {"drill": "failed"}
    assert found and not any(one.is_living() for one in found)
    assert copies(saved) == []
    assert reports(saved) == [], "it has found nothing out"
    assert saved.driver_lives()


def test_after_the_drill_a_kill_ends_nothing(saved: Managed) -> None:
    operator = dag_of(saved).get_task("drill")
    assert isinstance(operator, RunDrillOperator)
    operator.on_kill()  # as after a timeout, once `execute` is over


@pytest.mark.parametrize("asked", ["False", "True"])
def test_a_drill_says_that_it_needs_its_worker_where_tasks_defer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], asked: str
) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", asked)
    operator = RunDrillOperator(task_id="drill", job="flights")
    with operator.killable("drill", "its copy goes."):
        assert ("holds its slot until its end" in capfd.readouterr().out) == (asked == "True")
