"""The whole way with the real runner: started by several at once, killed, started again, drained, saved."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import process
from streambank.declaration.load import load_jobs
from streambank.driver.launcher import Handle
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import write_launch
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.jobs.declared import BY, end_drivers
from tests.support.processes import race
from tests.support.sla.progress_scan import ProgressScan
from tests.support.spark.jvm import spark_options
from tests.support.waiting import poll

APPLICATION = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(sys.argv[1])
lines.writeStream.format("text").option("path", sys.argv[2]).option("checkpointLocation", "/nowhere").start()
spark.streams.awaitAnyTermination()
"""
JOBS = f"""
repository = "repository"
[jobs.lines]
application = "app.py"
args = ["in", "out"]
checkpoint = "checkpoint"
master = "local[2]"
[jobs.lines.spark]
spark.driver.bindAddress = "127.0.0.1"
spark.driver.host = "127.0.0.1"
spark.driver.extraJavaOptions = "{spark_options()}"
spark.ui.enabled = false
"""
START = """
import json, sys
from streambank.declaration.load import load_jobs
from streambank.driver.spec import write_launch
from streambank.driver.launchers.local import Handle, LocalLauncher
from streambank.driver.prepare import prepare_launch
from streambank.job.start import start_job
job = load_jobs(sys.argv[1]).job("lines")
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(start_job(job, by={"via": "race"}).to_dict()))
"""


def arrive(folder: Path, name: str, line: str) -> None:
    """Put a file into the input at once: Spark reads a name only once, whole or not."""
    (folder / name).write_text(f"{line}\n")
    (folder / name).rename(folder / "in" / name)


@pytest.mark.storm
@pytest.mark.spark
@pytest.mark.slow
def test_a_declared_job_with_a_real_driver(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "jobs.toml").write_text(JOBS)
    (tmp_path / "in").mkdir()
    arrive(tmp_path, "0", "zero")
    job = load_jobs(tmp_path / "jobs.toml").job("lines")
    try:
        said = [json.loads(line) for line in race(START, 3, tmp_path / "jobs.toml", timeout_s=240)]
        assert sorted(one["state"] for one in said) == ["already-running"] * 2 + ["started"]
        assert len({(one["pid"], one["jvm_pid"], one["epoch"]) for one in said}) == 1
        assert [one["queries"] for one in said] == [{"main": "committed"}] * 3
        view = job.records().lease.view()
        assert view is not None and view.status["application"] == "settled"
        pid, jvm_pid = said[0]["pid"], said[0]["jvm_pid"]
        assert b"AIRFLOW" not in Path(f"/proc/{pid}/environ").read_bytes()

        os.kill(jvm_pid, signal.SIGKILL)
        poll(lambda: process(jvm_pid, "jvm") is None)
        arrive(tmp_path, "1", "one")
        again = start_job(job, by=BY)
        assert (again.state, again.epoch) == ("started", 2) and again.pid != pid

        for number in range(2, 5):
            arrive(tmp_path, str(number), str(number))
        stopped = stop_job(job, by=BY, drain=True, savepoint=True)
        assert (stopped.how, stopped.drained) == ("boundary", True)
        status = job_status(job)
        assert (status.state, status.queries["main"].sink) == ("stopped", f"FileSink[file:{tmp_path}/out]")
        manifest = Repository.open(open_store(job.repository)).load("lines", stopped.savepoints["main"])
        assert manifest.batch == stopped.batch
        assert [sink["path"] for sink in manifest.sinks] == [f"file://{tmp_path}/out"]
        scan = ProgressScan(job.records().store)
        batches = [record.batch for record in scan]
        assert batches[-1] == stopped.batch and scan.duplicates == scan.damaged == 0
        lines = sorted(
            line for part in (tmp_path / "out").glob("part-*") for line in part.read_text().split()
        )
        assert lines == ["2", "3", "4", "one", "zero"], "drained: all that was there has been processed, once"
    finally:
        end_drivers(job.records())


class Elsewhere(LocalLauncher):
    """As it is on another machine, from which no process of this one is seen."""

    def find(self, control: JobControl) -> list[Handle]:
        return []


@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_that_a_stop_could_not_see_coming_up_does_not_run(tmp_path: Path) -> None:
    """Its start was killed on this machine, and the job was stopped on another one."""
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "jobs.toml").write_text(JOBS)
    (tmp_path / "in").mkdir()
    job = load_jobs(tmp_path / "jobs.toml").job("lines")
    control, launcher = job.records(), LocalLauncher()
    desired = control.set_desired("running", by=BY)
    spec = prepare_launch(job, control, by=BY, log=str(tmp_path / "driver.log"), desired=desired.number)
    write_launch(control, spec)
    handle = launcher.submit(job, control, spec)
    try:
        assert stop_job(job, by=BY, launcher=Elsewhere()).state == "already-stopped"
        assert launcher.status(handle).state == "running", "it was there all the same"
        poll(lambda: launcher.status(handle).state == "ended", timeout_s=120)
    finally:
        end_drivers(control)
    assert "is superseded" in (tmp_path / "driver.log").read_text()
    assert not [one for one in control.events() if one.data.get("kind") == "query-started"]
    assert job_status(job).state == "stopped"
