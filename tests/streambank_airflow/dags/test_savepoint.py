"""`<job>.savepoint` where the job declares replicas, retention, sweeps and blackout windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk import DAG

from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank_airflow.airflow_versions import CronTriggerTimetable
from streambank_airflow.dags.jobs import build_dags
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.airflow_face.moved import DagSerialization
from tests.support.jobs.managed_job import Managed, managed_job
from tests.support.repository.repositories import flip
from tests.support.storage.contents import keys

LATER = ("replicate", "expire", "sweep")


def savepoint_dag(managed: Managed, *, savepoint: str = "sweep = true", replica: str = "replica") -> DAG:
    """The DAG of the job with more declared, to be run once: a run fills its templates in.

    A failed task is not tried again.
    """
    text = managed.jobs_file.read_text(encoding="utf-8")
    if "[jobs.flights.replicate]" not in text:
        text = text.replace("[jobs.flights.savepoint]", f"[jobs.flights.savepoint]\n{savepoint}")
        text += f'[jobs.flights.retention]\nkeep_last = 1\n[jobs.flights.replicate]\nto = ["{replica}"]\n'
        managed.jobs_file.write_text(text, encoding="utf-8")
    return build_dags(managed.jobs_file, default_args={"retries": 0})["flights.savepoint"]


TRAINS = """
[jobs.trains]
application = "app.py"
checkpoint = "checkpoints/trains"
[jobs.trains.savepoint]
schedule = "{}"
"""
"""Another job, so that those that share a schedule are spread."""


def listed(repository: Repository, job: str = "flights") -> list[str]:
    return [each.savepoint for each in repository.manifests(job)]


def replica_of(managed: Managed) -> Repository:
    return Repository.open(open_store(managed.folder / "replica"))


def later(states: dict[str, str]) -> list[str]:
    return [states[task_id] for task_id in LATER]


def test_each_later_task_is_there_only_where_it_is_declared(managed: Managed) -> None:
    plain = build_dags(managed.jobs_file)["flights.savepoint"]
    assert plain.task_ids == ["take", "verify"]
    assert not set(LATER) & set(plain.params)

    dag = savepoint_dag(managed, savepoint='sweep = true\nblackout = ["22:00-06:00"]\nverify = "sampled"')

    assert dag.task_ids == ["blackout", "take", "verify", *LATER]
    assert set(LATER) < set(dag.params)
    assert dag.params["verify"] == "sampled"
    assert dag.get_task("expire").upstream_task_ids == {"take", "verify", "replicate"}
    assert "skipped within 22:00-06:00 (UTC)" in str(dag.doc_md)
    again = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert {task.task_id for task in again.tasks} == set(dag.task_ids)

    text = managed.jobs_file.read_text(encoding="utf-8")
    text = text.replace('to = ["replica"]', 'to = ["replica"]\nretention.keep_last = 2')
    managed.jobs_file.write_text(text, encoding="utf-8")
    with_replicas = build_dags(managed.jobs_file)["flights.savepoint"]
    assert with_replicas.task_ids[-3:] == ["expire", "expire_replicas", "sweep"]
    assert with_replicas.get_task("expire_replicas").upstream_task_ids == {
        "take", "verify", "replicate", "expire",
    }  # fmt: skip
    assert "expire_replicas" in with_replicas.params


def test_the_schedule_is_shifted_and_the_page_says_so_unless_switched_off(managed: Managed) -> None:
    alone = build_dags(managed.jobs_file)["flights.savepoint"]
    assert str(alone.schedule) == "@hourly", "no other job has this schedule"

    managed.declare(TRAINS.format("0 * * * *"))
    shifted = build_dags(managed.jobs_file)["flights.savepoint"]
    assert str(shifted.schedule) != "@hourly"
    assert (
        f"Declared with the schedule `@hourly`; runs on `{shifted.schedule}`, so that jobs do not all start "
        "at once." in str(shifted.doc_md)
    )

    plain = savepoint_dag(managed, savepoint="stagger = false")

    assert str(plain.schedule) == "@hourly"
    assert "staggered" not in str(plain.doc_md)


def test_the_schedule_is_not_shifted_into_a_blackout_window_of_any_time_zone(managed: Managed) -> None:
    """One minute past the full hour of UTC, where clocks are half an hour off."""
    managed.declare(TRAINS.format("@hourly"))
    dag = savepoint_dag(managed, savepoint='blackout = ["05:31-06:00"]\ntime_zone = "Asia/Kolkata"')

    assert str(dag.schedule) == "@hourly"


def test_windows_are_kept_by_the_clocks_of_the_schedule(managed: Managed) -> None:
    """In India, 05:31 is a minute past the half hour of its schedule, not past the full one."""
    managed.declare(TRAINS.format("30 * * * *"))
    text = managed.jobs_file.read_text(encoding="utf-8")
    text = text.replace("[jobs.flights]", '[jobs.flights]\ntime_zone = "Asia/Kolkata"')
    managed.jobs_file.write_text(text.replace('"@hourly"', '"30 * * * *"'), encoding="utf-8")
    declared = CronTriggerTimetable("30 * * * *", timezone="Asia/Kolkata")
    assert build_dags(managed.jobs_file)["flights.savepoint"].schedule != declared, "spread"
    dag = savepoint_dag(managed, savepoint='blackout = ["05:31-06:00"]')

    assert dag.schedule == declared
    assert "skipped within 05:31-06:00 (Asia/Kolkata)" in str(dag.doc_md)


def test_a_savepoint_is_replicated_then_older_ones_are_expired(
    airflow_database: None, managed: Managed
) -> None:
    managed.start()
    first = run_dag(savepoint_dag(managed))
    managed.wait_for_batch(xcom(first, "take")["batch"] + 1)
    managed.stop()

    second = run_dag(savepoint_dag(managed))

    assert set(task_states(second).values()) == {"success"}
    took = [xcom(run, "take")["savepoint"] for run in (first, second)]
    assert listed(managed.repository) == took[1:]
    assert listed(replica_of(managed)) == took
    assert all(verify(replica_of(managed), "flights", each, "full").ok for each in took)
    replicated, expired, swept = (xcom(second, task_id) for task_id in LATER)
    assert (replicated["copied"], replicated["there"], replicated["ok"]) == (1, 1, True)
    assert (expired["kept"], expired["dropped"]) == (1, 1)
    assert (swept["ok"], swept["deleted_files"]) == (True, 0)


@pytest.mark.storm
def test_a_form_says_no_and_what_does_not_verify_is_neither_replicated_nor_expires_others(
    airflow_database: None, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    choices = {"verify": "none", "sweep": False}
    first = run_dag(savepoint_dag(managed), run_conf=choices)
    states = task_states(first)
    assert (states["take"], states["verify"]) == ("success", "skipped")
    assert later(states) == ["success", "success", "skipped"]
    managed.wait_for_batch(xcom(first, "take")["batch"] + 1)
    managed.stop()
    second = run_dag(savepoint_dag(managed), run_conf={**choices, "replicate": False})
    assert later(task_states(second)) == ["skipped"] * 3, "a replica lacks what would be expired"
    before = listed(managed.repository)
    for key in keys(managed.repository.store, "packs"):
        flip(managed.repository.store, key)

    run = run_dag(savepoint_dag(managed), run_conf={"verify": "full"})

    assert task_states(run)["verify"] == "failed"
    assert f"{before[-1]} of job flights is damaged" in capfd.readouterr().out
    assert later(task_states(run)) == ["upstream_failed"] * 3
    assert listed(managed.repository) == before
    assert len(before) == 2
    assert listed(replica_of(managed)) == before[:1]


def test_nothing_is_expired_while_a_replica_cannot_be_served(
    airflow_database: None, managed: Managed
) -> None:
    (managed.folder / "replica").mkdir()
    (managed.folder / "replica/another file").write_text("of somebody", encoding="utf-8")
    managed.start()
    first = run_dag(savepoint_dag(managed), run_conf={"replicate": False, "expire": False})
    managed.wait_for_batch(xcom(first, "take")["batch"] + 1)
    managed.stop()

    run = run_dag(savepoint_dag(managed))

    assert later(task_states(run)) == ["failed", "upstream_failed", "upstream_failed"]
    assert len(listed(managed.repository)) == 2


def test_a_scheduled_run_in_a_blackout_skips_everything_and_says_why(
    airflow_database: None,
    managed: Managed,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    window = 'blackout = ["00:00-24:00"]\ntime_zone = "Europe/Berlin"'
    monkeypatch.setattr("streambank_airflow.operators.blackout.by_schedule", lambda context: True)

    run = run_dag(savepoint_dag(managed, savepoint=window))

    states = task_states(run)
    assert set(states) == {"blackout", "take", "verify", "replicate", "expire"}
    assert set(states.values()) == {"skipped"}
    said = capfd.readouterr().out
    assert "in Europe/Berlin, within the blackout 00:00-24:00" in said
    assert "was never started" not in said


@pytest.mark.storm
def test_several_queries_are_replicated_and_expired_together(
    airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = ("hourly", "sessions")
    with managed_job(tmp_path, monkeypatch, queries) as managed:
        managed.start()
        managed.stop()
        run = run_dag(savepoint_dag(managed, savepoint=""), run_conf={"verify": "sampled"})

    assert set(task_states(run).values()) == {"success"}
    assert xcom(run, "replicate")["copied"] == 2
    assert xcom(run, "expire")["kept"] == 2
    for query in queries:
        assert xcom(run, f"verify_{query}")["savepoints"] == 1
        assert listed(replica_of(managed), f"flights/{query}") == [xcom(run, f"take_{query}")["savepoint"]]
