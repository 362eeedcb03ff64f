"""Drivers in a standalone cluster: what the master is sent, and what becomes of its answers."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import InputError, StorageError
from streambank.declaration.declaration import Job
from streambank.driver.bundle import program
from streambank.driver.launcher import Handle
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.launchers.standalone import StandaloneLauncher, submission
from streambank.driver.spec import LaunchSpec
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from tests.support.jobs.declared import BY, declare, launched
from tests.support.refuses import refuses
from tests.support.spark.fake_master import FakeMaster, fake_master
from tests.support.storage.s3_servers import free_ports

SECRETS = {"TOKEN": "of-the-job", "AIRFLOW__CORE__FERNET_KEY": "of-airflow", "AWS_SECRET_ACCESS_KEY": "of-s3"}


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with fake_master() as found:
        yield found


def in_cluster(folder: Path, master: FakeMaster, more: str = "", **launch: str) -> Job:
    fields = {"deploy_mode": "cluster", "rest": master.url, "web": master.url, **launch}
    table = ", ".join(f'{name} = "{value}"' for name, value in fields.items())
    return declare(folder, more=f'master = "spark://127.0.0.1:7077"\nlaunch = {{{table}}}\n{more}')


def submitted(folder: Path, master: FakeMaster, **launch: str) -> tuple[Job, JobControl, LaunchSpec]:
    """A job that such a cluster runs, and a launch of it."""
    job = in_cluster(folder, master, **launch)
    return job, *launched(job)


def test_every_property_and_only_declared_variables_are_sent(folder: Path, master: FakeMaster) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(
        "# of the site\nspark.sql.shuffle.partitions  200\nspark.eventLog.enabled=true\n"
        "spark.hadoop.fs.s3a.secret.key = hidden\nnot.spark 1\n"
    )
    more = 'env = ["TOKEN", "ABSENT"]\n[jobs.flights.spark]\n'
    more += 'spark.sql.shuffle.partitions = 4\nspark.files = "a"\n'
    job = in_cluster(folder, master, more)
    control, spec = launched(job)
    environment = {"SPARK_CONF_DIR": str(folder / "conf"), "STREAMBANK_S3_PROFILES": "west=west", **SECRETS}
    body = submission(job, control, spec, "file:/p/streambank.zip", environment)
    assert body["mainClass"] == "org.apache.spark.deploy.PythonRunner"
    assert body["appResource"] == "file:/p/streambank.zip"
    launch = f"{folder}/repository.control/flights/launches/{spec.launch_id}.json"
    zipped = "streambank.zip"
    assert body["appArgs"] == [zipped, zipped, "--digest", spec.digest, "--launch", launch]
    assert body["environmentVariables"] == {
        "SPARK_ENV_LOADED": "1",
        "PYTHONUNBUFFERED": "1",
        "STREAMBANK_S3_PROFILES": "west=west",
        "TOKEN": "of-the-job",
    }
    assert body["sparkProperties"] == {
        "spark.app.name": "flights",
        "spark.driver.supervise": "false",
        "spark.eventLog.enabled": "true",
        "spark.files": f"a,{zipped}",
        "spark.master": "spark://127.0.0.1:7077",
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": sys.executable,
        "spark.sql.shuffle.partitions": "4",
        "spark.submit.deployMode": "cluster",
        "spark.submit.pyFiles": zipped,
    }


def test_what_is_submitted_is_found_watched_and_killed(folder: Path, master: FakeMaster) -> None:
    job, control, spec = submitted(folder, master)
    launcher = launcher_for(job)
    assert launcher.find(control) == []
    handle = launcher.submit(job, control, spec)
    assert handle == Handle(spec.launch_id, (), None, "driver-0001")
    (found,) = launcher.find(control)
    assert (found.launch_id, found.submission) == (spec.launch_id, "driver-0001")
    assert launcher.find(declare_other(folder)) == []
    state = launcher.status(handle)
    assert (state.state, state.exit_code) == ("running", None)
    assert state.log == f"{master.url}/logPage/?driverId=driver-0001&logType=stderr" == state.tracking
    assert launcher.log_lines(handle, 10)[-2:] == ["of Spark", "of Python"]
    launcher.kill(handle)
    assert launcher.status(handle).state == "ended" and launcher.find(control) == []
    launcher.kill(handle)
    assert master.killed == ["driver-0001"], "what has ended is left alone"


def declare_other(folder: Path) -> JobControl:
    other = folder / "other"
    other.mkdir()
    return declare(other).records()


def test_a_driver_without_a_worker_is_known_by_its_event(folder: Path, master: FakeMaster) -> None:
    job, control, spec = submitted(folder, master)
    launcher = launcher_for(job)
    launcher.submit(job, control, spec)
    master.workerless = True
    assert launcher.find(control) == []
    control.record_event("launched", launch_id=spec.launch_id, submission="driver-0001")
    assert [one.launch_id for one in launcher.find(control)] == [spec.launch_id]


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "ERROR", "KILLED"])
def test_what_the_master_says_is_no_exit_code(folder: Path, master: FakeMaster, state: str) -> None:
    launcher = launcher_for(in_cluster(folder, master))
    master.states["driver-0007"] = state
    found = launcher.status(Handle("launch-1", (), None, "driver-0007"))
    assert (found.state, found.exit_code, found.why) == ("ended", None, state)


def test_an_unknown_driver_has_ended(folder: Path, master: FakeMaster) -> None:
    launcher = launcher_for(in_cluster(folder, master))
    handle = Handle("launch-1", (), None, "driver-0009")
    assert launcher.status(handle).state == "ended"
    assert launcher.log_lines(handle, 10) == []
    launcher.kill(handle)


def test_a_lost_answer_makes_no_second_driver(folder: Path, master: FakeMaster) -> None:
    job, control, spec = submitted(folder, master)
    master.fault = "lost"
    handle = launcher_for(job).submit(job, control, spec)
    assert (master.fired, len(master.submitted)) == (1, 1)
    assert (handle.launch_id, handle.submission) == (spec.launch_id, "driver-0001")


def test_a_lost_answer_of_a_driver_that_waits_says_so(folder: Path, master: FakeMaster) -> None:
    job, control, spec = submitted(folder, master)
    master.fault, master.workerless = "lost", True
    with pytest.raises(StorageError) as caught:
        StandaloneLauncher(job.launch, {}, search_s=0.2).submit(job, control, spec)
    assert (caught.value.code, master.fired, len(master.submitted)) == ("submit-unanswered", 1, 1)


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("error", "submit-unanswered", "out of memory"),
        ("refuses", "not-started", "no room"),
        ("standby", "cluster-refused", "STANDBY"),
    ],
)
def test_a_master_that_does_not_take_a_driver(
    folder: Path, master: FakeMaster, fault: str, code: str, said: str
) -> None:
    job, control, spec = submitted(folder, master)
    master.fault = fault
    with pytest.raises(StorageError) as caught:
        StandaloneLauncher(job.launch, {}, search_s=0.1).submit(job, control, spec)
    assert (caught.value.code, master.fired) == (code, 1)
    assert said in caught.value.message


def test_the_leader_is_asked_where_another_master_stands_by(folder: Path, master: FakeMaster) -> None:
    with fake_master() as waiting:
        waiting.fault = "standby"
        (port,) = free_ports(1)
        rest = f"http://127.0.0.1:{port},{waiting.url},{master.url}"
        job, control, spec = submitted(folder, master, rest=rest)
        assert launcher_for(job).submit(job, control, spec).submission == "driver-0001"
        assert (waiting.fired, len(master.submitted)) == (1, 1)


def test_a_master_that_is_down_is_told(folder: Path, master: FakeMaster) -> None:
    (port,) = free_ports(1)
    down = f"http://127.0.0.1:{port}"
    job = in_cluster(folder, master, rest=down, web=down)
    with refuses(StorageError, "cluster-unreachable"):
        start_job(job, by=BY)
    status = job_status(job)
    assert status.state == "never-started" and "it is not known whether a driver is starting" in status.why
    (line,) = launcher_for(job).log_lines(Handle("launch-1", (), None, "driver-0001"), 5)
    assert "cannot be read" in line
    with pytest.raises(StorageError):
        stop_job(job, by=BY)
    desired = job.records().desired()
    assert desired is not None and desired.state == "stopped"


def test_a_start_that_times_out_leaves_a_driver_that_a_stop_ends(folder: Path, master: FakeMaster) -> None:
    job = in_cluster(folder, master)
    with refuses(StorageError, "start-timeout"):
        start_job(job, by=BY, timeout_s=0.1)
    with pytest.raises(StorageError):
        start_job(job, by=BY, timeout_s=0.1)
    assert len(master.submitted) == 1, "the second start has found the first one's driver"
    event = job.records().last_event("launched")
    assert event is not None and event["submission"] == "driver-0001"
    status = job_status(job)
    assert (status.state, status.submission) == ("starting", "driver-0001")
    stopped = stop_job(job, by=BY)
    assert (stopped.state, stopped.how, master.killed) == ("stopped", "killed", ["driver-0001"])


def test_the_exit_code_of_a_refused_driver_is_its_own(folder: Path, master: FakeMaster) -> None:
    job = in_cluster(folder, master)

    class Refused(StandaloneLauncher):
        def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
            handle = super().submit(job, control, spec)
            control.record_event("driver-refused", launch_id=spec.launch_id, code="not-wanted", exit_code=8)
            master.states[handle.submission or ""] = "FINISHED"
            return handle

    with pytest.raises(Exception, match="exit code 8") as caught:
        start_job(job, by=BY, launcher=Refused(job.launch))
    assert getattr(caught.value, "code", None) == "driver-refused"
    assert "of Python" in getattr(caught.value, "hint", "")


def test_only_python_programs_are_sent(folder: Path, master: FakeMaster) -> None:
    job, control, spec = submitted(folder, master)
    with refuses(InputError, "not-pyspark"):
        launcher_for(job).check(replace(job, application="/x/app.jar"))
    launcher_for(job).check(replace(job, application="/only/there.py"))
    launcher_for(job).submit(job, control, replace(spec, application="/only/there.py"))


def test_the_program_is_the_same_each_time_and_runs(tmp_path: Path) -> None:
    data = program()
    assert data == program()
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    assert {"__main__.py", "streambank/core/errors.py", "streambank_spark/runner/runner.py"} <= set(names)
    (tmp_path / "streambank.zip").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "streambank.zip", "--launch"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "The arguments of run_query.py are wrong" in done.stderr
