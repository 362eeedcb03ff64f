"""What Airflow renders of operators, sensors and notifiers, and what stays what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, BaseOperator, task

from streambank.core.errors import InputError
from streambank.declaration.load import read_given
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.notify.job_notifier import JobNotifier
from streambank_airflow.operators.base import FindsJobs
from streambank_airflow.operators.job import StartStreamingJobOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator
from tests.streambank_airflow.operators.test_base_declaration import given, said
from tests.streambank_airflow.operators.test_base_templates import OPERATORS, arguments
from tests.support.airflow_face.metadata_db import run_dag, task_states
from tests.support.airflow_face.notifiers import FILE_NOTIFIER, told
from tests.support.jobs.managed_job import Managed
from tests.support.refuses import refuses

pytestmark = pytest.mark.usefixtures("airflow_database")
TEXTS = ["1.10", "2026_11", "1e5", "00", "0x10", "None", "True", "[1, 2]", "{'a': 1}"]


def fields(folder: Path, **more: Any) -> dict[str, Any]:
    places = {name: str(folder / name) for name in ("application", "checkpoint", "repository")}
    return {"name": "a", **places, **more}


def rendered(operator: Any, **context: Any) -> Any:
    operator.render_template_fields({"params": {}, **context})
    return operator


@pytest.mark.parametrize(
    "operator", [each for each in OPERATORS if issubclass(each, FindsJobs)], ids=lambda each: each.__name__
)
def test_plain_text_stays_what_it_is_in_every_field(operator: type[BaseOperator]) -> None:
    with DAG("own", schedule=None, render_template_as_native_obj=True):
        one = operator(task_id="one", **arguments(operator, "{{ params.x }}"))
    for value in (*TEXTS, TEXTS, {"x": TEXTS}):
        for field in one.template_fields:
            setattr(one, field, value)
        rendered(one)
        assert {field: getattr(one, field) for field in one.template_fields} == dict.fromkeys(
            one.template_fields, value
        )


def test_tasks_of_build_dags_work_on_the_job_that_is_declared(tmp_path: Path) -> None:
    declared = fields(
        tmp_path,
        args=["--version", *TEXTS],
        description="None",
        tags=["1_0"],
        spark={"spark.a": "True", "spark.b": "0x10", "spark.c": "007", "spark.d": 3, "spark.e": True},
    )

    start: Any = build_dags(jobs=[declared], only=["run"])["a.run"].get_task("start")

    job = rendered(start).hook.declared.job("a")
    assert job == read_given([{**declared, "dag_folder": str(Path(__file__).parent)}]).job("a")


def test_a_number_of_a_template_is_its_text() -> None:
    with DAG("own", schedule=None, render_template_as_native_obj=True):
        start = StartStreamingJobOperator(
            task_id="start", job="a", application_args=["--hour", "{{ hour }}", "{{ n + 1 }}", "{{ many }}"]
        )

    assert rendered(start, hour="00", n=1, many=[1]).application_args == ["--hour", "00", "2", [1]]


def test_whom_a_declaration_alerts_is_rendered_with_the_alert(managed: Managed) -> None:
    file = managed.folder / "chat"
    chat = {"class": FILE_NOTIFIER, "args": {"file": str(file), "text": "{{ kind }}: {{ message }}"}}
    fields = given(managed, notify=[chat], sla={"notify": [chat]}, restore={"notify": [chat], "ask": [chat]})
    fields["description"] = "of {{ params.day }}"

    with DAG("own", schedule=None, params={"day": "monday"}) as dag:
        take = CreateSavepointOperator(task_id="take", job="flights", declaration=fields, name="a/b")

        @task(on_failure_callback=JobNotifier(job="flights", kind="giving-up", declaration=fields))
        def write() -> None:
            raise ValueError("the source is closed")

        write()

    assert task_states(run_dag(dag)) == {"take": "failed", "write": "failed"}
    assert told(file) == ["giving-up: own.write: the source is closed"]
    declared = rendered(take, params={"day": "monday"}).declaration
    assert declared["description"] == "of monday"
    assert [declared["notify"], declared["sla"]["notify"], declared["restore"]["ask"]] == [[chat]] * 3


@pytest.mark.parametrize("native", [True, False])
def test_a_declaration_that_is_nothing_works_on_no_other_job(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], native: bool
) -> None:
    monkeypatch.setenv("STREAMBANK_JOBS", str(managed.jobs_file))
    with DAG("own", schedule=None, params={"none": None}, render_template_as_native_obj=native) as dag:

        @task
        def nothing() -> None:
            return None

        given_as: dict[str, Any] = {
            "output": nothing(),
            "answer": "{{ params.none }}",
            "template": "{{ params.none or None }}",
            "text": "{{ '' }}",
            "empty": {},
        }
        for name, declaration in given_as.items():
            StartStreamingJobOperator(task_id=name, job="flights", declaration=declaration)

    states = task_states(run_dag(dag))

    assert states == {"nothing": "success", **dict.fromkeys(given_as, "failed")}
    assert "Nothing else is taken in place of it" in said(capfd)
    assert managed.control.lease.view() is None
    empty: list[Any] = [{}, ""]
    for nothing_at_all in empty:
        with refuses(InputError, "bad-declaration"):
            StreambankHook(declaration=nothing_at_all).declared.job("flights")
    assert StreambankHook(declaration=None).declared.job("flights").name == "flights"


def test_a_notifier_and_the_dags_of_jobs_take_no_other_job_either(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMBANK_JOBS", str(managed.jobs_file))
    text: Any = "{{ params.x }}"
    notifier = JobNotifier(job="flights", kind="restart", declaration=text)
    with pytest.raises(AirflowFailException, match="that is None"):
        notifier({"params": {"x": None}})
    with refuses(InputError, "bad-option", hint="Leave one of them out"):
        build_dags(managed.jobs_file, jobs=[])
    with refuses(InputError, "bad-declaration", hint="Name the job"):
        build_dags(jobs=[{}])
    assert build_dags(jobs=[]) == {}
