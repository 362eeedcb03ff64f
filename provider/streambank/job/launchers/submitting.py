"""Handing a driver to a cluster by spark-submit, which ends as soon as the cluster has taken it.

What it is told is in a folder that nobody else may look into, and gone when spark-submit has ended; values of
settings are no arguments. It runs in a session of its own: where the start is killed it goes on, and the next
start finds the driver.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from streambank.errors import InputError, StorageError
from streambank.job.control import JobControl
from streambank.job.declaration import Job
from streambank.job.environment import driver_environment, is_airflows
from streambank.job.installed import Installation, entry_path, find_installation
from streambank.job.last_error import shown
from streambank.job.launch import LaunchSpec
from streambank.job.launcher import launch_argument
from streambank.job.launchers.options import own_settings
from streambank.job.launchers.shipping import NAME, program
from streambank.job.properties import property_lines

TIMEOUT_S = 300.0
KUBECONFIG = "KUBECONFIG"
"""The variable that leads to a Kubernetes configuration."""
_SHOWN_LINES = 20


@dataclass(frozen=True, slots=True)
class ClusterSubmit:
    """One submission by spark-submit in cluster mode.

    Attributes:
        options: What this kind of cluster is told, as arguments.
        settings: Spark's settings beside the job's, which win over them.
        defaults: Those that the job's own win over.
        entry: Where `run_query.py` is for the driver; None to send it along.
        files: Files to send along.
        variable: The setting under which the driver gets a variable of the environment, with `{}`.
    """

    options: Sequence[str]
    settings: Mapping[str, str]
    defaults: Mapping[str, str]
    entry: str | None
    files: Sequence[str]
    variable: str

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
        found = installation or _installation(job)
        folder = Path(tempfile.mkdtemp(prefix="streambank-launch-"))
        try:
            command = self.command(found, job, control, spec, folder, environment)
            return _run(command, job, folder, _environment(found, job, spec, environment), timeout_s)
        finally:
            rmtree(folder, ignore_errors=True)

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
        properties = {**self.defaults, **own_settings(job), **passed, **self.settings}
        file = folder / "spark.conf"
        file.touch(mode=0o600)
        file.write_text(property_lines(properties), encoding="utf-8")
        command = [str(found.spark_submit), "--master", job.master, "--deploy-mode", "cluster"]
        command += [
            "--name",
            job.name,
            *self.options,
            "--properties-file",
            str(file),
            "--load-spark-defaults",
        ]
        if self.files:
            command += ["--files", ",".join(self.files)]
        if self.entry is None:
            bundle = folder / NAME
            bundle.write_bytes(program())
            command += ["--py-files", str(bundle), str(entry_path())]
        else:
            command += [self.entry]
        return [*command, "--launch", launch_argument(control, spec)]


def _installation(job: Job) -> Installation:
    """The job's own, where it is on this machine, too; else that of this process."""
    if job.python == sys.executable or not Path(job.python).is_file():
        return find_installation()
    return find_installation(job.python)


def _environment(
    found: Installation, job: Job, spec: LaunchSpec, environment: Mapping[str, str]
) -> dict[str, str]:
    locations = [spec.control, *(query.checkpoint for query in spec.queries.values())]
    settings = {"SPARK_HOME": str(found.spark_home), "PYSPARK_PYTHON": job.python}
    return driver_environment(environment, locations=locations, extra=(KUBECONFIG,), settings=settings)


def _run(
    command: Sequence[str], job: Job, folder: Path, environment: Mapping[str, str], timeout_s: float
) -> str:
    output = folder / "output"
    try:
        with output.open("wb") as log:
            process = subprocess.Popen(
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
    try:
        exit_code = process.wait(timeout_s)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.wait()
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


def _end_of(output: Path) -> str:
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]
    return "\n".join(["It said last:", *(shown(line) for line in lines)])


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
            hint="Look whether the cluster is up.",
        ) from error
    except OSError as error:
        raise InputError(
            f"{command[0]} cannot be run: {error.strerror or error}.",
            code="not-installed",
            hint="Look at the installation.",
        ) from error
    return done.stdout.decode("utf-8", "replace")
