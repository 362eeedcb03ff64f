"""A savepoint of one job beside that of another one that takes long: neither waits for the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from streambank.declaration.load import load_jobs
from streambank.job.savepoint import savepoint_job
from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import succeed
from tests.support.jobs.declared import BY
from tests.support.paths import ROOT
from tests.support.waiting import poll

JOBS = """
repository = "repository"

[jobs.slow]
application = "app.py"
checkpoint = "slow/checkpoint"

[jobs.quick]
application = "app.py"
checkpoint = "quick/checkpoint"
"""


def holds(pid: int, folder: Path) -> bool:
    """Whether a process has a file of a folder open."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if descriptor.readlink().is_relative_to(folder):
                return True
        except FileNotFoundError:
            continue
    return False


def test_a_slow_savepoint_of_one_job_keeps_no_other_job_waiting(tmp_path: Path) -> None:
    """Both are in one repository. The slow one is in the middle of its copy all the while."""
    (tmp_path / "app.py").write_text("")
    (tmp_path / "jobs.toml").write_text(JOBS)
    unpack("4.3.0/rocksdb-window", tmp_path / "slow")
    unpack("4.3.0/hdfs-window", tmp_path / "quick")
    checkpoint = tmp_path / "slow/checkpoint"
    take = ("take", checkpoint, "-r", tmp_path / "repository", "--job", "slow")
    command = [sys.executable, "-m", "streambank", *map(str, take), "--max-rate", "100B/s"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "provider")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as slow:
        try:
            poll(lambda: holds(slow.pid, checkpoint))
            taken = savepoint_job(load_jobs(tmp_path / "jobs.toml").job("quick"), by=BY)
            assert not taken.to_dict()["already_there"]
            repository = Repository.open(open_store(tmp_path / "repository"))
            assert list(repository.manifests("slow")) == []
            assert slow.poll() is None and holds(slow.pid, checkpoint), "it is still at work"
        finally:
            slow.kill()
    succeed(*take)
    for name in ("slow", "quick"):
        succeed("verify", "latest", "-r", tmp_path / "repository", "--job", name, "--level", "full")
