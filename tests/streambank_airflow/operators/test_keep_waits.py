"""What is no driver's failure is waited for: a full disk, a storage that is not reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import DAG

from streambank.core.errors import StorageError
from streambank.driver.launchers import disks
from streambank.driver.launchers.local import LocalLauncher
from streambank.storage.local.space import space_at
from streambank_airflow.hooks.health import HealthVerbs
from streambank_airflow.operators import keep
from streambank_airflow.operators.job import KeepStreamingJobRunningOperator
from streambank_airflow.operators.keep import Course
from streambank_airflow.triggers.job import JobEndTrigger, PauseTrigger
from streambank_airflow.watch.job import JobWatcher
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.drivers.waited_for import Faults, alerts, declare_alerts, kinds, launches, wait_less
from tests.support.jobs.declared import BY
from tests.support.jobs.managed_job import Managed, managed_job, meanwhile
from tests.support.storage.small_disk import small_disk
from tests.support.waiting import poll

pytestmark = pytest.mark.usefixtures("airflow_database")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_less(monkeypatch)


def given_up(managed: Managed) -> bool:
    return any(one.data["kind"] == "crash-loop" for one in managed.control.events())


def dag_of(managed: Managed) -> DAG:
    declare_alerts(managed)
    return one_task(KeepStreamingJobRunningOperator, managed, "keep", poll_interval_s=0.1)


def test_a_full_disk_is_waited_for_and_alerted_once(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults()

    def full(path: Any) -> Any:
        return replace(space_at(path), free_bytes=0) if faults.fail() else space_at(path)

    monkeypatch.setattr(disks, "space_at", full)
    managed.control.set_desired("running", by=BY)
    dag = dag_of(managed)  # before anything beside it reads the declaration
    with meanwhile(
        managed,
        lambda: poll(lambda: faults.count >= 6, timeout_s=120),
        faults.end,
        lambda: managed.wait_for_batch(1),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    result = xcom(run, "task")
    assert (result["state"], result["restarts"], launches(managed)) == ("stopped", 0, 1)
    assert not given_up(managed)
    (alert,) = alerts(managed)
    assert alert.startswith("cannot-start: Job flights cannot be started, or looked after, now: No driver of")
    assert "that is full: 0 bytes" in alert and "Free some space below" in alert


def test_a_driver_that_a_full_disk_has_ended_counts_for_nothing(managed: Managed) -> None:
    managed.start(until=1)
    launch_id = next(iter(managed.control.lease.recent_launches()))
    failure = "org.apache.spark.SparkException: x\nCaused by: java.io.IOException: No space left on device"
    managed.control.record_event("query-ended", launch_id=launch_id, failure=failure)
    dag = dag_of(managed)  # before anything beside it reads the declaration
    with meanwhile(
        managed,
        lambda: poll(managed.control.watches.view, timeout_s=120),
        managed.kill,
        lambda: poll(lambda: launches(managed) == 2 and managed.driver_lives(), timeout_s=120),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    assert (xcom(run, "task")["state"], xcom(run, "task")["restarts"]) == ("stopped", 0)
    assert not given_up(managed)
    (alert,) = alerts(managed)
    assert alert.startswith("cannot-start: ") and "No space left on device" in alert


@pytest.mark.storm
def test_a_driver_that_anything_else_has_ended_counts(managed: Managed) -> None:
    """The control of the one above."""
    managed.start(until=1)
    launch_id = next(iter(managed.control.lease.recent_launches()))
    managed.control.record_event("query-ended", launch_id=launch_id, failure="java.io.IOException: Broken")
    dag = dag_of(managed)  # before anything beside it reads the declaration
    with meanwhile(
        managed,
        lambda: poll(managed.control.watches.view, timeout_s=120),
        lambda: managed.wait_for_batch(managed.last_batch() + 2),  # else it is given up at once
        managed.kill,
        lambda: poll(lambda: launches(managed) == 2 and managed.driver_lives(), timeout_s=120),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag)

    assert (xcom(run, "task")["state"], xcom(run, "task")["restarts"]) == ("stopped", 1)
    assert kinds(managed) == ["restart"]


@pytest.mark.storm
def test_a_driver_whose_log_cannot_be_read_counts(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a job that dies again and again would never be given up."""

    def unread(*_: Any) -> list[str]:
        raise StorageError("The log cannot be read.", code="log-not-read")

    monkeypatch.setattr(LocalLauncher, "log_lines", unread)
    managed.start(until=1)
    dag = dag_of(managed)
    with meanwhile(
        managed,
        lambda: poll(managed.control.watches.view, timeout_s=120),
        lambda: managed.dies.write_text("0"),  # the next one, where this one has committed a batch meanwhile
        managed.kill,
    ):
        run = run_dag(dag)
    assert task_states(run) == {"task": "failed"} and given_up(managed)
    assert "cannot-start" not in kinds(managed)


def operator_of(managed: Managed) -> KeepStreamingJobRunningOperator:
    (task,) = dag_of(managed).tasks
    assert isinstance(task, KeepStreamingJobRunningOperator)
    return task


@pytest.mark.storm
def test_a_full_disk_in_the_place_of_a_driver_that_makes_no_progress_counts_for_nothing(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise StorageError("The disk is full.", code="disk-full")

    monkeypatch.setattr(HealthVerbs, "heal", full)
    monkeypatch.setattr(keep, "asked_by", lambda _: BY)
    managed.start()
    task, before = operator_of(managed), Course(failures=1)
    remember = {"unhealthy": {}, "before": {"batch": 1, **before.to_dict()}}
    with pytest.raises(TaskDeferred) as deferred:
        task._heal({}, remember, before.after(got_on=False, within_s=60.0))
    assert isinstance(deferred.value.trigger, PauseTrigger)
    known = deferred.value.trigger.remember
    assert (known["failures"], known["restarts"], known["waits"]) == (1, 0, 1)


class TestDeclarationWithAMistake:
    """Nothing can be done for the job until it is repaired."""

    HELD: ClassVar[dict[str, Any]] = {"remember": {"batch": 1, **Course().to_dict()}}

    def test_each_mistake_is_alerted_once(self, managed: Managed) -> None:
        task = operator_of(managed)
        text = managed.jobs_file.read_text(encoding="utf-8")
        held = {"status": "gone", **self.HELD}
        for wrong in ("checkpiont =", "checkpiont =", "chekpoint ="):
            managed.jobs_file.write_text(text.replace("checkpoint =", wrong), encoding="utf-8")
            with pytest.raises(TaskDeferred) as deferred:
                task._wait_for_declaration({}, held)
            assert isinstance(deferred.value.trigger, PauseTrigger)
            held = dict(deferred.value.trigger.remember)
        managed.jobs_file.write_text(text, encoding="utf-8")
        first, second = alerts(managed)
        assert first.startswith("giving-up: Nothing is done for job flights") and "checkpiont" in first
        assert "chekpoint" in second

    def test_with_the_repair_the_mistake_is_no_end_of_the_watch(
        self, managed: Managed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(KeepStreamingJobRunningOperator, "_watched", lambda self, _, course, __: course)
        event = {"status": "error", "retryable": False, "message": "it is misspelt", **self.HELD}
        with pytest.raises(TaskDeferred) as deferred:
            operator_of(managed).declared_again({}, {"status": "over", "remember": event})
        assert isinstance(deferred.value.trigger, JobEndTrigger)


@pytest.mark.parametrize("where", ["look", "watch_again"])
def test_a_storage_that_is_not_reached_for_long_ends_no_watch(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Neither the trigger's looks that fail, nor what the task reads when it goes on."""
    faults = Faults()
    owner: Any = JobWatcher if where == "look" else HealthVerbs
    work = getattr(owner, where)

    def unreachable(*args: Any, **kwargs: Any) -> Any:
        if faults.fail():
            raise StorageError("The storage is not reached.", code="unreachable")
        return work(*args, **kwargs)

    monkeypatch.setattr(owner, where, unreachable)
    managed.start()
    lose = managed.control.watches.records
    dag = dag_of(managed)  # before anything beside it reads the declaration
    with meanwhile(
        managed,
        lambda: poll(managed.control.watches.view, timeout_s=120),
        (lambda: None) if where == "look" else (lambda: managed.control.store.delete(lose.key(1))),
        lambda: poll(lambda: faults.count >= (12 if where == "look" else 2), timeout_s=120),
        faults.end,
        lambda: poll(lambda: managed.control.watches.view() is not None, timeout_s=120),
        lambda: managed.wait_for_batch(managed.last_batch() + 2),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    assert (xcom(run, "task")["state"], launches(managed)) == ("stopped", 1), "the driver was left alone"
    assert not given_up(managed)
    assert kinds(managed)[:1] == ["cannot-start"] and "giving-up" not in kinds(managed)
    assert "The storage is not reached." in alerts(managed)[0]


@pytest.fixture
def on_small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Managed, Any]]:
    """The job with all that it has on a disk of 64 MB."""
    with small_disk(tmp_path / "disk", 64 << 20) as disk, managed_job(disk.folder, monkeypatch) as managed:
        yield managed, disk


@pytest.mark.storm
def test_a_job_on_a_disk_that_was_really_full_goes_on_by_itself(on_small_disk: tuple[Managed, Any]) -> None:
    """Checkpoint, repository and records are on it; the driver dies, and no other one can be started."""
    managed, disk = on_small_disk
    managed.start()
    managed.wait_for_batch(2)
    before = managed.last_batch()
    dag = dag_of(managed)  # before anything beside it reads the declaration
    with meanwhile(
        managed,
        lambda: poll(managed.control.watches.view, timeout_s=120),
        disk.fill,
        managed.kill,
        lambda: poll(lambda: "cannot-start" in kinds(managed), timeout_s=120),
        disk.free,
        lambda: managed.wait_for_batch(before + 4),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    assert xcom(run, "task")["state"] == "stopped"
    assert not given_up(managed)
