"""Handing a driver to a cluster by spark-submit, which ends as soon as the cluster has taken it.

What it is told is in a folder that nobody else may look into, and gone when spark-submit has ended; values of
settings are no arguments. It runs in a separate session: where the start is killed it goes on, the next
start finds the driver, and whoever submits next on this machine removes the folder. Its output is locked
while it runs, which tells a folder in use from one that was left behind. A start that is interrupted, and not
killed, ends it first: the driver may have been taken all the same, and is found then, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from streambank.control.control import JobControl
from streambank.core.errors import InputError, StorageError, StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.launch import LaunchPolicy
from streambank.driver.bundle import NAME, program
from streambank.driver.environment import cluster_variables, driver_environment, is_airflows
from streambank.driver.failure import shown
from streambank.driver.installed import Installation, entry_path, installation_that_submits
from streambank.driver.launcher import ClusterLauncher
from streambank.driver.launchers.local import launch_arguments, own_settings
from streambank.driver.spark_properties import property_lines
from streambank.driver.spec import LaunchSpec
from streambank.storage.local.trees import is_private, judge, remove_directory
from streambank.storage.settings import CREDENTIALS, variables_for

TIMEOUT_S = 300.0
KUBECONFIG = "KUBECONFIG"
"""The variable that leads to a Kubernetes configuration."""
_SHOWN_LINES = 20
_FOLDER = "streambank-launch-"
_OUTPUT = "output"
_YOUNG_S = 60.0
"""In this time a start that is being made locks what it needs."""


class Submitter(ClusterLauncher):
    """What launchers have in common that submit by spark-submit.

    Args:
        environment: The environment to choose from; this process's own when left out.
        installation: What to submit with; looked for when left out.
    """

    def __init__(
        self,
        policy: LaunchPolicy,
        environment: Mapping[str, str] | None = None,
        installation: Installation | None = None,
    ) -> None:
        self._policy = policy
        self._environment = os.environ if environment is None else environment
        self._installation = installation
        self._look_up()

    def _look_up(self) -> None:
        """Find out what else has to be known of the cluster."""


@dataclass(frozen=True, slots=True)
class ClusterSubmit:
    """One submission by spark-submit in cluster mode.

    Attributes:
        options: What this kind of cluster is told, as arguments.
        settings: Spark's settings beside the job's, which win over them.
        defaults: Those that the job's own win over.
        entry: Where `run_query.py` is for the driver; None to send it along.
        variable: The setting under which the driver gets a variable of the environment, with `{}`.
        uploads: Locations to which spark-submit brings files as it is told by Spark's settings. Only what
            leads there passes with credentials: Spark writes those of S3 that it finds in its environment
            into the configuration that YARN keeps for the driver.
    """

    options: Sequence[str]
    settings: Mapping[str, str]
    defaults: Mapping[str, str]
    entry: str | None
    files: Sequence[str]
    variable: str
    uploads: Sequence[str] = ()

    def run(
        self,
        job: Job,
        control: JobControl,
        spec: LaunchSpec,
        environment: Mapping[str, str],
        installation: Installation | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> str:
        """Submit it; what spark-submit said.

        Raises:
            StorageError: spark-submit failed (code `not-started`), or took too long (`submit-unanswered`).
        """
        found = installation or installation_that_submits(job)
        _sweep()
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        made = judge(folder, made=True)
        process: subprocess.Popen[bytes] | None = None
        try:
            with (folder / _OUTPUT).open("wb") as log:
                fcntl.flock(log, fcntl.LOCK_EX)
                command = self.command(found, job, control, spec, folder, environment)
                passed = self._environment(found, job, spec, environment)
                process = _started(command, job, log, passed)
            return _answer(process, job, folder / _OUTPUT, timeout_s)
        finally:
            # A task may be cancelled at any moment, and nothing is to go on in a folder that is removed.
            if process is not None:
                _end(process)
            if process is not None or _is_left(folder):
                with contextlib.suppress(StreambankError):
                    remove_directory(folder, made)

    def _environment(
        self, found: Installation, job: Job, spec: LaunchSpec, environment: Mapping[str, str]
    ) -> dict[str, str]:
        locations = [spec.control, spec.other_control or spec.control, *self.uploads]
        locations += [query.checkpoint for query in spec.queries.values()]
        settings = {"SPARK_HOME": str(found.spark_home), "PYSPARK_PYTHON": job.python}
        passed = driver_environment(environment, locations=locations, extra=(KUBECONFIG,), settings=settings)
        kept_back = CREDENTIALS - variables_for(self.uploads)
        return {name: value for name, value in passed.items() if name not in kept_back}

    def command(
        self,
        found: Installation,
        job: Job,
        control: JobControl,
        spec: LaunchSpec,
        folder: Path,
        environment: Mapping[str, str],
    ) -> list[str]:
        """The command line, whose properties file is laid into the folder."""
        passed = {
            self.variable.format(name): environment[name]
            for name in job.env
            if name in environment and not is_airflows(name)
        }
        always = {self.variable.format(name): one for name, one in cluster_variables(environment).items()}
        properties = {**self.defaults, **always, **own_settings(job), **passed, **self.settings}
        options, text = found.with_defaults(property_lines(properties), environment)
        file = folder / "spark.conf"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
        command = [str(found.spark_submit), "--master", job.master, "--deploy-mode", "cluster"]
        command += ["--name", job.name, *self.options, "--properties-file", str(file), *options]
        if self.files:
            command += ["--files", ",".join(self.files)]
        if self.entry is None:
            bundle = folder / NAME
            bundle.write_bytes(program())
            command += ["--py-files", str(bundle), str(entry_path())]
        else:
            command += [self.entry]
        return [*command, *launch_arguments(control, spec)]


def _sweep() -> None:
    """Remove folders of spark-submit that starts have left behind which were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError, StreambankError):  # it is gone by now, or somebody else's
            about, judged = folder.lstat(), judge(folder)
            if is_private(folder) and time.time() - about.st_mtime >= _YOUNG_S and _is_left(folder):
                remove_directory(folder, judged)


def _is_left(folder: Path) -> bool:
    """Whether no spark-submit writes to the folder's output."""
    try:
        file = os.open(folder / _OUTPUT, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(file)


def _started(
    command: Sequence[str], job: Job, log: BinaryIO, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            cwd=job.working_dir,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise StorageError(
            f"The driver of job {job.name} could not be submitted: {error.strerror or error}.",
            code="not-started",
            hint=f"Look at {command[0]} and at the working directory {job.working_dir}.",
        ) from error


def _answer(process: subprocess.Popen[bytes], job: Job, output: Path, timeout_s: float) -> str:
    try:
        exit_code = process.wait(timeout_s)
    except subprocess.TimeoutExpired as error:
        _end(process)
        raise StorageError(
            f"spark-submit has not submitted the driver of job {job.name} within {timeout_s:.0f} s.",
            code="submit-unanswered",
            hint=_end_of(output),
        ) from error
    if exit_code != 0:
        raise StorageError(
            f"spark-submit did not submit the driver of job {job.name}: it ended with {exit_code}.",
            code="not-started",
            hint=_end_of(output),
        )
    return output.read_text(encoding="utf-8", errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End spark-submit, where it still runs, and whatever it has started: all that is in its session."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end_of(output: Path) -> str:
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]
    return "\n".join(["Its last output:", *(shown(line) for line in lines)])


def run_for_output(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str:
    """What a command says, on either output, whatever it ends with.

    Raises:
        InputError: There is no such command (code `not-installed`).
        StorageError: It took too long (code `cluster-unanswered`).
    """
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StorageError(
            f"{Path(command[0]).name} did not answer within {timeout_s:.0f} s.",
            code="cluster-unanswered",
            hint="Check whether the cluster is up.",
        ) from error
    except OSError as error:
        raise InputError(
            f"{command[0]} cannot be run: {error.strerror or error}.",
            code="not-installed",
            hint="Check the installation.",
        ) from error
    return done.stdout.decode("utf-8", "replace")
