"""The operator that diagnoses a job, run by Airflow, with findings as a test says."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.core.errors import ConflictError, InputError
from streambank.core.finding import Finding
from streambank.doctor import diagnose
from streambank.doctor.checks import installation
from streambank.doctor.diagnose import Diagnosis
from streambank_airflow.operators.doctor import DiagnoseStreamingJobOperator
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.declared import write_jobs

pytestmark = pytest.mark.usefixtures("airflow_database")


@pytest.fixture
def jobs_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(installation, "check_job_installation", lambda python, spark_home: [])
    return write_jobs(tmp_path)


def says(monkeypatch: pytest.MonkeyPatch, *severities: Any) -> None:
    """Let a diagnosis have a finding of each severity."""
    found = tuple(
        Finding(f"{one}-code", one, "state", "It was seen.", "It hurts.", "Mend it.") for one in severities
    )
    monkeypatch.setattr(
        diagnose,
        "diagnose_job",
        lambda job, query, jobs: (Diagnosis(job.name, query or "main", "file:///ck", found),),
    )


def dag_of(jobs_file: Path, **arguments: Any) -> DAG:
    with DAG("one_diagnosis", schedule=None) as dag:
        DiagnoseStreamingJobOperator(
            task_id="doctor", job="flights", jobs_file=str(jobs_file), **{"retries": 0, **arguments}
        )
    return dag


@pytest.mark.parametrize(
    ("severities", "fail_on", "state"),
    [
        (("warning", "info"), "error", "success"),
        (("info", "error"), "error", "failed"),
        (("warning",), "warning", "failed"),
        (("error",), "never", "success"),
        ((), "warning", "success"),
    ],
)
def test_what_fails_the_task(
    jobs_file: Path, monkeypatch: pytest.MonkeyPatch, severities: tuple[str, ...], fail_on: str, state: str
) -> None:
    says(monkeypatch, *severities)
    run = run_dag(dag_of(jobs_file, fail_on=fail_on))
    assert task_states(run) == {"doctor": state}
    result = xcom(run, "doctor")
    assert [one["severity"] for one in result["findings"]] == [*severities]
    assert result["errors"] == severities.count("error") and result["warnings"] == severities.count("warning")
    assert (result["worst"] is None) == (not {"error", "warning"} & {*severities})


def test_a_form_may_leave_it_out(jobs_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, "error")
    assert task_states(run_dag(dag_of(jobs_file, only_if="{{ 1 == 2 }}"))) == {"doctor": "skipped"}


def test_the_cure_is_in_airflows_words(jobs_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Finding(
        "checkpoint-lost", "error", "", "It is gone.", "It hurts.", "Restore it: `streambank restore`."
    )
    found = (Diagnosis("flights", "main", "file:///ck", (lost,)),)
    monkeypatch.setattr(diagnose, "diagnose_job", lambda job, query, jobs: found)
    run = run_dag(dag_of(jobs_file))
    (finding,) = xcom(run, "doctor")["findings"]
    assert finding["hint"] == "Restore it: run RestoreSavepointOperator."
    assert "Hint: Restore it: run RestoreSavepointOperator." in xcom(run, "doctor")["worst"]


def test_findings_are_in_the_log_with_their_cure(
    jobs_file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    says(monkeypatch, "warning")
    run_dag(dag_of(jobs_file))
    said = capfd.readouterr().out
    assert "warning: warning-code state [query main]: It was seen. It hurts. Hint: Mend it." in said


def test_what_cannot_be_read_now_is_tried_again(jobs_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def moving(job: Any, query: Any, jobs: Any) -> tuple[Diagnosis, ...]:
        tries.append(1)
        if len(tries) == 1:
            raise ConflictError("It moved.", code="checkpoint-moved", hint="Ask again.")
        return ()

    monkeypatch.setattr(diagnose, "diagnose_job", moving)
    dag = dag_of(jobs_file, retries=1, retry_delay=timedelta(milliseconds=1))
    assert task_states(run_dag(dag)) == {"doctor": "success"} and len(tries) == 2


def test_a_mistake_in_its_arguments_is_told_when_the_dag_is_read(jobs_file: Path) -> None:
    with pytest.raises(InputError):
        dag_of(jobs_file, fail_on="sometimes")
