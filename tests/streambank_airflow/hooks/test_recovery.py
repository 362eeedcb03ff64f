"""Where a restore of Airflow takes the savepoint from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from airflow.sdk import DAG

from streambank.core.errors import InputError, NotFoundError
from streambank.declaration.declaration import Job
from streambank.declaration.savepoints import RestorePolicy
from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.storage import open_store
from streambank_airflow.choices import check_form_origin, restore_repositories
from streambank_airflow.dags.forms.recovery import restore_form
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.restore_plans import plan_markdown
from tests.support.airflow_face.metadata_db import run_dag, xcom
from tests.support.jobs.declared import declare
from tests.support.jobs.lost_repository import move_on, worked

pytestmark = pytest.mark.usefixtures("airflow_database")

MORE = 'time_zone = "Asia/Tokyo"\n[jobs.flights.replicate]\nto = ["replica"]'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the job is declared."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def lost(folder: Path) -> Job:
    """A job with a replica, of which repository and records are gone. Its savepoint has a name."""
    job = declare(folder, more=MORE)
    worked(job)
    move_on(job)
    hook = StreambankHook(jobs_file=str(folder / "streaming_jobs.toml"))
    taken = hook.savepoints.take("flights", name="before-upgrade")
    assert taken.name == "before-upgrade"
    source = job.open_repository()
    list(replicate(source, open_replica(source, open_store(folder / "replica")), newest_first(source)))
    for gone in ("repository", "repository.control"):
        shutil.rmtree(folder / gone)
    return job


def test_a_job_whose_repository_is_gone_comes_back_from_the_nearest_replica(folder: Path, lost: Job) -> None:
    hook = StreambankHook(jobs_file=str(folder / "streaming_jobs.toml"))
    with pytest.raises(NotFoundError) as caught:
        hook.recovery.plan("flights", sink="accept")
    assert caught.value.code == "no-repository"
    for reference, repository in (
        ("latest-good", "nearest"),
        ("before-upgrade", f"file://{folder}/replica"),
        ("2999-01-01", "nearest"),
    ):
        planned = hook.recovery.plan("flights", savepoint=reference, repository=repository, sink="accept")
        plan = planned.plans["main"]
        assert plan.repository == f"file://{folder}/replica"
        assert [one.location for one in plan.passed_over] == [lost.repository] * (repository == "nearest")
        assert (plan.as_of is not None) == (reference == "2999-01-01")
    shown = plan_markdown(planned)
    for said in ("Comes from", "Passed over", "There is no repository", "As of", "Asia/Tokyo", "Replayable"):
        assert said in shown

    with DAG("from_a_replica", schedule=None) as dag:
        RestoreSavepointOperator(
            task_id="restore", job="flights", jobs_file=str(folder / "streaming_jobs.toml"),
            savepoint="before-upgrade", repository="nearest", sink="accept",
        )  # fmt: skip
    done = xcom(run_dag(dag), "restore")
    assert (done["repository"], done["generation"]) == (f"file://{folder}/replica", 3)
    current = lost.records().generation()
    assert current is not None and current.location == done["location"]


def test_a_form_takes_only_places_that_are_declared(folder: Path) -> None:
    job = declare(folder, more=MORE)
    places = restore_repositories(job)
    assert places == (job.repository, f"file://{folder}/replica", "nearest")
    for place in (None, *places):
        check_form_origin(job, place)
    with pytest.raises(InputError) as caught:
        check_form_origin(job, "s3://of-another/repository")
    assert caught.value.code == "place-not-allowed"
    field = restore_form((), RestorePolicy(), places)["repository"]
    assert (field.value, field.schema["enum"]) == (job.repository, list(places))


def test_a_job_without_replicas_has_no_such_field(folder: Path) -> None:
    places = restore_repositories(declare(folder))
    assert len(places) == 1
    assert "repository" not in restore_form((), RestorePolicy(), places)


def test_the_nearest_place_of_a_job_that_is_not_declared_is_not_known(tmp_path: Path) -> None:
    back = str(tmp_path / "back")
    with pytest.raises(InputError) as caught:
        StreambankHook().recovery.plan("orders", savepoint="latest", repository="nearest", into=back)
    assert caught.value.code == "bad-option"


def test_a_reference_to_one_query_is_not_of_all_queries(folder: Path) -> None:
    declare(folder, more='queries = ["hours", "users"]')
    hook = StreambankHook(jobs_file=str(folder / "streaming_jobs.toml"))
    with pytest.raises(InputError, match="flights/hours names one") as caught:
        hook.recovery.plan("flights/hours", all_queries=True)
    assert caught.value.code == "bad-option"
    with pytest.raises(InputError, match="flights/hours names one"):
        hook.recovery.restore("flights/hours", all_queries=True)
