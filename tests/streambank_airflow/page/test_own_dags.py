"""Jobs that only DAGs of one's own work on: listed, opened, and shown to those who may read such a DAG."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.sdk import DAG

from streambank_airflow.assets import page_asset
from streambank_airflow.operators.job import StartStreamingJobOperator, StopStreamingJobOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator
from streambank_airflow.operators.sla import CheckSlaOperator
from streambank_airflow.page import keep
from streambank_airflow.page.own_dags import own_dags
from streambank_airflow.page.store import DAGS, LINE
from streambank_airflow.sensors.job import BatchCommittedSensor
from tests.support.airflow_face.metadata_db import run_dag, task_states, write_dags
from tests.support.airflow_face.page_api import PageApi, keep_line, page_api, page_on, write_job
from tests.support.airflow_face.page_values import DatabaseValues
from tests.support.jobs.declared import write_jobs

__all__ = ["page_api", "page_on"]

Make = Callable[[dict[str, Any]], Any]


def own(folder: Path, dag_id: str, *make: Make, job: str = "", **more: Any) -> DAG:
    """A DAG of one's own: each function gets the job and its file, as arguments of an operator."""
    folder.mkdir(parents=True, exist_ok=True)
    name = job or dag_id
    where = {"job": name, "jobs_file": str(write_jobs(folder, name=name))}
    with DAG(dag_id, schedule=None, render_template_as_native_obj=True, **more) as dag:
        for one in make:
            one(where)
    return dag


def start(where: dict[str, Any]) -> Any:
    return StartStreamingJobOperator(task_id="start", **where)


def stop(where: dict[str, Any]) -> Any:
    return StopStreamingJobOperator(task_id="stop", **where)


def take(where: dict[str, Any]) -> Any:
    return CreateSavepointOperator(task_id="take", **where)


def check(where: dict[str, Any]) -> Any:
    return CheckSlaOperator(task_id="check", **where, on_breach="report", tell=False)


def entry(page_api: PageApi, job: str, **how: Any) -> dict[str, Any] | None:
    """A job's entry in the list."""
    found = [one for one in page_api.get("jobs", **how).json()["jobs"] if one["job"] == job]
    return found[0] if found else None


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """DAGs that nobody may read."""
    found: set[str] = set()
    ask = SimpleAuthManager.filter_authorized_dag_ids

    def but_hidden(self: Any, *, dag_ids: set[str], **how: Any) -> set[str]:
        return ask(self, dag_ids=dag_ids, **how) - found

    monkeypatch.setattr(SimpleAuthManager, "filter_authorized_dag_ids", but_hidden)
    yield found


def test_a_job_is_on_the_page_by_a_dag_that_names_it(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    """Before any of its tasks has run."""
    write_dags(own(tmp_path, "etl", start, take, stop))

    found = entry(page_api, "etl")
    assert found is not None and found["dag"] == "etl" and not found["built"] and found["line"] is None
    for role, may in (("viewer", False), ("user", True)):
        shown = page_api.get("jobs/etl", role=role).json()
        assert shown["dags"] == []
        (dag,) = shown["own"]
        assert dag["dag_id"] == "etl" and dag["verbs"] == ["run", "stop", "savepoint"]
        assert dag["may"]["trigger"] == may
    assert page_api.get("dags/etl").json()["jobs"] == ["etl"]
    assert page_api.get("dags/nothing").json()["jobs"] == []
    assert page_api.get("dags/etl", role=None).status_code == 401


def test_it_is_so_where_variables_keep_the_page(
    tmp_path: Path, page_on: None, page_api: PageApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Airflow 3.3, and with a state store of one's own."""
    monkeypatch.setenv("AIRFLOW__STATE_STORE__BACKEND", "acme.Store")
    write_dags(own(tmp_path, "by-variables", start, check))

    found = entry(page_api, "by-variables")
    assert found is not None and not found["built"] and found["line"] is None
    assert [one["verbs"] for one in page_api.get("jobs/by-variables").json()["own"]] == [["run", "sla"]]


def test_its_tasks_keep_what_the_page_shows(tmp_path: Path, page_on: None, page_api: PageApi) -> None:
    run = run_dag(own(tmp_path, "nightly-check", check))

    assert task_states(run) == {"check": "success"}
    shown = page_api.get("jobs/nightly-check").json()
    assert shown["line"]["job"] == "nightly-check" and shown["line"]["state"] == "never-started"
    assert page_api.get("jobs/nightly-check/status").json()["job"] == "nightly-check"


def test_who_may_read_one_of_its_dags_sees_the_job(
    tmp_path: Path, page_on: None, page_api: PageApi, hidden: set[str]
) -> None:
    write_dags(
        own(tmp_path, "first", start, job="shared"),
        own(tmp_path, "second", start, job="shared"),
        own(tmp_path, "waits", lambda where: BatchCommittedSensor(task_id="wait", **where), job="shared"),
    )
    keep_line("shared")
    assert [one["dag_id"] for one in page_api.get("jobs/shared").json()["own"]] == ["first", "second"]

    hidden.add("first")
    found = entry(page_api, "shared")
    assert found is not None and found["dag"] == "second"
    assert [one["dag_id"] for one in page_api.get("jobs/shared").json()["own"]] == ["second"]
    assert page_api.get("dags/first").json()["jobs"] == []
    # A DAG that only waits for a job does not serve it.
    hidden.add("second")
    assert entry(page_api, "shared") is None
    for path in ("jobs/shared", "jobs/shared/status"):
        assert page_api.get(path).status_code == 404
    assert page_api.get("dags/waits").json()["jobs"] == []


def test_dags_that_were_built_decide_where_there_are_some(
    tmp_path: Path, page_on: None, page_api: PageApi, hidden: set[str]
) -> None:
    write_job(tmp_path / "jobs", "both", only=("run", "savepoint"))
    write_dags(own(tmp_path / "own", "both-at-night", take, job="both"))

    shown = page_api.get("jobs/both").json()
    assert [one["verb"] for one in shown["dags"]] == ["run", "savepoint"]
    assert [(one["dag_id"], one["verbs"]) for one in shown["own"]] == [("both-at-night", ["savepoint"])]
    hidden.add("both.run")
    assert page_api.get("jobs/both").status_code == 404


def test_a_dag_that_is_only_called_so_is_one_of_ones_own(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    """Its form is its own, so no form of ours is sent to it."""
    write_dags(own(tmp_path, "named.restore", stop, job="named"), own(tmp_path, "named.run", job="named"))

    shown = page_api.get("jobs/named").json()
    assert shown["dags"] == []
    assert [(one["dag_id"], one["verbs"]) for one in shown["own"]] == [("named.restore", ["stop"])]


def test_a_dag_that_is_tagged_as_ours_is_one_of_ones_own(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    """As the examples are, and what people make of them."""
    tags = {"streambank", "example"}
    write_dags(
        own(tmp_path, "tagged.run", start, job="tagged", tags=tags),
        own(tmp_path, "tagged.hourly", take, job="tagged", tags={"streambank", "tagged"}),
    )

    shown = page_api.get("jobs/tagged").json()
    assert shown["dags"] == []
    assert {one["dag_id"] for one in shown["own"]} == {"tagged.run", "tagged.hourly"}


def test_a_dag_that_loses_its_task_shows_the_job_no_more(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    write_dags(own(tmp_path, "changing", start))
    assert page_api.get("jobs/changing").json()["own"][0]["verbs"] == ["run"]

    write_dags(own(tmp_path, "changing", stop))
    assert page_api.get("jobs/changing").json()["own"][0]["verbs"] == ["stop"]

    write_dags(own(tmp_path, "changing"))
    assert page_api.get("jobs/changing").status_code == 404


class CheckAtNight(CheckSlaOperator):
    """As users make operators of their own."""


def templated(where: dict[str, Any]) -> Any:
    return CheckAtNight(
        task_id="check", **{**where, "job": "{{ params.job }}"}, on_breach="report", tell=False
    )


def test_a_job_that_only_a_run_knows_is_noted_by_the_task(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    write_dags(own(tmp_path, "known", start))
    dag = own(tmp_path, "by-form", templated, job="known", params={"job": "known"})
    write_dags(dag)
    assert [one["dag_id"] for one in page_api.get("jobs/known").json()["own"]] == ["known"]
    keep_line("known")

    run_dag(dag)

    found = page_api.get("jobs/known").json()
    assert found["line"]["state"] == "never-started"
    assert [(one["dag_id"], one["verbs"]) for one in found["own"]] == [
        ("by-form", ["sla"]),
        ("known", ["run"]),
    ]
    assert page_api.get("dags/by-form").json()["jobs"] == ["known"]
    DatabaseValues("known").set(DAGS, {"by-form": {"on": "2020-01-01", "verbs": ["sla"]}})
    assert [one["dag_id"] for one in page_api.get("jobs/known").json()["own"]] == ["known"]
    DatabaseValues("known").set(DAGS, {"by-form": "nonsense"})
    assert page_api.get("jobs/known").status_code == 200


def test_a_job_that_no_dag_names_has_no_page_and_says_so_once(
    tmp_path: Path, page_on: None, page_api: PageApi, caplog: pytest.LogCaptureFixture
) -> None:
    dag = own(tmp_path, "unnamed", templated, params={"job": "unnamed"})
    with caplog.at_level(logging.INFO, keep.__name__):
        run = run_dag(dag)

    assert task_states(run) == {"check": "success"}
    (said,) = [one for one in caplog.records if one.name == keep.__name__]
    assert said.levelno == logging.INFO and 'inlets=[page_asset("unnamed")]' in said.getMessage()
    assert page_api.get("jobs/unnamed").status_code == 404


def test_a_dag_may_name_the_page_of_a_job_that_its_tasks_get_by_a_template(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    def named(where: dict[str, Any]) -> Any:
        CheckAtNight(task_id="first", jobs="all", inlets=[page_asset("told")])
        return templated(where)

    run_dag(own(tmp_path, "tells", named, job="told", params={"job": "told"}))

    assert DatabaseValues("told").get(LINE)["job"] == "told"
    assert [one["verbs"] for one in page_api.get("jobs/told").json()["own"]] == [["sla"]]


def test_a_dag_of_ones_own_takes_no_page_of_another_job_of_the_name(
    tmp_path: Path, page_on: None, caplog: pytest.LogCaptureFixture
) -> None:
    run_dag(own(tmp_path / "one", "one-way", check, job="twice"))
    first = DatabaseValues("twice").get(LINE)
    with caplog.at_level(logging.INFO, keep.__name__):
        run_dag(own(tmp_path / "other", "other-way", check, job="twice"))

    assert DatabaseValues("twice").get(LINE) == first
    assert keep.OTHER_JOB.partition("%s")[0] in caplog.text
    DatabaseValues("twice").set(LINE, {**first, "at": "2020-01-01T00:00:00Z"})
    run_dag(own(tmp_path / "other", "other-way", check, job="twice"))
    assert DatabaseValues("twice").get(LINE)["identity"] != first["identity"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"job": "flights"}, "flights"),
        ({"job": "flights/hourly"}, "flights"),
        ({"job": "{{ params.job }}"}, None),
        ({"job": "flights@eu"}, None),
        ({"job": "no such name!"}, None),
        ({"job": "adhoc", "checkpoint": "file:///c"}, None),
    ],
)
def test_a_task_names_the_page_of_a_declared_job(
    page_on: None, arguments: dict[str, Any], named: str | None
) -> None:
    with DAG("names"):
        task = CreateSavepointOperator(task_id="take", **arguments)
    pages = [one for one in task.inlets if one.name.endswith("/page")]
    assert pages == ([page_asset(named)] if named else [])


def test_no_task_names_a_page_where_the_page_is_off() -> None:
    with DAG("off"):
        task = CreateSavepointOperator(task_id="take", job="flights")
    assert task.inlets == []


def test_inlets_that_several_tasks_share_stay_as_they_are(page_on: None) -> None:
    shared: list[Any] = []
    with DAG("shares", default_args={"inlets": shared}):
        for number in (1, 2):
            CreateSavepointOperator(task_id=f"take{number}", job="flights")
    assert shared == []


def test_a_dag_of_no_job_is_of_none(airflow_database: None) -> None:
    from airflow.utils.session import create_session

    with create_session() as session:
        assert own_dags(session, "nobody").get("nobody", []) == []
