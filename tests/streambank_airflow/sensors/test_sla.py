"""The sensor on an SLA, with findings as a test says."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.sla.assess import Assessment
from streambank_airflow.sensors.sla import SlaSensor
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.declared import write_jobs
from tests.support.sla.fake_assessments import AT, Assessor, assessor
from tests.support.waiting import poll

__all__ = ["assessor"]


@pytest.fixture
def jobs_file(tmp_path: Path) -> str:
    return str(write_jobs(tmp_path))


@pytest.mark.usefixtures("airflow_database")
@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.storm), True])
def test_work_begins_when_the_sla_is_kept_again(assessor: Assessor, jobs_file: str, deferrable: bool) -> None:
    assessor.says(watermark_lag="breach", hot_key="unknown")
    with DAG("one_sensor", schedule=None) as dag:
        SlaSensor(
            task_id="task",
            job="flights",
            jobs_file=jobs_file,
            deferrable=deferrable,
            poke_interval=0.05,
            timeout=60,
        )

    def heal() -> None:
        poll(lambda: len(assessor.asked) >= 3)
        assessor.says(watermark_lag="warn", hot_key="unknown")

    healer = threading.Thread(target=heal)
    healer.start()
    run = run_dag(dag)
    healer.join()

    assert task_states(run) == {"task": "success"}
    assert len(assessor.asked) >= 4
    result = xcom(run, "task")
    assert {name: result[name] for name in ("job", "state", "sla", "level", "broken", "sla_why")} == {
        "job": "flights",
        "state": "never-started",
        "sla": "kept",
        "level": "ok",
        "broken": "",
        "sla_why": "",
    }


def judge(assessor: Assessor, jobs_file: str | None, **how: Any) -> Any:
    """What one look of a sensor ends with; None where it goes on waiting."""
    sensor = SlaSensor(task_id="task", **{"job": "flights", "jobs_file": jobs_file, **how})
    return sensor.poke({}).xcom_value


def test_it_may_wait_for_a_breach_instead(assessor: Assessor, jobs_file: str) -> None:
    assessor.says(growth="warn")
    assert judge(assessor, jobs_file, until="broken") is None

    found = judge(assessor, jobs_file, until="broken", least="warn")

    assert (found["sla"], found["level"], found["broken"]) == ("broken", "warn", "growth")
    assert found["sla_why"] == "It is warn."


def test_only_named_objectives_count_and_skew_is_looked_at_only_for_them(
    assessor: Assessor, jobs_file: str
) -> None:
    assessor.says(growth="breach", pause="ok", partition_skew="ok")

    assert judge(assessor, jobs_file) is None
    assert judge(assessor, jobs_file, objectives=["pause"])["sla"] == "kept"
    assert judge(assessor, jobs_file, objectives=["partition_skew"])["sla"] == "kept"
    assert [skew for _, _, skew in assessor.asked] == [True, False, True]


def test_what_never_comes_is_said_at_once(assessor: Assessor, jobs_file: str) -> None:
    assessor.says(pause="breach")

    with pytest.raises(AirflowFailException, match="The objective source_lag of job flights is not judged"):
        judge(assessor, jobs_file, objectives=["source_lag"])
    with pytest.raises(
        AirflowFailException, match="Job flights is never-started, so this wait cannot succeed"
    ):
        judge(assessor, jobs_file, failed_states=["never-started"])
    with pytest.raises(InputError, match="least must be one of"):
        judge(assessor, jobs_file, least="ok")


def test_what_is_declared_meanwhile_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_jobs(tmp_path)
    seen: list[Any] = []

    def assess(job: Job, **how: Any) -> Assessment:
        seen.append(job.sla.mute and job.sla.mute.why)
        return Assessment(job.name, AT, ())

    monkeypatch.setattr("streambank_airflow.watch.sla.assess_job", assess)
    sensor = SlaSensor(task_id="task", job="flights", jobs_file=str(file))
    watcher = sensor.make_trigger().open_watcher(sensor.hook)

    watcher.look()
    mute = 'mute = {until = 2030-01-01T00:00:00Z, why = "moving house"}'
    file.write_text(f"{file.read_text()}\n[jobs.flights.sla]\n{mute}\n")
    watcher.look()

    assert seen == [None, "moving house"]


def test_a_query_that_is_not_declared_is_watched_by_its_checkpoint(assessor: Assessor) -> None:
    assessor.says("sales", pause="ok")

    found = judge(assessor, None, job="sales", checkpoint="/data/sales")

    assert (found["state"], found["sla"]) == ("unmanaged", "kept")
    assert assessor.asked == [("/data/sales", None, True)]
