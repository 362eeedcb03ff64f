"""`<job>.refresh.<copy>`: on its schedule, by its form, and the operators on a copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
from airflow.providers.common.compat.sdk import ParamValidationError
from airflow.sdk import DAG, Param

from streambank.control.copies import copied
from streambank.core.names import PRIMARY, SITES, STANDBY
from streambank.core.units import utc_now
from streambank.job.history import job_history
from streambank.job.savepoint import savepoint_job
from streambank.sites.records import SiteRecord, Sites
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.job import StartStreamingJobOperator, StopStreamingJobOperator
from streambank_airflow.operators.restore import RefreshCopyOperator
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.managed_job import BY, Managed
from tests.support.jobs.two_sites import TwoSites

JOB = 'repository = "r"\n[jobs.flights]\napplication = "a.py"\ncheckpoint = "c"\n'
COPIES = """
[jobs.flights.replicate]
to = ["s3://far/x"]
[jobs.flights.copies.staging]
checkpoint = "staging/ck"
outputs = { "./out" = "staging/out" }
schedule = "@daily"
[jobs.flights.copies.analysis]
checkpoint = "analysis/ck"
repository = "nearest"
"""


def declared(folder: Path, text: str) -> dict[str, DAG]:
    (folder / "jobs.toml").write_text(JOB + text, encoding="utf-8")
    return build_dags(folder / "jobs.toml")


def test_there_is_one_for_each_copy_and_none_without(tmp_path: Path) -> None:
    assert not [name for name in declared(tmp_path, "") if "refresh" in name]
    dags = declared(tmp_path, COPIES)
    assert [name for name in dags if "refresh" in name] == [
        "flights.refresh.staging",
        "flights.refresh.analysis",
    ]
    daily, by_hand = dags["flights.refresh.staging"], dags["flights.refresh.analysis"]
    assert str(daily.schedule) == "@daily" and not by_hand.timetable.can_be_scheduled
    assert daily.max_active_runs == 1 and not daily.catchup
    assert list(build_dags(tmp_path / "jobs.toml", only=["refresh"])) == [daily.dag_id, by_hand.dag_id]


def test_the_form_takes_no_place_but_what_is_declared(tmp_path: Path) -> None:
    dags = declared(tmp_path, COPIES)
    params = dags["flights.refresh.staging"].params
    assert set(params) == {"savepoint", "repository", "source", "note"}
    usual = (tmp_path / "r").as_uri()
    assert params.get_param("repository").schema["enum"] == ["declared", usual, "s3://far/x", "nearest"]
    assert dags["flights.refresh.analysis"].params["repository"] == "declared"
    refresh = dags["flights.refresh.staging"].task_dict["refresh"]
    assert isinstance(refresh, RefreshCopyOperator) and refresh.repository is not None
    template = jinja2.Template(refresh.repository)
    rendered = [template.render(params={"repository": chosen}) for chosen in ("declared", "nearest")]
    assert rendered == ["", "nearest"], "what is declared is read at the active site, not here"
    with pytest.raises(ParamValidationError):
        Param("file:///tmp/another", **params.get_param("repository").schema).resolve()


def test_after_a_fail_over_a_copy_is_one_of_the_job_at_its_active_site(tmp_path: Path) -> None:
    copies = '[jobs.orders.copies.staging]\ncheckpoint = "copy/ck"\n'
    sites = TwoSites(tmp_path)
    sites.jobs.write_text(f"{sites.jobs.read_text()}\n{copies}")
    hook = StreambankHook(jobs_file=str(sites.jobs))
    for site in SITES:
        if site == STANDBY:
            record = SiteRecord(1, "active", STANDBY, PRIMARY, False, BY, "", utc_now())
            assert Sites(sites.at(STANDBY).records()).write(record)
        got = hook.declared.get("orders@staging")
        for job in (hook.declared.job("orders@staging"), got):
            assert job is not None and job.original is not None
            assert (job.original.site, job.original.repository) == (site, sites.at(site).repository)
            assert job.site == PRIMARY and job.copy is not None, "a copy has no sites"


@pytest.fixture
def saved(managed: Managed) -> Iterator[Managed]:
    """A running job with a savepoint, which declares a copy of its state."""
    managed.declare(
        '\n[jobs.flights.copies.staging]\ncheckpoint = "staging/ck"\noutputs = { "./out" = "staging/out" }\n'
    )
    managed.start(until=3)
    savepoint_job(managed.job, by=BY)
    yield managed
    end_drivers(managed.job.as_copy("staging").records())


def test_it_makes_the_copy_while_the_job_runs(airflow_database: None, saved: Managed) -> None:
    run = run_dag(build_dags(saved.jobs_file)["flights.refresh.staging"], run_conf={"note": "nightly"})
    assert task_states(run) == {"refresh": "success"}
    result = xcom(run, "refresh")
    assert result["copy"] == "staging" and result["runs_as"] == "flights@staging"
    (query,) = result["queries"]
    held = copied(saved.job.as_copy("staging").records())["main"]
    assert (held.savepoint, held.generation.location) == (query["savepoint"], query["location"])
    (event,) = [one for one in job_history(saved.job) if one.kind == "refreshed"]
    assert event.why == "nightly" and event.facts is not None and event.facts["copy"] == "staging"
    assert saved.control.lease.view().state == "live"  # type: ignore[union-attr]  # the job runs


def test_a_form_names_no_other_repository_by_the_task_either(airflow_database: None, saved: Managed) -> None:
    with DAG("by_a_form", schedule=None) as dag:
        RefreshCopyOperator(
            task_id="refresh",
            copy="staging",
            job="flights",
            jobs_file=str(saved.jobs_file),
            repository=str(saved.folder / "other"),
            from_form=True,
            retries=0,
        )
    assert task_states(run_dag(dag)) == {"refresh": "failed"}
    assert not copied(saved.job.as_copy("staging").records())


def test_a_refresh_that_fails_alerts_once_for_each_copy(airflow_database: None, tmp_path: Path) -> None:
    chat = tmp_path / "chat"
    (tmp_path / "jobs.toml").write_text(
        f'''{JOB}{COPIES}
[[jobs.flights.notify]]
class = "tests.support.airflow_face.notifiers.FileNotifier"
args = {{file = "{chat}", text = "{{{{ kind }}}}: {{{{ message }}}}"}}
kinds = ["refresh-failed"]
''',
        encoding="utf-8",
    )
    for copy in ("staging", "staging", "analysis"):
        with DAG(f"refresh_{copy}", schedule=None) as dag:
            RefreshCopyOperator(
                task_id="refresh", copy=copy, job="flights", jobs_file=str(tmp_path / "jobs.toml"), retries=0
            )
        assert task_states(run_dag(dag)) == {"refresh": "failed"}
    first, second = chat.read_text(encoding="utf-8").splitlines()
    assert first.startswith("refresh-failed: refresh_staging.refresh: ")
    assert second.startswith("refresh-failed: refresh_analysis.refresh: ")


@pytest.mark.storm
def test_the_operators_of_jobs_work_on_a_copy(airflow_database: None, saved: Managed) -> None:
    """Stop, refresh and start: the copy is replaced; and while a job runs on it, it is not."""
    args: dict[str, Any] = {"jobs_file": str(saved.jobs_file), "retries": 0}
    with DAG("staging", schedule=None) as dag:
        stop = StopStreamingJobOperator(task_id="stop", job="flights@staging", deferrable=False, **args)
        make = RefreshCopyOperator(task_id="refresh", job="flights", copy="staging", **args)
        start = StartStreamingJobOperator(task_id="start", job="flights@staging", **args)
        stop >> make >> start
    states = {"stop": "success", "refresh": "success", "start": "success"}
    assert task_states(run_dag(dag)) == states
    copy = saved.job.as_copy("staging").records()
    view = copy.lease.view()
    assert view is not None and view.state == "live"
    refused = build_dags(saved.jobs_file)["flights.refresh.staging"]
    assert task_states(run_dag(refused)) == {"refresh": "failed"}
    assert copy.lease.view().epoch == view.epoch  # type: ignore[union-attr]  # it is not harmed
    assert task_states(run_dag(dag)) == states, "the same run again"
    assert len([one for one in job_history(saved.job) if one.kind == "refreshed"]) == 2
