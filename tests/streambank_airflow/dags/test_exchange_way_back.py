"""Where a step of an exchange fails after the stop: the job goes on in what it had, or in what it has."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.core.errors import RefusedError, StorageError
from streambank.driver.launchers.local import LocalLauncher
from tests.support.airflow_face.exchanged_job import OLD, WAY_BACK, Rewriting, exchange, generation
from tests.support.airflow_face.metadata_db import task_states, xcom
from tests.support.jobs.managed_job import Managed


@pytest.mark.storm
def test_the_job_stays_as_it_was_where_it_cannot_be_done(
    airflow_database: None, managed: Managed, rewriting: Rewriting, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    managed.wait_for_batch(1)
    rewriting.fails = RefusedError("It holds too much.", code="hdfs-backed", hint="Move it.")

    run = exchange(managed, OLD)

    assert run.state == "failed"
    states = task_states(run)
    assert (states["stop"], states["rewrite"], states["restore"]) == ("success", "failed", "upstream_failed")
    assert {states[task] for task in WAY_BACK} == {"success"}
    assert xcom(run, "go_back")["state"] == "not-left"
    assert generation(managed) == (1, None)
    assert managed.driver_lives()
    assert "It holds too much. [hdfs-backed]\nHint: Move it." in capfd.readouterr().out


@pytest.mark.storm
def test_the_job_goes_back_where_it_does_not_start(
    airflow_database: None, managed: Managed, rewriting: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.start()
    managed.wait_for_batch(1)
    submit = LocalLauncher.submit
    refused = []

    def breaking(self: LocalLauncher, job: Any, control: Any, spec: Any) -> Any:
        if spec.queries["main"].generation == 2:
            refused.append(spec)
            raise StorageError("It does not start.", code="driver-died")
        return submit(self, job, control, spec)

    monkeypatch.setattr(LocalLauncher, "submit", breaking)
    run = exchange(managed, OLD)

    assert refused, "the fault fired"
    states = task_states(run)
    assert (run.state, states["restore"], states["start"]) == ("failed", "success", "failed")
    assert {states[task] for task in WAY_BACK} == {"success"}
    assert (xcom(run, "go_back")["state"], generation(managed)) == ("reinstated", (3, 1))
    managed.wait_for_batch(managed.last_batch() + 1)


@pytest.mark.storm
def test_the_job_runs_on_where_going_back_could_repeat_rows(
    airflow_database: None, managed: Managed, rewriting: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first driver with the new state dies within a batch: what its sink got of it nobody can say."""
    managed.start()
    managed.wait_for_batch(1)
    submit = LocalLauncher.submit
    begun: list[int] = []

    def dying(self: LocalLauncher, job: Any, control: Any, spec: Any) -> Any:
        if spec.queries["main"].generation == 2 and not begun:
            batch, log = managed.last_batch(), managed.checkpoint / "offsets"
            (log / str(batch + 1)).write_bytes((log / str(batch)).read_bytes())
            begun.append(batch + 1)
            raise StorageError("It died.", code="driver-died")
        return submit(self, job, control, spec)

    monkeypatch.setattr(LocalLauncher, "submit", dying)
    run = exchange(managed, OLD)

    assert begun, "the fault fired"
    states = task_states(run)
    assert (run.state, states["start"]) == ("failed", "failed")
    assert {states[task] for task in WAY_BACK} == {"success"}, "whoever stays is watched, too"
    assert (xcom(run, "go_back")["state"], xcom(run, "go_back")["code"]) == ("stays", "batch-begun")
    assert generation(managed) == (2, None)
    managed.wait_for_batch(begun[0])


@pytest.mark.storm
def test_a_job_whose_start_failed_after_a_batch_stays_and_is_watched(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its new state works, but the start cannot tell: going back would repeat what is committed."""
    managed.start()
    managed.wait_for_batch(1)
    submit = LocalLauncher.submit
    failed: list[int] = []

    def losing_sight(self: LocalLauncher, job: Any, control: Any, spec: Any) -> Any:
        handle = submit(self, job, control, spec)
        if spec.queries["main"].generation == 2 and not failed:
            failed.append(managed.last_batch() + 1)
            managed.wait_for_batch(failed[0])
            raise StorageError("Nobody knows where it is.", code="driver-died")
        return handle

    monkeypatch.setattr(LocalLauncher, "submit", losing_sight)
    run = exchange(managed, OLD)

    assert failed, "the fault fired"
    states = task_states(run)
    assert (run.state, states["restore"], states["start"]) == ("failed", "success", "failed")
    assert {states[task] for task in WAY_BACK} == {"success"}
    assert (xcom(run, "go_back")["state"], xcom(run, "go_back")["code"]) == ("stays", "query-went-on")
    assert generation(managed) == (2, None) and managed.driver_lives()
    assert xcom(run, "start_again")["state"] == "already-running"
    assert "The job stays where it is, and does not go back to generation 1" in capfd.readouterr().out
