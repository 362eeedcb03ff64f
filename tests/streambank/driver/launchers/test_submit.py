"""What a submission by spark-submit leaves behind, and what it takes along."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import StorageError
from streambank.declaration.declaration import Job
from streambank.driver.launchers import submit as submitting
from streambank.driver.launchers.kubernetes import KubernetesLauncher
from streambank.driver.launchers.yarn import YarnLauncher
from tests.streambank.driver.launchers.test_yarn import APPLICATION, submit_with
from tests.support.jobs.declared import declare, launched
from tests.support.processes import child
from tests.support.refuses import refuses
from tests.support.waiting import poll

SUBMITS = f"echo 'Submitted application {APPLICATION}'"
AWS = {
    "AWS_ACCESS_KEY_ID": "of-s3",
    "AWS_SECRET_ACCESS_KEY": "of-s3",
    "AWS_SESSION_TOKEN": "of-s3",
    "AWS_PROFILE": "streams",
    "AWS_REGION": "eu-1",
    "PATH": os.environ["PATH"],
}

STARTER = """
import pathlib, sys
from streambank.driver.launchers.yarn import YarnLauncher
from tests.streambank.driver.launchers.test_submit import on_yarn
from tests.streambank.driver.launchers.test_yarn import submit_with
from tests.support.jobs.declared import launched
folder = pathlib.Path(sys.argv[1])
job = on_yarn(folder)
control, spec = launched(job)
script = f"echo $$ > {folder}/pid; sleep 60"
YarnLauncher(job.launch, {"PATH": "/usr/bin:/bin", "TOKEN": "secret"}, submit_with(folder, script)).submit(
    job, control, spec
)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, of this process and of its children."""
    found = tmp_path / "tmp"
    found.mkdir()
    monkeypatch.setenv("TMPDIR", str(found))
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    yield found


def on_yarn(folder: Path) -> Job:
    launch = 'deploy_mode = "cluster", resource_manager = "http://127.0.0.1:1"'
    return declare(folder, more=f'master = "yarn"\nenv = ["TOKEN"]\nlaunch = {{{launch}}}')


def submit(job: Job, folder: Path, script: str) -> None:
    control, spec = launched(job)
    YarnLauncher(job.launch, {}, submit_with(folder, script)).submit(job, control, spec)


def read_pid(folder: Path) -> int:
    file = folder / "pid"
    return int(poll(lambda: file.exists() and file.read_text()))


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_what_a_killed_start_leaves_goes_with_the_next_submission(folder: Path, temporary: Path) -> None:
    with child(STARTER, folder) as starter:
        pid = read_pid(folder)
        starter.kill()
        starter.wait()
    (left,) = temporary.iterdir()
    assert "secret" in (left / "spark.conf").read_text()
    job = on_yarn(folder)
    submit(job, folder, SUBMITS)
    os.utime(left, (1, 1))
    submit(job, folder, SUBMITS)
    assert left.is_dir() and is_there(pid), "spark-submit goes on, and reads it"
    os.killpg(pid, signal.SIGKILL)
    poll(lambda: submitting._is_left(left))
    os.utime(left, (time.time(), time.time()))
    submit(job, folder, SUBMITS)
    assert left.is_dir(), "one so young may be in the making"
    os.utime(left, (1, 1))
    submit(job, folder, SUBMITS)
    assert list(temporary.iterdir()) == []


def test_only_folders_of_ours_are_removed(folder: Path, temporary: Path) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "output").touch()
    (temporary / "streambank-launch-link").symlink_to(elsewhere)
    other = temporary / "streambank-other"
    other.mkdir()
    (other / "output").touch()
    for one in (elsewhere, other):
        os.utime(one, (1, 1))
    submit(on_yarn(folder), folder, SUBMITS)
    assert (elsewhere / "output").exists() and (other / "output").exists()
    assert (temporary / "streambank-launch-link").is_symlink()


class Cancelled(BaseException):
    """What a task is interrupted by."""


def test_an_interrupted_start_ends_spark_submit_before_its_folder_goes(
    folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen.wait

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        (folder / "go").touch()
        return real(process, timeout)

    def cancel(*_: object) -> None:
        raise Cancelled

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    go = f"while [ ! -e {folder}/go ]; do sleep 0.05; done"
    script = f"echo $$ > {folder}/pid; sleep 60 & echo $! > {folder}/inner; {go}; kill -USR1 $PPID; wait"
    before = signal.signal(signal.SIGUSR1, cancel)
    try:
        with pytest.raises(Cancelled):
            submit(on_yarn(folder), folder, script)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not is_there(read_pid(folder))
    poll(lambda: not is_there(int((folder / "inner").read_text())))
    assert list(temporary.iterdir()) == []


def test_where_nobody_can_end_spark_submit_its_folder_stays_until_it_has_ended(
    folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = submitting._started
    started = []

    def interrupted(*args: Any) -> Any:
        started.append(real(*args))
        raise Cancelled

    monkeypatch.setattr(submitting, "_started", interrupted)
    with pytest.raises(Cancelled):
        submit(on_yarn(folder), folder, "sleep 60")
    (left,) = temporary.iterdir()
    assert (left / "spark.conf").exists()
    monkeypatch.setattr(submitting, "_started", real)
    os.killpg(started[0].pid, signal.SIGKILL)
    started[0].wait()
    poll(lambda: submitting._is_left(left))
    os.utime(left, (1, 1))
    submit(on_yarn(folder), folder, SUBMITS)
    assert list(temporary.iterdir()) == []


def test_nothing_is_left_of_what_never_began(folder: Path, temporary: Path) -> None:
    job = on_yarn(folder)
    installation = submit_with(folder, SUBMITS)
    installation.spark_submit.chmod(0o600)
    control, spec = launched(job)
    with refuses(StorageError, "not-started"):
        YarnLauncher(job.launch, {}, installation).submit(job, control, spec)
    assert list(temporary.iterdir()) == []


def test_no_credentials_of_s3_go_to_yarn(folder: Path) -> None:
    """Spark writes those that it finds in its environment into the configuration that YARN keeps."""
    job = on_yarn(folder)
    control, spec = launched(job)
    script = f"env > {folder}/environment; {SUBMITS}"
    launcher = YarnLauncher(job.launch, AWS, submit_with(folder, script))
    launcher.submit(job, control, replace(spec, control="s3://bucket/jobs"))
    passed = (folder / "environment").read_text()
    assert "of-s3" not in passed
    assert "AWS_PROFILE=streams" in passed and "AWS_REGION=eu-1" in passed, "what only leads to some may pass"


@pytest.mark.parametrize("upload", ["s3a://bucket/up", "hdfs://host/up"])
def test_what_is_uploaded_by_kubernetes_is_uploaded_with_credentials(folder: Path, upload: str) -> None:
    more = f'[jobs.flights.spark]\nspark.kubernetes.file.upload.path = "{upload}"'
    launch = 'launch = {deploy_mode = "cluster", image = "i"}'
    job = declare(folder, more=f'master = "k8s://https://api:6443"\n{launch}\n{more}')
    control, spec = launched(job)
    launcher = KubernetesLauncher(job.launch, AWS, submit_with(folder, f"env > {folder}/environment"))
    launcher.submit(job, control, replace(spec, control="s3://bucket/jobs"))
    passed = "AWS_SECRET_ACCESS_KEY=of-s3" in (folder / "environment").read_text()
    assert passed == upload.startswith("s3a")
