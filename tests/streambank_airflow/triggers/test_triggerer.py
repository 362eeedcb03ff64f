"""A deferred stop, and an asset's watcher, with Airflow's own triggerer in a separate process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.configuration import conf
from airflow.sdk import DAG

from streambank.storage import open_store
from streambank_airflow.assets import sla_asset, watermark_asset
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.operators.job import KeepStreamingJobRunningOperator, StopStreamingJobOperator
from streambank_airflow.page.store import LINE, part_key
from tests.support.airflow_face.metadata_db import asset_events, run_dag, task_states, write_dags, xcom
from tests.support.airflow_face.page_api import page_on
from tests.support.airflow_face.page_values import DatabaseValues
from tests.support.airflow_face.releases import BEFORE_3_2
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.managed_job import Managed
from tests.support.jobs.slow_job import commit, slow_job
from tests.support.paths import ROOT
from tests.support.waiting import poll

__all__ = ["page_on"]


@contextmanager
def triggerer(folder: Path) -> Iterator[None]:
    """Airflow's triggerer, beside this process and on its database."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "provider"), str(ROOT)))}
    command = [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"]
    with (folder / "triggerer.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield
            assert process.poll() is None, (folder / "triggerer.log").read_text()[-4000:]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def known_as(ti_id: Any) -> Any:
    """The id of a task as Airflow's database has it."""
    return str(ti_id) if BEFORE_3_2 else ti_id


def deferred_again(ti_id: Any) -> None:
    """`dag.test` takes a deferred task for a queued one, to run its trigger itself: undo that."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    with create_session() as session:
        session.get_one(TaskInstance, known_as(ti_id)).state = TaskInstanceState.DEFERRED


def triggerer_of(ti_id: Any) -> int | None:
    """Which triggerer has taken the trigger of a task."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        return session.scalar(
            select(Trigger.triggerer_id)
            .join(TaskInstance, TaskInstance.trigger_id == Trigger.id)
            .where(TaskInstance.id == known_as(ti_id))
        )


def event_of(ti_id: Any) -> Any:
    """What the triggerer has left for a task to go on with; None while it waits."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    from tests.support.airflow_face.moved import deserialize

    with create_session() as session:
        task = session.get_one(TaskInstance, known_as(ti_id))
        if task.state != TaskInstanceState.SCHEDULED:
            return None
        kwargs: Any = deserialize(task.next_kwargs)
    return kwargs["event"]


def waits_in_a_triggerer(patch: pytest.MonkeyPatch, folder: Path, meanwhile: Callable[[Any], Any]) -> None:
    """Let a task of `dag.test` wait in a real triggerer; `meanwhile` gives the event, by the task's id."""

    def wait(trigger: Any, ti: Any) -> Any:
        deferred_again(ti.id)
        with triggerer(folder):
            return SimpleNamespace(payload=meanwhile(ti.id))

    patch.setattr("airflow.sdk.definitions.dag._run_inline_trigger", wait)


@pytest.mark.storm
@pytest.mark.usefixtures("airflow_database")
def test_a_stop_waits_in_a_real_triggerer(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = managed.start().pid
    assert pid is not None
    events: list[Any] = []

    def gone(ti_id: Any) -> Any:
        poll(lambda: triggerer_of(ti_id) is not None, timeout_s=120)
        os.kill(pid, signal.SIGCONT)
        events.append(poll(lambda: event_of(ti_id), timeout_s=120))
        return events[-1]

    waits_in_a_triggerer(monkeypatch, managed.folder, gone)
    os.kill(pid, signal.SIGSTOP)
    with DAG("one_stop", schedule=None) as dag:
        StopStreamingJobOperator(
            task_id="task",
            job="flights",
            jobs_file=str(managed.jobs_file),
            deferrable=True,
            poll_interval_s=0.5,
            force_after_s=120,
            savepoint=True,
        )

    run = run_dag(dag)

    assert [event["status"] for event in events] == ["gone"]
    assert task_states(run) == {"task": "success"}
    result = xcom(run, "task")
    assert (result["state"], result["how"], result["epoch"]) == ("stopped", "boundary", 1)
    assert [one.savepoint for one in managed.repository.manifests("flights")] == [result["savepoint"]]
    assert len(managed.control.requests.records.numbers()) == 1
    # The lines of the trigger are in the log of its task.
    (file,) = Path(conf.get_mandatory_value("logging", "base_log_folder")).rglob(
        "*one_stop*/**/*.trigger.*.log"
    )
    log = file.read_text(encoding="utf-8")
    assert "Waiting for the end of the driver of job flights, which was asked to stop, at most until" in log
    assert "Job flights is " in log and "is over after" in log


@pytest.mark.storm
@pytest.mark.usefixtures("airflow_database", "page_on")
def test_a_watch_in_a_real_triggerer_keeps_the_page(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in this process, which has no key: Variables are not encrypted.
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "")
    managed.start()
    page = DatabaseValues("flights")
    write_dags(*build_dags(managed.jobs_file).values())
    seen: list[Any] = []

    def stopped(ti_id: Any) -> Any:
        seen.append(poll(lambda: page.get(LINE), timeout_s=120))
        poll(lambda: part_key("savepoints") in {*page.keys()}, timeout_s=180)
        managed.stop()
        return poll(lambda: event_of(ti_id), timeout_s=120)

    waits_in_a_triggerer(monkeypatch, managed.folder, stopped)
    with DAG("flights.watch", schedule=None) as dag:
        KeepStreamingJobRunningOperator(
            task_id="task", job="flights", jobs_file=str(managed.jobs_file), poll_interval_s=0.5
        )

    run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    assert "could not be kept" not in (managed.folder / "triggerer.log").read_text(encoding="utf-8")
    assert seen[0]["state"] == "running" and seen[0]["watch"]["watched"]
    assert page.get(LINE)["state"] == "stopped"


def unpause(dag_id: str) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.get_one(DagModel, dag_id).is_paused = False


def waits_for_its_run(dag_id: str) -> bool:
    """Whether the scheduler is to start a run of a DAG because of an asset event."""
    from airflow.models.asset import AssetDagRunQueue
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        return (
            session.scalar(select(AssetDagRunQueue).where(AssetDagRunQueue.target_dag_id == dag_id))
            is not None
        )


def remembered(uri: str) -> list[Any]:
    """What a watcher keeps in the state store of its asset."""
    from airflow.models.asset import AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.scalars(
            select(AssetStateStoreModel.value)
            .join(AssetModel, AssetModel.id == AssetStateStoreModel.asset_id)
            .where(AssetModel.uri == uri)
        ).all()
    return [json.loads(row) for row in rows]


@pytest.mark.storm
@pytest.mark.usefixtures("airflow_database")
def test_a_stream_is_followed_by_a_real_triggerer_and_by_the_one_after_it(tmp_path: Path) -> None:
    query = LiveCheckpoint(open_store(str(tmp_path / "orders"))).run(7)
    asset = watermark_asset("orders", "5s", checkpoint=str(tmp_path / "orders"), poll_interval_s=0.5)
    with DAG("follower", schedule=[asset]) as dag:
        pass
    write_dags(dag)
    unpause("follower")
    write_dags(dag)  # only an active DAG's assets are watched

    def told() -> list[tuple[str | None, str]]:
        extras = asset_events(asset.uri)
        assert all(extra["from_trigger"] for extra in extras)
        return [(extra["payload"]["start"], extra["payload"]["end"]) for extra in extras]

    second = [f"1970-01-01T00:00:{number:02d}.000Z" for number in range(60)]
    with triggerer(tmp_path):
        poll(lambda: len(told()) == 1, timeout_s=120)
        query.run(5)
        poll(lambda: len(told()) == 2, timeout_s=60)
        poll(lambda: remembered(asset.uri) == [{"upto": 10_000, "highest": 10_000}], timeout_s=120)
    query.run(25)
    with triggerer(tmp_path):
        poll(lambda: len(told()) == 3, timeout_s=120)

    assert waits_for_its_run("follower")
    assert told() == [(None, second[5]), (second[5], second[10]), (second[10], second[35])]


@pytest.mark.storm
@pytest.mark.usefixtures("airflow_database")
def test_a_breach_is_told_by_one_triggerer_and_its_healing_by_the_one_after_it(tmp_path: Path) -> None:
    jobs_file = slow_job(tmp_path)
    asset = sla_asset("flights", jobs_file=str(jobs_file), poll_interval_s=0.5)
    with DAG("on_call", schedule=[asset]) as dag:
        pass
    write_dags(dag)
    unpause("on_call")
    write_dags(dag)  # only an active DAG's assets are watched

    def told() -> list[tuple[str, str]]:
        payloads = [extra["payload"] for extra in asset_events(asset.uri)]
        return [(one["objective"], one["kind"]) for one in payloads]

    with triggerer(tmp_path):
        poll(lambda: triggers() == 1, timeout_s=120)
        commit(jobs_file, 60.0)
        poll(lambda: len(told()) == 1, timeout_s=60)
        poll(lambda: [len(one["open"]) for one in remembered(asset.uri)] == [1], timeout_s=120)
    commit(jobs_file, 61.0)
    with triggerer(tmp_path):
        poll(lambda: triggers() == 1, timeout_s=120)
        commit(jobs_file, 1.0)
        poll(lambda: len(told()) == 2, timeout_s=120)

    assert waits_for_its_run("on_call")
    assert told() == [("batch_duration", "broke"), ("batch_duration", "healed")]


def triggers() -> int:
    """How many triggers a triggerer that lives has taken."""
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        taken = session.scalars(select(Trigger).where(Trigger.triggerer_id.is_not(None))).all()
        return sum(one.classpath.endswith("SlaEventTrigger") for one in taken)
