"""A real job whose state is compacted and rescaled with the job around it, crashes included.

The application tells numbers that were not seen before. Each round brings the same numbers again: those whose
state has expired are told once more, and no others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streambank.job.declaration import Job, load_jobs
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.savepoint.repository import Repository
from streambank.storage import local_path, open_store
from streambank_airflow.jobs import build_dags
from tests.support.airflow_db import airflow_database, run_dag, task_states, write_dags, xcom
from tests.support.driver import APPLICATIONS, wait_for
from tests.support.jobs import BY, ROOT, end_drivers

__all__ = ["airflow_database"]

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(1200)]

NUMBERS = 40
JOBS = """
repository = "repository"
[jobs.seen]
application = "{application}"
args = ["{folder}"]
checkpoint = "checkpoint"
master = "local[2]"
[jobs.seen.spark]
spark.driver.bindAddress = "127.0.0.1"
spark.driver.host = "127.0.0.1"
spark.driver.memory = "700m"
spark.driver.extraJavaOptions = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark.sql.shuffle.partitions = 3
spark.ui.enabled = false
"spark.sql.streaming.stateStore.providerClass" = "{provider}"
"""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


class Trial:
    """The job, what it has told, and what it should have."""

    def __init__(self, folder: Path, provider: str) -> None:
        self.folder = folder
        self.jobs = folder / "jobs.toml"
        (folder / "in").mkdir()
        self.jobs.write_text(
            JOBS.format(application=APPLICATIONS / "seen.py", folder=folder, provider=provider)
        )
        self.rounds = 0
        self.expected: Counter[int] = Counter()

    @property
    def job(self) -> Job:
        return load_jobs(self.jobs).job("seen")

    def arrive(self, *, forgotten: int = 0) -> None:
        """Bring all numbers once more; those that are multiples of `forgotten` are told again."""
        self.rounds += 1
        for half in range(2):
            path = self.folder / f"{self.rounds}-{half}"
            path.write_text("".join(f"{number}\n" for number in range(half, NUMBERS, 2)))
            path.rename(self.folder / "in" / path.name)
        told = range(NUMBERS) if self.rounds == 1 else range(0, NUMBERS, forgotten) if forgotten else ()
        self.expected.update(told)

    def told(self) -> Counter[int]:
        """What the sink holds, by its log."""
        log = self.folder / "out" / "_spark_metadata"
        files = set()
        for path in log.glob("[0-9]*") if log.is_dir() else ():
            for line in path.read_text().splitlines()[1:]:
                files.add(json.loads(line)["path"].removeprefix("file://"))
        lines = [line for file in files for line in Path(file).read_text().splitlines()]
        return Counter(json.loads(line)["number"] for line in lines)

    def settle(self) -> None:
        """Wait until all input is read, of which a batch takes one file, and compare."""
        inputs = 2 * self.rounds

        def read() -> bool:
            generation = self.job.records().generation()
            assert generation is not None
            folder = local_path(generation.location)
            assert folder is not None
            committed = max((int(path.name) for path in (folder / "commits").glob("[0-9]*")), default=None)
            if committed is None:
                return False
            offset = json.loads((folder / "offsets" / str(committed)).read_text().splitlines()[-1])
            return bool(offset["logOffset"] == inputs - 1)

        wait_for("all input", read, 120)
        assert self.told() == self.expected

    def savepoint_count(self) -> int:
        repository = Repository.open(open_store(self.job.repository), create=True)
        return len(list(repository.manifests("seen")))


@pytest.fixture(params=[ROCKSDB, HDFS], ids=["rocksdb", "hdfs"])
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path, request.param)
    made.arrive()
    try:
        start_job(made.job, by=BY)
        made.settle()
        yield made
    finally:
        end_drivers(made.job.records())


def command(trial: Trial, *arguments: str) -> list[str]:
    return [
        sys.executable, "-m", "streambank", "job", *arguments, "--jobs", str(trial.jobs), "--json",
        "--spark-conf", "spark.driver.memory=700m",
    ]  # fmt: skip


def streambank(trial: Trial, *arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'provider'}:{ROOT}"}
    done = subprocess.run(
        command(trial, *arguments), capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_expired_numbers_are_told_again_and_no_others(trial: Trial) -> None:
    trial.arrive()
    trial.settle()

    done = streambank(trial, "compact", "seen", "--where", "key.number % 5 = 0")

    assert (done["state"], done["generation"], done["running"]) == ("exchanged", 2, True)
    assert done["rewritten"]["operators"][0]["keys"] == NUMBERS // 5
    trial.arrive(forgotten=5)
    trial.settle()
    again = streambank(trial, "compact", "seen", "--where", "key.number > 1000")
    assert (again["state"], again["generation"], again["running"]) == ("nothing-to-do", 2, True)
    trial.arrive()
    trial.settle()


def test_a_job_goes_on_in_another_number_of_partitions(tmp_path: Path) -> None:
    trial = Trial(tmp_path, ROCKSDB)
    trial.arrive()
    try:
        start_job(trial.job, by=BY)
        trial.settle()
        done = streambank(trial, "rescale", "seen", "--partitions", "5")
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


def test_a_command_that_is_killed_leaves_a_job_that_goes_on(trial: Trial) -> None:
    """Killed at whatever it is doing: when the job stands still, and when its new state is there."""
    records = trial.job.records()
    for left in (0, 1):
        wanted = trial.savepoint_count() + 1 + left
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'provider'}:{ROOT}"}
        process = subprocess.Popen(
            command(trial, "compact", "seen", "--where", "key.number % 5 = 0"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
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


def test_what_the_query_does_not_start_with_is_taken_back(trial: Trial) -> None:
    """The state of the new generation is spoilt behind its back: Spark fails on it, and the job goes on."""
    spoil = ROOT / "tests" / "support" / "spoiling_exchange.py"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'provider'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, str(spoil), str(trial.jobs)],
        capture_output=True, text=True, env=environment, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert "The job goes on with the state that it had" in done.stderr
    assert "spoilt" in done.stdout, "the fault fired"
    generation = trial.job.records().generation()
    assert generation is not None
    assert (generation.number, generation.again) == (3, 1)
    trial.arrive()
    trial.settle()


def test_the_dag_does_the_same(airflow_database: None, trial: Trial) -> None:
    def compact(**answers: Any) -> Any:
        dags = build_dags(trial.jobs)  # anew, since a run fills in the templates of its tasks
        write_dags(dags["seen.run"])
        for task in dags["seen.compact"].tasks:
            task.retries = 0
        return run_dag(dags["seen.compact"], run_conf=answers)

    looked = compact(where="key.number % 4 = 0", dry_run=True)
    assert task_states(looked)["preview"] == "failed", "there is no savepoint yet"

    run = compact(where="key.number % 4 = 0")

    states = task_states(run)
    assert (states["rewrite"], states["first_batch"], states["go_back"]) == ("success", "success", "skipped")
    assert xcom(run, "rewrite")["keys"] == NUMBERS // 4
    looked = compact(where="key.number % 5 = 0", dry_run=True)
    assert xcom(looked, "preview")["keys"] > 0
    trial.arrive(forgotten=4)
    trial.settle()
    # Spark finds no such column: the job is stopped by then, and goes on as it was.
    failed = compact(where="value.no_such > 1")
    assert failed.state == "failed"
    assert task_states(failed)["keep_running_again"] == "success"
    trial.arrive()
    trial.settle()
    stop_job(trial.job, by=BY)
