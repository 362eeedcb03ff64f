"""How an application is handed to Spark: what there is to say, and spark-submit as a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streambank.driver.environment import OWN_PROGRAMS, driver_environment
from streambank.driver.installed import Installation
from streambank_spark.submit.executor_packages import VARIABLE, python_of_workers

STOP_S = 20.0
"""How long an application may take to end when it is asked to."""
_LOOK_S = 0.05
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@dataclass(frozen=True, slots=True)
class Submission:
    """One application.

    Attributes:
        installation: Whose spark-submit and engine it gets.
        properties: The properties file, with Spark's defaults: the only place where a secret may be.
        archives: The packages, as `path#folder`.
    """

    installation: Installation
    master: str
    name: str
    entry: Path
    arguments: tuple[str, ...]
    properties: Path
    py_files: Path
    archives: str
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """What the driver needs in its environment, beside what every driver gets."""
        settings = {
            "SPARK_HOME": str(self.installation.spark_home),
            "PYTHONPATH": os.pathsep.join(self.installation.python_path),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        if (python := python_of_workers(self.master)) is not None:
            settings[VARIABLE] = python
        return settings


class Running(Protocol):
    """A submitted application."""

    def wait(self, seconds: float) -> int | None:
        """How it ended, once it has; None where it still runs after waiting so long."""


Submit = Callable[[Submission], AbstractContextManager[Running]]
"""Hands an application to Spark for a `with`; whoever leaves that early, as by Ctrl-C, ends it."""


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[bytes]

    def wait(self, seconds: float) -> int | None:
        return _ended(self.process, seconds)


@contextmanager
def spark_submit(submission: Submission) -> Iterator[Running]:
    """Run spark-submit in client mode, in a separate session; its output goes to the log."""
    command = [
        str(submission.installation.spark_submit),
        *("--master", submission.master),
        *("--name", submission.name),
        *("--properties-file", str(submission.properties)),
        *("--py-files", str(submission.py_files)),
        *("--archives", submission.archives),
        str(submission.entry),
        *submission.arguments,
    ]
    with submission.log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=driver_environment(os.environ, extra=OWN_PROGRAMS, settings=submission.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process, which then ends that one in good order
        )
        try:
            yield _Child(process)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, so that the cluster is told; and see to it that nothing of it stays."""
    if _ended(process, 0.0) is None:
        os.kill(process.pid, signal.SIGTERM)  # `terminate` would wait for one that has just ended
        _ended(process, STOP_S)
    # It has not been waited for yet, so that no other process can have its pid, nor another group.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """How a child ended, once it has, which leaves it to be waited for; None where it runs on for so long."""
    until = time.monotonic() + seconds
    while (found := os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
        if time.monotonic() >= until:
            return None
        time.sleep(min(_LOOK_S, max(0.0, until - time.monotonic())))
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def with_deep_stack(conf: Mapping[str, str]) -> dict[str, str]:
    """Settings under which the driver can plan the state of a join, whose expressions are nested deeply.

    Catalyst walks them by recursion, which took more than the JVM's usual stack where little was compiled
    yet.

    Args:
        conf: The settings; a stack that they name already stays.
    """
    options = conf.get(JAVA_OPTIONS, "")
    return dict(conf) if "-Xss" in options else {**conf, JAVA_OPTIONS: f"{options} -Xss8m".lstrip()}
