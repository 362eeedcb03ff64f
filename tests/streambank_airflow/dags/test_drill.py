"""`<job>.drill`: on its schedule, by its form, and beside a job that `<job>.run` keeps running."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ParamValidationError
from airflow.sdk import DAG, Param

from streambank.control.drills import drills_of, last_passed
from streambank.drills.report import DrillReport
from streambank.job.savepoint import savepoint_job
from streambank.sla.assess import assess_job
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.dags.stagger import staggered
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.drill import RunDrillOperator
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.airflow_face.releases import BEFORE_3_2
from tests.support.jobs.managed_job import BY, Managed, meanwhile

JOB = '[jobs.{}]\napplication = "a.py"\ncheckpoint = "c/{}"\n'


def declared(folder: Path, text: str, *others: str) -> dict[str, DAG]:
    """The DAGs of a job `flights` and others, with this text after each."""
    file = folder / "jobs.toml"
    jobs = "".join(JOB.format(name, name) + text.replace("NAME", name) for name in ("flights", *others))
    file.write_text(f'repository = "r"\n{jobs}', encoding="utf-8")
    return build_dags(file)


def test_it_is_made_for_each_job_and_runs_by_itself_only_where_that_is_declared(tmp_path: Path) -> None:
    assert not declared(tmp_path, "")["flights.drill"].timetable.can_be_scheduled
    dag = declared(tmp_path, '[jobs.NAME.drill]\nschedule = "@weekly"\n')["flights.drill"]
    assert dag.timetable.can_be_scheduled and str(dag.schedule) == "@weekly"
    assert dag.max_active_runs == 1 and not dag.catchup
    if not BEFORE_3_2:
        assert "backfill" not in {str(getattr(one, "value", one)) for one in dag.allowed_run_types or ()}
    shifted = declared(tmp_path, '[jobs.NAME.drill]\nschedule = "@weekly"\n', "trains")["flights.drill"]
    assert str(shifted.schedule) == staggered("@weekly", "flights", 3600.0) != "@weekly"
    assert "Declared with the schedule `@weekly`" in str(shifted.doc_md)


def test_the_form_offers_what_is_declared_and_no_place_to_write_to(tmp_path: Path) -> None:
    text = (
        '[jobs.NAME.replicate]\nto = ["/near", "s3://far/x"]\n'
        '[jobs.NAME.drill]\nrepository = "s3://far/x"\nsavepoint = "random"\nbatches = 5\nscratch = "/s"\n'
    )
    params = declared(tmp_path, text)["flights.drill"].params
    assert set(params) == {"savepoint", "repository", "batches", "limit", "time_limit", "keep", "note"}
    assert params["limit"] is None
    assert params["repository"] == "s3://far/x", "the usual place comes first"
    assert params.get_param("repository").schema["enum"] == [
        "s3://far/x",
        (tmp_path / "r").as_uri(),
        "file:///near",
    ]
    assert (params["savepoint"], params["batches"], params["keep"]) == ("random", 5, False)
    refused: Sequence[tuple[str, Any]] = (
        ("repository", "file:///tmp/another"),
        ("repository", None),
        ("batches", -1),
        ("batches", "many"),
        ("savepoint", ""),
        ("limit", -1),
        ("keep", "yes"),
    )
    for name, value in refused:
        with pytest.raises(ParamValidationError):
            Param(value, **params.get_param(name).schema).resolve()


def test_each_savepoint_may_be_what_a_schedule_drills(tmp_path: Path) -> None:
    text = '[jobs.NAME.drill]\nschedule = "@weekly"\nsavepoint = "each"\nlimit = 4\ntime_limit = "2h"\n'
    params = declared(tmp_path, text)["flights.drill"].params
    assert (params["savepoint"], params["limit"], params["time_limit"]) == ("each", 4, "2h")
    assert Param(None, **params.get_param("limit").schema).resolve() is None


def test_of_several_queries_no_id_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(f'repository = "r"\n{JOB.format("j", "j")}queries = ["a", "b"]\n', encoding="utf-8")
    param = build_dags(file)["j.drill"].params.get_param("savepoint")
    with pytest.raises(ParamValidationError):
        Param("20261126", **param.schema).resolve()
    assert Param("each", **param.schema).resolve() == "each"


def test_what_a_form_names_is_checked_by_the_task_too(airflow_database: None, managed: Managed) -> None:
    for from_form, drills in ((True, 0), (False, 1)):
        with DAG("by_a_form", schedule=None) as dag:
            RunDrillOperator(
                task_id="drill",
                job="flights",
                jobs_file=str(managed.jobs_file),
                repository=str(managed.folder / "other"),
                from_form=from_form,
                retries=0,
            )
        assert task_states(run_dag(dag)) == {"drill": "failed"}
        assert len(list(drills_of(managed.control))) == drills, "a DAG's author may name any place"


def save(managed: Managed) -> None:
    managed.wait_for_batch(3)
    savepoint_job(managed.job, by=BY)


def test_a_drill_by_the_form_is_what_the_objective_counts(airflow_database: None, managed: Managed) -> None:
    managed.declare('\n[jobs.flights.sla]\ndrill_age = {breach = "8d"}\n')
    managed.start()
    save(managed)
    run = run_dag(
        build_dags(managed.jobs_file)["flights.drill"],
        run_conf={"note": "the audit", "batches": 1, "savepoint": "random"},
    )

    assert task_states(run) == {"drill": "success"} and xcom(run, "drill")["passed"]
    report = last_passed(managed.control)
    assert report is not None and report["why"] == "the audit"
    (verdict,) = [one for one in assess_job(managed.job).verdicts if one.objective == "drill_age"]
    assert verdict.level == "ok" and verdict.why.startswith("The newest drill that passed has an age of")


@pytest.mark.storm
def test_a_run_that_keeps_the_job_running_is_not_disturbed(airflow_database: None, managed: Managed) -> None:
    reports: list[DrillReport] = []

    def drill() -> None:
        # As the operator does: two tasks of `dag.test` cannot run at once in one process.
        hook = StreambankHook(jobs_file=str(managed.jobs_file))
        report = hook.recovery.drill("flights", by=BY)
        assert isinstance(report, DrillReport)
        reports.append(report)

    with meanwhile(managed, lambda: save(managed), drill, managed.stop):
        kept = run_dag(build_dags(managed.jobs_file)["flights.run"])

    assert [report.passed for report in reports] == [True]
    assert task_states(kept) == {"start": "success", "keep_running": "success"}
    assert xcom(kept, "keep_running")["restarts"] == 0
