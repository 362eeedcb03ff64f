"""The worst six of the nights, without a live Airflow and without Spark: what was lost or hidden is red.

Each is the incident of a night in `played`, with the DAGs that are generated run in this process.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.core.units import from_json_time, to_json_time, utc_now
from streambank.job.savepoint import savepoint_job
from streambank.storage import local_path, open_store
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.notify.deadlines import tell_late_restore
from tests.support.airflow_face.metadata_db import (
    airflow_database,
    answer_question,
    run_dag,
    task_states,
    xcom,
)
from tests.support.airflow_face.recording_notifier import alerts
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.cli import streambank, succeed
from tests.support.jobs.managed_job import BY, Managed, managed_job
from tests.support.storage.contents import contents
from tests.support.waiting import poll

__all__ = ["airflow_database"]
HANDED_OVER = "check_run|keep_running|watched"
"""The tasks of a restore that are about `<job>.run`, which runs in a live Airflow only."""
pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_database")]


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    """A job that runs without Spark; it has committed some batches."""
    with managed_job(tmp_path, monkeypatch) as job:
        job.start(until=2)
        poll(lambda: job.control.query_facts() is not None)
        yield job


def stop_and_save(managed: Managed) -> Path:
    """Stop the job, give it an output up to its last batch, and take a savepoint; the output."""
    managed.stop()
    folder = managed.folder / "out"
    sink = FileSinkWriter(open_store(folder))
    for batch in range(managed.last_batch() + 1):
        sink.write(batch, [{"batch": batch}])
    facts = managed.control.query_facts() or {}
    managed.control.record_query(None, {**facts, "sink": f"FileSink[file:{folder}]"})
    savepoint_job(managed.job, by=BY)
    return folder


def fails(managed: Managed, verb: str, code: str, capfd: pytest.CaptureFixture[str], **conf: Any) -> None:
    """Run a DAG of the job: it fails, at its first try, with this code in a task's log."""
    capfd.readouterr()
    run = run_dag(build_dags(managed.jobs_file)[f"flights.{verb}"], run_conf=conf)
    states, (said, _) = task_states(run), capfd.readouterr()
    assert "failed" in states.values() and "up_for_retry" not in states.values(), (verb, states)
    assert code in said, (verb, said[-3000:])


@pytest.mark.storm
def test_d1_a_repository_that_is_gone_is_red_wherever_one_looks_and_nothing_starts(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    output = stop_and_save(managed)
    repository, records = managed.folder / "repository", managed.folder / "repository.control"
    away = managed.folder / "away"
    away.mkdir()
    before = contents(open_store(managed.folder / "checkpoints")), contents(open_store(output))
    for place in (repository, records):  # both are on the disk that is not mounted
        place.rename(away / place.name)
    repository.mkdir()

    for verb in ("savepoint", "sla", "run"):
        fails(managed, verb, "repository-lost", capfd)
    started = streambank("job", "start", "flights", "--jobs", managed.jobs_file, "--json")
    assert (started.code, started.document["error"]) == (8, "repository-lost")
    status = streambank("job", "status", "flights", "--jobs", managed.jobs_file, "--json")
    assert status.document["state"] == "repository-lost"
    after = contents(open_store(managed.folder / "checkpoints")), contents(open_store(output))
    assert after == before

    shutil.rmtree(repository)
    shutil.rmtree(records, ignore_errors=True)
    for place in (repository, records):
        (away / place.name).rename(place)
    last = managed.last_batch()
    succeed("job", "start", "flights", "--jobs", managed.jobs_file)
    managed.wait_for_batch(last + 1)


@pytest.mark.storm
def test_d1_savepoints_that_are_gone_alone_are_red_and_the_job_goes_on(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its records are beside the repository, so nothing of the job is lost but what could be gone back to."""
    stop_and_save(managed)
    managed.folder.joinpath("repository").rename(managed.folder / "away")
    managed.folder.joinpath("repository").mkdir()
    for verb in ("savepoint", "sla"):
        fails(managed, verb, "repository-lost", capfd)
    last = managed.last_batch()
    succeed("job", "start", "flights", "--jobs", managed.jobs_file)
    managed.wait_for_batch(last + 1)


@pytest.mark.storm
def test_d9_a_truncated_state_file_is_found_before_a_start_and_no_start_is_tried_again(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    stop_and_save(managed)
    deltas = (managed.checkpoint / "state" / "0").glob("*/[0-9]*.delta")
    newest = max(deltas, key=lambda path: int(path.stem))
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    epochs = managed.control.lease.view()

    fails(managed, "sla", "checkpoint-damaged", capfd)
    fails(managed, "run", "checkpoint-damaged", capfd)

    assert managed.control.lease.view() == epochs, "a driver was started"
    said = streambank("doctor", "--job", "flights", "--jobs", managed.jobs_file, "--json").out
    assert "checkpoint-damaged" in said and "trigger flights.restore" in said


def levels(run: Any) -> dict[str, str]:
    """The level of each objective that a run of `<job>.sla` has found."""
    return {one["objective"]: one["level"] for one in xcom(run, "check")["verdicts"]}


def let_time_pass(managed: Managed, minutes: float) -> None:
    """Let what is recorded of drivers, watchers and what is meant to be have happened so much earlier."""
    for path in Path(local_path(managed.control.store.uri) or "").glob("*/*.json"):
        if path.parent.name in ("desired", "lease", "watch"):
            data = json.loads(path.read_text(encoding="utf-8"))
            data["at"] = to_json_time(from_json_time(data["at"]) - timedelta(minutes=minutes))
            path.write_text(json.dumps(data), encoding="utf-8")


def test_d2_a_dead_job_that_is_meant_to_run_is_red_by_default(managed: Managed) -> None:
    assert levels(run_dag(build_dags(managed.jobs_file)["flights.sla"]))["alive"] == "ok"
    managed.kill()
    let_time_pass(managed, 6)

    run = run_dag(build_dags(managed.jobs_file)["flights.sla"])

    assert (task_states(run)["check"], levels(run)["alive"]) == ("failed", "breach")


def test_d3_a_job_that_runs_and_that_nothing_would_restart_is_red_by_default(managed: Managed) -> None:
    meant = managed.control.desired()
    assert meant is not None
    managed.control.watches.begin(by={"dag_id": "flights.run", "run_id": "paused"}, desired=meant.number)
    assert levels(run_dag(build_dags(managed.jobs_file)["flights.sla"]))["alive"] == "ok"
    let_time_pass(managed, 7)

    run = run_dag(build_dags(managed.jobs_file)["flights.sla"])

    assert managed.driver_lives()
    assert (task_states(run)["check"], levels(run)["alive"]) == ("failed", "breach")


ASIDE = "Stop the job, restore and set later output aside"


@pytest.mark.storm
def test_d8_a_living_job_whose_sink_is_ahead_is_restored_by_one_run(managed: Managed) -> None:
    output = stop_and_save(managed)
    saved = managed.last_batch()
    FileSinkWriter(open_store(output)).write(saved + 1, [{"batch": "later"}])
    managed.start(until=saved + 1)
    dags = build_dags(managed.jobs_file)

    with ThreadPoolExecutor(1) as person:
        answered = person.submit(answer_question, "flights.restore", "approve", ASIDE, 240.0)
        run = run_dag(dags["flights.restore"], mark_success_pattern=HANDED_OVER)
        answered.result()

    states = task_states(run)
    assert states.pop("restore_into") == "skipped"
    assert set(states.values()) == {"success"}
    assert xcom(run, "restore")["batch"] == saved
    assert [row["batch"] for row in FileSinkWriter(open_store(output)).read()] == [*range(saved + 1)]
    assert managed.driver_lives()
    managed.wait_for_batch(saved + 1)


def test_d4_of_restores_that_are_past_their_deadline_the_one_that_goes_on_is_late(managed: Managed) -> None:
    """One failed before another one brought the job back, which has ended well; the last one waits."""
    stop_and_save(managed)
    queued_at = to_json_time(utc_now())
    place = ("-r", managed.job.repository, "--job", "flights", "--jobs", managed.jobs_file)
    succeed("restore", "latest-good", "--generation", *place)
    file = managed.folder / "alerts"
    managed.declare(
        '\n[jobs.flights.restore]\ndeadline = "10m"\n'
        'notify = [{class = "tests.support.airflow_face.recording_notifier.RecordingNotifier", '
        f'args = {{file = "{file}"}}}}]\n'
    )

    for state in ("failed", "success", "running"):
        asyncio.run(
            tell_late_restore(
                job="flights",
                deadline_s=600.0,
                context={"dag_run": {"dag_run_id": state, "state": state, "queued_at": queued_at}},
                jobs_file=str(managed.jobs_file),
            )
        )

    assert [one["run"] for one in alerts(file)] == ["running"]
