"""Jobs for tests: declared in a temporary folder, run by a driver without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from streambank.control.control import JobControl
from streambank.control.processes import HostId, this_host, who
from streambank.declaration.declaration import Job, load_jobs
from streambank.driver.installed import Installation
from streambank.driver.launchers.local import LocalLauncher
from tests.support.paths import ROOT

T = TypeVar("T")

BY = who("test")
ELSEWHERE = HostId("elsewhere", "00000000-0000-0000-0000-000000000000", "pid:[1]")

_SPARK_SUBMIT = """#!/bin/sh
while [ "${1%.py}" = "$1" ]; do shift; done
exec "$PYSPARK_PYTHON" "$@"
"""


KILLED_STARTER = """
import os, pathlib, sys
from streambank.declaration.declaration import load_jobs
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


class FakeClock:
    """A monotonic clock that moves when somebody sleeps on it, or is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def poll(look: Callable[[], T], *, timeout_s: float = 20.0) -> T:
    """The first true answer; fails after a while."""
    deadline = time.monotonic() + timeout_s
    while True:
        if answer := look():
            return answer
        assert time.monotonic() < deadline, f"still {answer!r} after {timeout_s} s"
        time.sleep(0.01)


def write_jobs(folder: Path, *args: str, name: str = "flights", more: str = "") -> Path:
    """A jobs file with one job whose fake driver gets these arguments."""
    file = folder / "streaming_jobs.toml"
    file.write_text(
        f"""
repository = "repository"

[jobs.{name}]
application = "app.py"
args = {list(args)!r}
checkpoint = "checkpoints/{name}"
{more}
[jobs.{name}.lease]
beat = "100ms"
ttl = "2s"
""",
        encoding="utf-8",
    )
    (folder / "app.py").write_text("", encoding="utf-8")
    return file


def declare(folder: Path, *args: str, name: str = "flights", more: str = "") -> Job:
    """That job."""
    return load_jobs(write_jobs(folder, *args, name=name, more=more)).job(name)


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


def end_drivers(control: JobControl) -> None:
    """SIGKILL whatever runs of a job, by its launches; and see it gone."""
    launcher = LocalLauncher()
    found = launcher.find(control)
    for handle in found:
        launcher.kill(handle)
    poll(lambda: not launcher.find(control))
    # One that is just ending has no arguments any more by which it is found, and lives for another moment.
    poll(lambda: not any(one.is_living() for handle in found for one in handle.processes))


@contextmanager
def child(code: str, *args: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs `code` with the engine at hand; killed at the end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "provider"), str(ROOT)))}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def say(process: subprocess.Popen[str]) -> str:
    """The next line that a child says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def race(code: str, count: int, *args: str | Path, timeout_s: float = 60.0) -> Sequence[str]:
    """Run `code` in many processes at once; what each said in its last line.

    Each says `ready`, waits for a line on its standard input, and goes.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "provider"), str(ROOT)))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert say(process) == "ready"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        # All have had their try before anybody's standard input ends, for which a winner may wait.
        first = [say(process) for process in processes]
        rest = [process.communicate(timeout=timeout_s)[0].strip() for process in processes]
        return [(late or early).splitlines()[-1] for early, late in zip(first, rest, strict=True)]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def here() -> HostId:
    """This host."""
    return this_host()
