"""Jobs for tests: declared in a temporary folder, run by a driver without Spark."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from streambank.control.control import JobControl
from streambank.control.processes import HostId, this_host, who
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.installed import Installation
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec, write_launch
from streambank.job.start import start_job
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import unpack
from tests.support.paths import ROOT
from tests.support.waiting import poll

BY = who("test")
ELSEWHERE = HostId("elsewhere", "00000000-0000-0000-0000-000000000000", "pid:[1]")

_SPARK_SUBMIT = """#!/bin/sh
while [ "${1%.py}" = "$1" ]; do shift; done
exec "$PYSPARK_PYTHON" "$@"
"""


KILLED_STARTER = """
import os, pathlib, sys
from streambank.declaration.load import load_jobs
from streambank.job.start import start_job
from tests.support.jobs.declared import fake_launcher
folder = pathlib.Path(sys.argv[1])
launcher = fake_launcher(folder)
submit = launcher.submit
def submit_and_die(*args):
    submit(*args)
    os.kill(os.getpid(), 9)
launcher.submit = submit_and_die
start_job(load_jobs(folder / "streaming_jobs.toml").job("flights"), by={}, launcher=launcher)
"""
"""A process that is killed the moment it has launched a driver of the job in the folder it is given."""


def write_jobs(folder: Path, *args: str, name: str = "flights", more: str = "") -> Path:
    """A jobs file with one job whose fake driver gets these arguments; a name with dots is in quotes."""
    place = name.strip('"')
    file = folder / "streaming_jobs.toml"
    file.write_text(
        f"""
repository = "repository"

[jobs.{name}]
application = "app.py"
args = {list(args)!r}
checkpoint = "checkpoints/{place}"
{more}
[jobs.{name}.lease]
beat = "100ms"
ttl = "2s"
""",
        encoding="utf-8",
    )
    (folder / "app.py").write_text("", encoding="utf-8")
    return file


def declare(folder: Path, *args: str, name: str = "flights", more: str = "", batches: int = 0) -> Job:
    """That job, with so many committed batches in its checkpoint."""
    job = load_jobs(write_jobs(folder, *args, name=name, more=more)).job(name)
    if batches:
        LiveCheckpoint(open_store(job.checkpoint)).run(batches)
    return job


def declare_recorded(folder: Path, checkpoint: str, *args: str, more: str = "") -> Job:
    """That job, with a recorded checkpoint."""
    job = declare(folder, *args, more=more)
    (folder / "checkpoints").mkdir()
    (unpack(checkpoint, folder / "unpacked") / "checkpoint").rename(folder / "checkpoints/flights")
    return job


def launched(job: Job, **changes: Any) -> tuple[JobControl, LaunchSpec]:
    """Its records, and a launch that is written among them."""
    control = job.records()
    spec = replace(prepare_launch(job, control, by=BY), **changes)
    write_launch(control, spec)
    return control, spec


def fake_launcher(folder: Path) -> LocalLauncher:
    """A launcher whose spark-submit runs the fake driver."""
    return LocalLauncher(fake_installation(folder))


def fake_installation(folder: Path) -> Installation:
    """A Spark whose spark-submit runs the fake driver."""
    submit = folder / "spark" / "bin" / "spark-submit"
    if not submit.exists():
        submit.parent.mkdir(parents=True, exist_ok=True)
        submit.write_text(_SPARK_SUBMIT, encoding="utf-8")
        submit.chmod(0o755)
    return Installation(
        sys.executable,
        folder / "spark",
        ROOT / "tests" / "support" / "drivers" / "fake_driver.py",
        (str(ROOT / "provider"), str(ROOT)),
    )


def started(folder: Path, *args: str, more: str = "") -> Job:
    """That job, whose driver is started."""
    job = declare(folder, *args, more=more)
    start_job(job, by=BY, launcher=fake_launcher(folder))
    return job


def end_drivers(control: JobControl) -> None:
    """SIGKILL whatever runs of a job, by its launches; and see it gone."""
    launcher = LocalLauncher()
    found = launcher.find(control)
    for handle in found:
        launcher.kill(handle)
    poll(lambda: not launcher.find(control))
    # One that is just ending has no arguments any more by which it is found, and lives for another moment.
    poll(lambda: not any(one.is_living() for handle in found for one in handle.processes))


def here() -> HostId:
    return this_host()
