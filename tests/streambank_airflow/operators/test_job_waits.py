"""A start waits for what it lacks, as who keeps a job running does: a full disk, a storage not reached."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.core.errors import StorageError
from streambank.driver.launchers import disks
from streambank.storage.local.reserve import keep_reserve
from streambank.storage.local.space import space_at
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.hooks.jobs import JobVerbs
from streambank_airflow.operators.job import KeepStreamingJobRunningOperator, StartStreamingJobOperator
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.drivers.waited_for import Faults, alerts, declare_alerts, kinds, launches, wait_less
from tests.support.jobs.declared import BY
from tests.support.jobs.managed_job import Managed, managed_job, meanwhile
from tests.support.storage.small_disk import SmallDisk, small_disk
from tests.support.waiting import poll

pytestmark = pytest.mark.usefixtures("airflow_database")

PATIENT = [{"deferrable": True}, {"deferrable": False, "wait_until_possible": True}]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_less(monkeypatch)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """All disks are full, until that ends."""
    found = Faults()

    def full(path: Any) -> Any:
        return replace(space_at(path), free_bytes=0) if found.fail() else space_at(path)

    monkeypatch.setattr(disks, "space_at", full)
    return found


def dag_of(managed: Managed, task: Any = StartStreamingJobOperator, **arguments: Any) -> DAG:
    declare_alerts(managed)
    return one_task(task, managed, "start", **arguments)


@pytest.mark.parametrize("how", PATIENT)
def test_a_start_waits_for_a_full_disk_and_alerts_once(
    managed: Managed, faults: Faults, how: dict[str, bool]
) -> None:
    dag = dag_of(managed, **how)
    with meanwhile(managed, lambda: poll(lambda: faults.count >= 4, timeout_s=120), faults.end):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    assert (xcom(run, "task")["state"], launches(managed)) == ("started", 1)
    (alert,) = alerts(managed)
    assert alert.startswith("cannot-start: Job flights cannot be started, or looked after, now: No driver of")
    assert "Free some space below" in alert


def test_a_start_that_is_not_to_wait_fails_and_says_so(
    managed: Managed, faults: Faults, capfd: pytest.CaptureFixture[str]
) -> None:
    run = run_dag(dag_of(managed, deferrable=False))

    assert task_states(run) == {"task": "failed"} and faults.count
    assert (launches(managed), alerts(managed)[1:]) == (0, [])
    said = capfd.readouterr().out
    assert "[disk-full]" in said and "With wait_until_possible=True this task would wait" in said


@pytest.mark.parametrize("task", [StartStreamingJobOperator, KeepStreamingJobRunningOperator])
def test_who_stops_the_job_on_a_full_disk_ends_the_wait(managed: Managed, faults: Faults, task: Any) -> None:
    managed.control.set_desired("running", by=BY)
    dag = dag_of(managed, task, **(PATIENT[1] if task is StartStreamingJobOperator else {}))
    with meanwhile(
        managed,
        lambda: poll(lambda: faults.count >= 2, timeout_s=120),
        lambda: managed.control.set_desired("stopped", by=BY, why="enough"),
    ):
        run = run_dag(dag)

    assert faults.on, "the disk is still full"
    assert task_states(run) == {"task": "skipped" if task is StartStreamingJobOperator else "success"}
    assert launches(managed) == 0


@pytest.mark.parametrize("where", ["obeys", "before", "after"])
def test_a_storage_or_cluster_that_does_not_answer_makes_no_second_driver(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """`after`: the driver is there, and the start did not hear of it."""
    faults = Faults()
    name = "obeys" if where == "obeys" else "start"
    work = getattr(JobVerbs, name)

    def unanswered(*args: Any, **kwargs: Any) -> Any:
        if where == "after":
            result = work(*args, **kwargs)
        if faults.fail():
            raise StorageError("The cluster does not answer.", code="cluster-unanswered")
        return result if where == "after" else work(*args, **kwargs)

    monkeypatch.setattr(JobVerbs, name, unanswered)
    dag = dag_of(managed, **PATIENT[1])
    with meanwhile(managed, lambda: poll(lambda: faults.count >= 3, timeout_s=120), faults.end):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    state = "already-running" if where == "after" else "started"
    assert (xcom(run, "task")["state"], launches(managed)) == (state, 1)
    assert kinds(managed) == ["cannot-start"] and "The cluster does not answer." in alerts(managed)[0]


@pytest.mark.parametrize("how", PATIENT)
@pytest.mark.parametrize("for_room", [True, False])
def test_a_driver_that_a_full_disk_has_ended_is_followed_by_another_one(
    managed: Managed, how: dict[str, bool], for_room: bool
) -> None:
    """One that anything else has ended is the control: Airflow's retries are for that."""
    managed.dies.write_text("0")
    why = "No space left on device" if for_room else "Broken"
    words = json.dumps(f"java.io.IOException: {why}")
    declared = managed.jobs_file.read_text()
    managed.jobs_file.write_text(declared.replace("args = [", f'args = ["--last-words", {words}, '))
    dag = dag_of(managed, **how)
    with meanwhile(
        managed,
        lambda: poll(lambda: kinds(managed), timeout_s=120),
        managed.dies.unlink,
    ):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success" if for_room else "failed"}
    assert launches(managed) >= 2 if for_room else launches(managed) == 1
    assert kinds(managed)[0] == ("cannot-start" if for_room else "giving-up")


@pytest.mark.parametrize("verb", ["run", "restore"])
def test_the_starts_of_a_jobs_dags_wait(managed: Managed, verb: str) -> None:
    start = build_dags(managed.jobs_file)[f"flights.{verb}"].get_task("start")

    assert isinstance(start, StartStreamingJobOperator) and start.is_patient and not start.deferrable


@pytest.fixture
def on_small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Managed, SmallDisk]]:
    """The job with all that it has on a disk of 64 MB."""
    with small_disk(tmp_path / "disk", 64 << 20) as disk, managed_job(disk.folder, monkeypatch) as managed:
        yield managed, disk


@pytest.mark.storm
def test_a_start_on_a_disk_that_was_really_full_goes_on_by_itself(
    on_small_disk: tuple[Managed, SmallDisk],
) -> None:
    managed, disk = on_small_disk
    dag = dag_of(managed, **PATIENT[1])
    disk.fill()
    with meanwhile(managed, lambda: poll(lambda: "cannot-start" in kinds(managed), timeout_s=120), disk.free):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    assert (xcom(run, "task")["state"], launches(managed)) == ("started", 1)


@pytest.mark.storm
def test_a_stop_on_a_disk_that_is_really_full_ends_the_wait(on_small_disk: tuple[Managed, SmallDisk]) -> None:
    """Room for the stop is in the reserve that a driver has made."""
    managed, disk = on_small_disk
    managed.start()
    managed.wait_for_batch(2)
    keep_reserve(managed.control.store)
    dag = dag_of(managed, KeepStreamingJobRunningOperator)
    with meanwhile(
        managed,
        lambda: poll(managed.control.watches.view, timeout_s=120),
        disk.fill,
        managed.kill,
        lambda: poll(lambda: "cannot-start" in kinds(managed), timeout_s=120),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    assert (xcom(run, "task")["state"], launches(managed)) == ("stopped", 1)
