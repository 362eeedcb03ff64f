"""Flink's side: a standalone session cluster in two processes, and the same query in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.upgrade.swaps import Swap, Way
from demo import ports
from demo.jars.flink import FLINK

SOURCE = Path(__file__).with_name("CountPerKey.java")
WITHIN_S = 300.0
SLOTS = 2
WAYS = (
    Way("Flink, `flink stop` and `flink run`, native savepoint", "native"),
    Way("Flink, `flink stop` and `flink run`, canonical savepoint", "canonical"),
    Way("Flink, a client that runs already, native savepoint", "native", client=True),
    Way("Flink, a client that runs already, canonical savepoint", "canonical", client=True),
    Way("Flink, `flink stop` and a new cluster, native savepoint", "native", fresh=True),
)
_ENTRY = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_WORKER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_CLI = "org.apache.flink.client.cli.CliFrontend"
_OPENS = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "net", "util")]
_LOG = """rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %p %c{1} - %m%n%ex
"""


def missing() -> str:
    """In one line what Flink's side needs and is not there; empty where nothing is missing."""
    absent = [name for name in ("java", "javac", "jar") if shutil.which(name) is None]
    if not absent:
        return ""
    package = "openjdk-17-jdk-headless"
    return f"Not installed, so Flink cannot run: {', '.join(absent)} (Debian: apt-get install {package})."


class FlinkSide:
    """A cluster, and the query in it.

    Args:
        folder: Where all of it is.
        source: The folder of the input.
    """

    def __init__(self, folder: Path, source: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.source = source
        self.jar = folder / "count.jar"
        self.out = folder / "out"
        self.out.mkdir()
        self.version = 0
        self.job = ""
        self.port = 0
        self._jars = f"{FLINK.jars()}/*"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._compile()

    # The cluster.

    def start(self) -> None:
        """Start the cluster and its worker, and the first version of the query."""
        self._start_cluster()
        self.version = 1
        self.job = self._run_job(())
        self._until(lambda: self._rows(1) > 0, "its first output")

    def end(self) -> None:
        """End the processes."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _start_cluster(self) -> None:
        self.port = ports.choose(preferred=())
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        lines = {
            **_settings(self.folder),
            "rest.port": self.port,
            "jobmanager.rpc.port": ports.choose(preferred=()),
        }
        (conf / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in lines.items()))
        (conf / "log4j2.properties").write_text(_LOG)
        for name, main, memory in (
            ("cluster", _ENTRY, ["-Xmx768m"]),
            ("worker", _WORKER, ["-Xmx768m", "-XX:MaxDirectMemorySize=256m"]),
        ):
            with (self.folder / f"{name}.log").open("ab") as log:
                self._processes.append(
                    subprocess.Popen(
                        self._java(*memory, main, "--configDir", str(conf)), stdout=log, stderr=log
                    )
                )
        self._until(lambda: self._ask("/overview").get("slots-available") == SLOTS, "its worker")

    # Changes of code.

    def swap(self, way: Way) -> Swap:
        """Stop the query with a savepoint and go on from it with the next version of its code.

        Raises:
            RuntimeError: Flink failed, or the new code did not go on with the state.
        """
        old, self.version = self.version, self.version + 1
        marks = self._swap_by_client(way) if way.client else self._swap_by_command(way)
        self._until(lambda: self._rows(self.version) > 0, "the first output of the new code")
        before = max(self._said(old, "last"))
        first, count = min(self._firsts(self.version))
        if count < 2:
            raise RuntimeError(f"the new code counts from {count}: the state was not restored")
        return Swap(
            way.name,
            first - before,
            steps=_between(
                {"savepoint": marks["stopped"], "submit": marks["submitted"], "first output": first}, before
            ),
            commit_s=self._first_checkpoint() - before,
        )

    def _swap_by_command(self, way: Way) -> dict[str, float]:
        said = self._flink("stop", "--savepointPath", self._savepoints(), "--type", way.form, self.job)
        stopped = time.time()
        found = re.search(r"Savepoint completed\. Path: (\S+)", said)
        if found is None:
            raise RuntimeError(f"Flink took no savepoint: {said[-500:]}")
        if way.fresh:
            self.end()
            self._start_cluster()
        self.job = self._run_job(("-s", found[1]))
        return {"stopped": stopped, "submitted": time.time()}

    def _swap_by_client(self, way: Way) -> dict[str, float]:
        command = self._java(
            *("-Xmx256m", "Swap", str(self.folder / "conf"), self.job, self._savepoints(), way.form.upper()),
            *(str(self.jar), *self._arguments()),
            more=str(self.jar),
        )
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as client:
            assert client.stdin is not None and client.stdout is not None
            lines = []
            while (line := client.stdout.readline()) and line != "ready\n":
                lines.append(line)
            said, _ = client.communicate("\n")
        # What it logs may come after what it says.
        found = re.search(r"^([0-9a-f]{32}) \d+ (\d+) (\d+) \S+$", said, re.MULTILINE)
        if client.returncode != 0 or found is None:
            raise RuntimeError(f"Flink's client failed: {''.join(lines)[-1000:]}{said[-1000:]}")
        self.job = found[1]
        return {"stopped": int(found[2]) / 1000, "submitted": int(found[3]) / 1000}

    def _run_job(self, options: Sequence[str]) -> str:
        said = self._flink("run", "-d", *options, str(self.jar), *self._arguments())
        found = re.search(r"JobID ([0-9a-f]{32})", said)
        if found is None:
            raise RuntimeError(f"Flink started no job: {said[-500:]}")
        return found[1]

    # What it says.

    def _rows(self, version: int) -> int:
        return len(self._firsts(version))

    def _firsts(self, version: int) -> list[tuple[float, int]]:
        """Of each task that wrote: when its first output was, and its count."""
        lines = [line.split() for line in self._lines(version) if line.startswith("first ")]
        return [(int(at) / 1000, int(count)) for _, at, _, count in lines]

    def _said(self, version: int, what: str) -> list[float]:
        return [int(line.split()[1]) / 1000 for line in self._lines(version) if line.startswith(f"{what} ")]

    def _lines(self, version: int) -> list[str]:
        texts = [path.read_text() for path in self.out.glob(f"{version}-*")]
        return [line for text in texts for line in text.split("\n")[:-1]]

    def _first_checkpoint(self) -> float:
        """When the first checkpoint of the new code was complete: an exactly-once sink commits then."""
        first: list[float] = []

        def there() -> bool:
            history = self._ask(f"/jobs/{self.job}/checkpoints").get("history", [])
            done = [one for one in history if one["status"] == "COMPLETED" and not one["is_savepoint"]]
            first[:] = [min(one["latest_ack_timestamp"] for one in done) / 1000] if done else []
            return bool(first)

        self._until(there, "its first checkpoint")
        return first[0]

    # Its parts.

    def _compile(self) -> None:
        classes = self.folder / "classes"
        _run(["javac", "--release", "17", "-cp", self._jars, "-d", str(classes), str(SOURCE)])
        _run(["jar", "cfe", str(self.jar), "CountPerKey", "-C", str(classes), "."])

    def _flink(self, *arguments: str) -> str:
        return _run(self._java("-Xmx256m", _CLI, *arguments), {"FLINK_CONF_DIR": str(self.folder / "conf")})

    def _java(self, *arguments: str, more: str = "") -> list[str]:
        log = f"-Dlog4j2.configurationFile={self.folder}/conf/log4j2.properties"
        classes = os.pathsep.join(filter(None, (self._jars, more)))
        return ["java", log, *_OPENS, "-cp", classes, *arguments]

    def _arguments(self) -> tuple[str, str, str]:
        return str(self.source), str(self.out), str(self.version)

    def _savepoints(self) -> str:
        return f"file://{self.folder}/savepoints"

    def _ask(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return {}

    def _until(self, ready: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + WITHIN_S
        while not ready():
            if time.monotonic() > until or any(one.poll() is not None for one in self._processes):
                raise RuntimeError(f"Flink has not come to {what}; its logs are in {self.folder}")
            time.sleep(0.05)


def _settings(folder: Path) -> Mapping[str, str | int]:
    """A worker of two slots; what `taskmanager.sh` would compute of its memory stands here."""
    here = "127.0.0.1"
    return {
        "jobmanager.rpc.address": here,
        "jobmanager.bind-host": here,
        "rest.address": here,
        "rest.bind-address": here,
        "taskmanager.host": here,
        "taskmanager.bind-host": here,
        "taskmanager.numberOfTaskSlots": SLOTS,
        "taskmanager.cpu.cores": f"{SLOTS}.0",
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.framework.off-heap.size": "128m",
        "taskmanager.memory.task.heap.size": "640m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.network.min": "64m",
        "taskmanager.memory.network.max": "64m",
        "taskmanager.memory.managed.size": "512m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
        "parallelism.default": SLOTS,
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "io.tmp.dirs": f"{folder}/tmp",
        "process.working-dir": f"{folder}/work",
    }


def _between(marks: Mapping[str, float], begun: float) -> dict[str, float]:
    """Seconds from each mark to the next."""
    found, before = {}, begun
    for name, at in marks.items():
        found[name], before = at - before, at
    return found


def _run(command: Sequence[str], settings: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, **(settings or {})},
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stdout[-2000:]}")
    return done.stdout
