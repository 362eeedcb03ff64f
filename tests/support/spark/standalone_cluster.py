"""A standalone Spark cluster on the loopback device: a master and workers of one core each, or of more.

The workers' executors use the environment that the workers were started with, as on any cluster: credentials
come from there, never from whoever submits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streambank.driver.installed import find_installation
from tests.support.spark.jvm import spark_options
from tests.support.storage.s3_servers import free_ports
from tests.support.waiting import wait_for

START_TIMEOUT_S = 120
TIME_TO_GIVE_A_TASK_S = 3.0
DEPLOY = "org.apache.spark.deploy"
SMALL: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": spark_options(),
    "spark.executor.extraJavaOptions": spark_options(),
}
"""Settings of an application on this machine: little memory, the loopback device."""
EXECUTOR = b"CoarseGrainedExecutorBackend"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster.

    Attributes:
        rest: Address of the master's REST server; None where it has none.
    """

    master: str
    web: str
    workers: tuple[int, ...]
    folder: Path
    rest: str | None = None

    @property
    def conf(self) -> dict[str, str]:
        """What an application needs on this machine: see `SMALL`."""
        return dict(SMALL)

    def state(self) -> Mapping[str, Any]:
        with urllib.request.urlopen(f"{self.web}/json/", timeout=5) as answer:
            found: Mapping[str, Any] = json.load(answer)
        return found

    def executors(self) -> list[int]:
        """Pids of the executors that live now."""
        return [pid for pid in _children(self.workers) if EXECUTOR in _command_line(pid)]

    def kill_an_executor(self) -> int:
        """Kill one with SIGKILL while it has a task, if more wait to be done; it is gone when this returns.

        One that has just begun may be known to the driver and not be given tasks yet (before it has said
        `LaunchedExecutor`, see Spark's CoarseGrainedSchedulerBackend), so one is chosen that has had a task:
        it has started Python. It may have ended that task and not yet been given its next. So it is stopped
        first: it ends nothing more, and the driver, which does not know, gives it what it would have given.

        Raises:
            AssertionError: None has had a task yet: there is none to kill.
        """
        victims = [pid for pid in self.executors() if _children((pid,))]
        assert victims, "no executor has had a task: there is nothing to kill"
        os.kill(victims[0], signal.SIGSTOP)
        time.sleep(TIME_TO_GIVE_A_TASK_S)
        os.kill(victims[0], signal.SIGKILL)
        wait_for("death of the executor", lambda: victims[0] not in self.executors())
        return victims[0]


@contextmanager
def running_cluster(
    folder: Path,
    *,
    workers: int = 2,
    cores: int = 1,
    rest: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster until the end of the `with`.

    Args:
        cores: Cores of each; it has 1 GB of memory for each of them.
        rest: Whether the master takes drivers, by its REST server.
        environment: What executors find in theirs beside the least.
    """
    port, web, rest_port = free_ports(3)
    settings = {**daemon_environment(folder), **(environment or {})}
    master = f"spark://127.0.0.1:{port}"
    commands = [(master_command(port, web), {**settings, **rest_options(rest_port if rest else None)})]
    commands += [(worker_command(folder, number, cores, master), settings) for number in range(workers)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(daemon(folder, str(number), *one)) for number, one in enumerate(commands)
        ]
        cluster = Cluster(
            master,
            f"http://127.0.0.1:{web}",
            tuple(each.pid for each in processes[1:]),
            folder,
            f"http://127.0.0.1:{rest_port}" if rest else None,
        )
        wait_for(
            f"start of the cluster (logs: {folder})",
            lambda: alive_workers(cluster.web) == workers,
            START_TIMEOUT_S,
        )
        yield cluster


def daemon_environment(folder: Path) -> dict[str, str]:
    """What each of Spark's daemons needs on this machine: little memory, the loopback device."""
    base = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    return base | {
        "SPARK_HOME": str(find_installation().spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "SPARK_PUBLIC_DNS": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": spark_options(),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }


def rest_options(port: int | None) -> dict[str, str]:
    """A master's settings of its REST server; None for none."""
    enabled = str(port is not None).lower()
    return {
        "SPARK_MASTER_OPTS": f"-Dspark.master.rest.enabled={enabled} -Dspark.master.rest.port={port or 6066}"
    }


def master_command(port: int, web: int) -> list[str]:
    name = f"{DEPLOY}.master.Master"
    return [name, "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]


def worker_command(folder: Path, number: int, cores: int, master: str) -> list[str]:
    """How a worker is started; it has 1 GB of memory for each core."""
    size = ["-c", str(cores), "-m", f"{cores}g", "-d", str(folder / f"worker-{number}")]
    name = f"{DEPLOY}.worker.Worker"
    return [name, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *size, master]


@contextmanager
def daemon(
    folder: Path, name: str, command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A class that spark-class runs, until the end of the `with`; its log is `<name>.log`."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(find_installation().spark_home / "bin" / "spark-class"), *command],
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def alive_workers(web: str) -> int:
    """How many workers a master has; 0 where it does not answer, or does not lead."""
    try:
        with urllib.request.urlopen(f"{web}/json/", timeout=5) as answer:
            found = json.load(answer)
        return int(found["aliveworkers"]) if found["status"] == "ALIVE" else 0
    except (urllib.error.URLError, OSError, ValueError):
        return 0


def _children(parents: tuple[int, ...]) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = text[text.rindex(")") + 2 :].split()[:2]
        if int(parent) in parents and state != "Z":
            found.append(int(stat.parent.name))
    return sorted(found)


def _command_line(pid: int) -> bytes:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
