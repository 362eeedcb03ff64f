"""A real job whose state is compacted and rescaled with the job around it, crashes included."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.storage import local_path
from streambank_airflow.dags.jobs import build_dags
from tests.support.airflow_face.metadata_db import airflow_database, run_dag, task_states, write_dags, xcom
from tests.support.jobs.declared import BY, end_drivers
from tests.support.jobs.managed_job import hand_over
from tests.support.jobs.seen_job import ENVIRONMENT, HDFS, NUMBERS, ROCKSDB, SeenJob
from tests.support.json_examples import examples, mismatches
from tests.support.paths import ROOT
from tests.support.waiting import wait_for

__all__ = ["airflow_database"]

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(1200)]


@pytest.fixture(params=[ROCKSDB, HDFS], ids=["rocksdb", "hdfs"])
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SeenJob]:
    made = SeenJob(tmp_path, request.param)
    made.arrive()
    try:
        start_job(made.job, by=BY)
        made.settle()
        yield made
    finally:
        end_drivers(made.job.records())


def test_expired_numbers_are_told_again_and_no_others(trial: SeenJob) -> None:
    trial.arrive()
    trial.settle()

    done = trial.streambank("compact", "seen", "--where", "key.number % 5 = 0")

    assert not list(mismatches(examples()["job compact"], done)), "docs/reference/json.md"
    assert (done["state"], done["generation"], done["running"]) == ("exchanged", 2, True)
    assert done["rewritten"]["operators"][0]["keys"] == NUMBERS // 5
    trial.arrive(forgotten=5)
    trial.settle()
    again = trial.streambank("compact", "seen", "--where", "key.number > 1000")
    assert (again["state"], again["generation"], again["running"]) == ("nothing-to-do", 2, True)
    trial.arrive()
    trial.settle()


def test_a_job_goes_on_in_another_number_of_partitions(tmp_path: Path) -> None:
    trial = SeenJob(tmp_path, ROCKSDB)
    trial.arrive()
    try:
        start_job(trial.job, by=BY)
        trial.settle()
        done = trial.streambank("rescale", "seen", "--partitions", "5")
        assert done["rewritten"]["stores"][0]["partitions"] == 5
        trial.arrive()
        trial.settle()
        generation = trial.job.records().generation()
        assert generation is not None and generation.number == 2
        folder = local_path(generation.location)
        assert folder is not None
        assert {path.name for path in (folder / "state" / "0").glob("[0-9]*")} == set("01234")
    finally:
        end_drivers(trial.job.records())


def test_a_command_that_is_killed_leaves_a_job_that_goes_on(trial: SeenJob) -> None:
    """Killed at whatever it is doing: when the job stands still, and when its new state is there."""
    records = trial.job.records()
    for left in (0, 1):
        wanted = trial.savepoint_count() + 1 + left
        process = subprocess.Popen(
            trial.command("compact", "seen", "--where", "key.number % 5 = 0"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
        )
        wait_for("savepoints", partial(lambda number: trial.savepoint_count() >= number, wanted), 180)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL, "it was still at it"
        generation = records.generation()
        assert generation is not None
        start_job(trial.job, by=BY)
        # Killed just after the switch, it is the next generation that goes on.
        trial.arrive(forgotten=5 if generation.number > 1 else 0)
        trial.settle()
        if generation.number > 1:
            return


def test_what_the_query_does_not_start_with_is_taken_back(trial: SeenJob) -> None:
    """The state of the new generation is spoilt behind its back: Spark fails on it, and the job goes on."""
    spoil = ROOT / "tests" / "support" / "jobs" / "spoiled_exchange.py"
    done = subprocess.run(
        [sys.executable, str(spoil), str(trial.jobs)],
        capture_output=True, text=True, env={**os.environ, **ENVIRONMENT}, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 8, done.stderr
    assert "The job goes on with the state that it had" in done.stderr
    assert "spoilt" in done.stdout, "the fault fired"
    generation = trial.job.records().generation()
    assert generation is not None
    assert (generation.number, generation.again) == (3, 1)
    trial.arrive()
    trial.settle()


def test_the_dag_does_the_same(
    airflow_database: None, trial: SeenJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(trial.job.records, monkeypatch)
    with trial.jobs.open("a") as declared:
        declared.write('\n[jobs.seen.compact]\nexpressions = "any"\n')

    def compact(**answers: Any) -> Any:
        dags = build_dags(trial.jobs)  # again, since a run fills in the templates of its tasks
        write_dags(dags["seen.run"])
        for task in dags["seen.compact"].tasks:
            task.retries = 0
        return run_dag(
            dags["seen.compact"], run_conf={"dry_run": False, **answers}, mark_success_pattern="approve"
        )

    preview = compact(where="key.number % 4 = 0", dry_run=True)
    assert xcom(preview, "preview")["keys"] == NUMBERS // 4, "counted in a separate savepoint"

    run = compact(where="key.number % 4 = 0")

    states = task_states(run)
    assert (states["rewrite"], states["start"], states["go_back"]) == ("success", "success", "skipped")
    assert xcom(run, "rewrite")["keys"] == NUMBERS // 4
    preview = compact(where="key.number % 5 = 0", dry_run=True)
    assert xcom(preview, "preview")["keys"] > 0
    trial.arrive(forgotten=4)
    trial.settle()
    # There is no such column, so the job is not even stopped for it.
    failed = compact(where="value.no_such > 1")
    states = task_states(failed)
    assert (failed.state, states["preview"], states["stop"]) == ("failed", "failed", "upstream_failed")
    # That this is no condition only Spark can tell, which the preview asks.
    failed = compact(where="key.number + 1")
    states = task_states(failed)
    assert (failed.state, states["preview"], states["stop"]) == ("failed", "failed", "upstream_failed")
    trial.arrive()
    trial.settle()
    stop_job(trial.job, by=BY)
