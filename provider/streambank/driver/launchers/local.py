"""Starting drivers on this machine.

A driver on this machine is detached: in a separate session, a child of no process of ours, so it survives
the task or the shell that started it. It does not survive its container. Its executors may be elsewhere: that
is what Spark calls client mode.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from streambank.control.control import JobControl
from streambank.control.processes import ProcessId, child_process, command_line, is_own, process, send_signal
from streambank.core.errors import StorageError
from streambank.declaration.declaration import Job
from streambank.declaration.launch import IMAGE, TAG_PREFIX
from streambank.driver.application import check_application, check_queries
from streambank.driver.environment import driver_environment
from streambank.driver.installed import Installation, installation_of, require_known_spark
from streambank.driver.launcher import DriverState, Handle
from streambank.driver.log import RotatedLog
from streambank.driver.spark_properties import BIND_ADDRESS, LOOPBACK, loopback_settings, property_lines
from streambank.driver.spec import LaunchSpec, launch_key
from streambank.storage import local_path
from streambank.storage.names import is_key

KEPT_LOGS = 20
"""How many drivers' logs a job keeps."""

_PROPERTIES = 9
"""The descriptor by which spark-submit reads Spark's settings; shells use those from 10 on for themselves."""
_GO = 'cd -- "$1" && shift && exec "$@"'
_FRESH_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGPIPE,
    signal.SIGCHLD,
)


class LocalLauncher:
    """Drivers on this machine, by spark-submit in client mode; executors wherever the master is."""

    def __init__(self, installation: Installation | None = None) -> None:
        self._installation = installation
        self._exit_codes: dict[ProcessId, int] = {}

    def log_path(self, control: JobControl, launch_id: str) -> str:
        """Where a driver's log is: among the job's records, or in the user's state folder."""
        root = local_path(control.store.uri)
        if root is None:
            from streambank.code.vouched import state_folder

            root = state_folder(control.name)
        return str(root / "logs" / f"{launch_id}.log")

    def check(self, job: Job) -> str | None:
        check_queries(job.name, check_application(job.application), job.queries)
        return require_known_spark(self._installation or installation_of(job))

    def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
        """See `Launcher.submit`. The spec has been written among the job's records before."""
        found = self._installation or installation_of(job)
        log = Path(spec.log or self.log_path(control, spec.launch_id))
        settings = {
            "PYSPARK_PYTHON": found.python,
            "PYSPARK_DRIVER_PYTHON": found.python,
            "PYTHONUNBUFFERED": "1",
            "SPARK_HOME": str(found.spark_home),
        }
        command = [str(found.spark_submit), "--master", job.master, "--name", job.name]
        command += client_options(job, spec.launch_id)
        properties = {**loopback_settings(job.master, job.spark), **own_settings(job)}
        options, text = found.with_defaults(property_lines(properties), os.environ)
        command += ["--properties-file", f"/dev/fd/{_PROPERTIES}", *options]
        command += [str(found.entry), *launch_arguments(control, spec)]
        locations = [spec.control, spec.other_control or spec.control]
        locations += [query.checkpoint for query in spec.queries.values()]
        if BIND_ADDRESS in loopback_settings(job.master, job.spark):
            settings["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", LOOPBACK)  # where its pages listen
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            python_path = [*found.python_path, *([_shipped(log.parent)] if found.ships else [])]
            if python_path:
                settings["PYTHONPATH"] = os.pathsep.join(python_path)
            environment = driver_environment(
                os.environ, locations=locations, extra=job.env, settings=settings
            )
            _drop_old_logs(log.parent)
            pid = _spawn(command, job.working_dir, environment, log, text)
        except OSError as error:
            raise StorageError(
                f"The driver of job {job.name} could not be started: {error.strerror or error}.",
                code="not-started",
                hint=f"Look at {found.spark_submit} and {log.parent}.",
            ) from error
        # The shell becomes spark-submit, and that the JVM: it is one process all the way.
        return Handle(spec.launch_id, (child_process(pid, "jvm"),), str(log))

    def find(self, control: JobControl) -> list[Handle]:
        """See `Launcher.find`: this user's processes, by the launch that stands in their arguments.

        Anybody can start a process with such arguments: those of other users count for nothing, nor does a
        launch that the job's records do not know. A driver that another user started is known by its lease.
        """
        prefix = launch_prefix(control)
        found: dict[str, list[ProcessId]] = {}
        for one, arguments in own_processes(_LAUNCH):
            for option, value in itertools.pairwise(arguments):
                if option == _LAUNCH and value.startswith(prefix) and value.endswith(".json"):
                    launch_id = value.removeprefix(prefix).removesuffix(".json")
                    found.setdefault(launch_id, []).append(replace(one, role=_role(arguments[0])))
        return [
            Handle(launch_id, tuple(processes), self.log_path(control, launch_id))
            for launch_id, processes in found.items()
            if is_key(launch_key(launch_id)) and control.store.exists(launch_key(launch_id))
        ]

    def status(self, handle: Handle) -> DriverState:
        for one in handle.processes:
            # A child of this process stays a zombie until it is asked for; others belong to somebody else.
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(one.pid, os.WNOHANG)
                if pid:
                    self._exit_codes[one] = os.waitstatus_to_exitcode(status)
        if any(one.is_living() for one in handle.processes):
            return DriverState("running")
        codes = [self._exit_codes[one] for one in handle.processes if one in self._exit_codes]
        return DriverState("ended", codes[0] if codes else None)

    def log_lines(self, handle: Handle, count: int) -> list[str]:
        if handle.log is None:
            return []
        log = Path(handle.log)
        if (log.name, log.parent.name) != (f"{handle.launch_id}.log", "logs") or log.is_symlink():
            raise StorageError(
                f"The records name {log} as the driver's log, which is not where a launcher writes one.",
                code="log-not-read",
                hint="Look at who can write among the job's records.",
            )
        return RotatedLog(log, max_bytes=1, files=1).last_lines(count)

    def kill(self, handle: Handle) -> None:
        """See `Launcher.kill`. The JVM first: it is the one that writes."""
        for one in sorted(handle.processes, key=lambda one: one.role != "jvm"):
            send_signal(one, signal.SIGKILL)


def launch_prefix(control: JobControl) -> str:
    """What the argument of every launch of this job begins with."""
    root = local_path(control.store.uri)
    return f"{root}/launches/" if root is not None else f"{control.store.uri}/launches/"


def launch_arguments(control: JobControl, spec: LaunchSpec) -> list[str]:
    """What the runner's entry is told: the path of the launch spec, or its URI where that is remote.

    And its digest, since others may write there before the driver reads it.
    """
    return ["--digest", spec.digest, _LAUNCH, f"{launch_prefix(control)}{spec.launch_id}.json"]


def _spawn(
    command: list[str], folder: str, environment: Mapping[str, str], log: Path, properties: str
) -> int:
    """Start a process in a separate session, with nothing of ours but the log and the properties.

    The properties are in a file without a name: only the process and its user can read it, and it is gone
    with the process.
    """
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    file = os.memfd_create("spark.conf")
    try:
        with open(file, "w", encoding="utf-8", closefd=False) as writer:
            writer.write(properties)
        return os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", _GO, "sh", folder, *command],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, file, _PROPERTIES),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o640),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=_FRESH_SIGNALS,
        )
    finally:
        os.close(file)


def _shipped(folder: Path) -> str:
    from streambank.driver.bundle import lay_beside  # a DAG's file needs none

    return str(lay_beside(folder))


def own_processes(option: str) -> Iterator[tuple[ProcessId, list[str]]]:
    """Each process of this user whose arguments may have an option, with its arguments.

    Its start is read before them: if the pid passes to another process in between, the one that is
    returned is dead, and no signal reaches the other. Nearly all processes of a host are none of ours, and
    a driver that starts is looked for several times a second: of those nothing else is read.
    """
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or not _may_say(folder, option):
            continue
        one = process(int(folder.name), "launcher") if is_own(int(folder.name)) else None
        if one is not None and (arguments := command_line(one.pid)):
            yield one, arguments


def _may_say(folder: Path, option: str) -> bool:
    """Whether the arguments of a process may have an option; those of one that changes may be missing yet."""
    try:
        said = (folder / "cmdline").read_bytes()
    except OSError:
        return False
    return not said or option.encode() in said


def _role(program: str) -> str:
    name = Path(program).name
    return "jvm" if name == "java" else "python" if name.startswith("python") else "launcher"


def _drop_old_logs(folder: Path) -> None:
    logs = sorted(folder.glob("launch-*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    for log in logs[KEPT_LOGS - 1 :]:
        for part in folder.glob(f"{log.name}*"):
            part.unlink(missing_ok=True)


_LAUNCH = "--launch"
_TAGS = "spark.yarn.tags"
JOB_LABEL = "streambank-job"
LAUNCH_LABEL = "streambank-launch"


def client_options(job: Job, launch_id: str) -> list[str]:
    """Of a driver on this machine; none where its executors are its own threads or a standalone cluster's."""
    if job.launch.on == "yarn":
        return ["--deploy-mode", "client", *yarn_options(job, launch_id)]
    if job.launch.on == "kubernetes":
        return ["--deploy-mode", "client", *kubernetes_options(job)]
    return []


def yarn_options(job: Job, launch_id: str) -> list[str]:
    """Queue, Kerberos and the tags by which the resource manager finds the application."""
    found: list[str] = []
    for name, value in (
        ("queue", job.launch.queue),
        ("principal", job.launch.principal),
        ("keytab", job.launch.keytab),
    ):
        if value is not None:
            found += [f"--{name}", value]
    tags = [tag for tag in job.spark.get(_TAGS, "").split(",") if tag]
    return [*found, "--conf", f"{_TAGS}={','.join([*tags, job_tag(job.name), launch_id])}"]


def job_tag(name: str) -> str:
    """The tag, or label, of all drivers of a job; YARN makes it lower case."""
    return f"{TAG_PREFIX}{name}".lower()


def kubernetes_options(job: Job) -> list[str]:
    """Namespace, image and context."""
    given = {
        "spark.kubernetes.namespace": job.launch.namespace,
        IMAGE: job.launch.image,
        "spark.kubernetes.context": job.launch.context,
    }
    return [part for name, value in given.items() if value for part in ("--conf", f"{name}={value}")]


def own_settings(job: Job) -> dict[str, str]:
    """The job's settings, but for those that the options above have taken in."""
    return {name: value for name, value in job.spark.items() if name != _TAGS or job.launch.on != "yarn"}
