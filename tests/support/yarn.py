"""A YARN cluster on the loopback device: a real ResourceManager and a NodeManager, from Hadoop's own jars.

    python -m tests.support.yarn      fetches the jars

They come by Spark's own resolver, are compared with known hashes and kept in `.streambank/yarn` of the
checkout. There is no HDFS: the file system of the machine is what all processes share.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from streambank.job.installed import find_installation
from tests.support.cluster import QUICK_START
from tests.support.driver import wait_for
from tests.support.s3_servers import free_ports

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".streambank" / "yarn"
HASHES = Path(__file__).with_name("yarn_jars.sha256")
HADOOP = "3.5.0"
PACKAGES = (
    f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",
    "org.mockito:mockito-core:4.11.0",
    "org.slf4j:slf4j-simple:1.7.36",
    "org.junit.jupiter:junit-jupiter-api:5.11.4",
    "ch.qos.reload4j:reload4j:1.2.22",
    "org.bouncycastle:bcpkix-jdk18on:1.79",
)
OURS = ("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime")
"""They are among PySpark's own."""
FETCH_TIMEOUT_S = 900


class WrongJarError(Exception):
    """A jar is missing, or is another one than it was."""


def jars() -> Path:
    """The folder with the jars; they are fetched where they are not there.

    Raises:
        WrongJarError: What was fetched is not what was seen before.
    """
    HOME.mkdir(parents=True, exist_ok=True)
    folder = HOME / "jars"
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers of one test run
        if not folder.exists():
            _fetch(folder)
        check(folder)
    return folder


def check(folder: Path) -> None:
    """Compare the jars in a folder with their hashes.

    Raises:
        WrongJarError: One is missing, too many or another one.
    """
    lines = (line.split() for line in HASHES.read_text(encoding="ascii").splitlines())
    expected = {name: digest for digest, name in lines}
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise WrongJarError(
            f"{folder} does not hold what {HASHES.name} lists: {', '.join(wrong)}. Remove it and try again."
        )


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=HOME, prefix="fetch-") as temporary:
        nothing = Path(temporary) / "nothing.py"
        nothing.touch()
        command = [
            *(str(find_installation().spark_submit), "--master", "local[1]"),
            *("--packages", ",".join(PACKAGES), "--exclude-packages", ",".join(OURS)),
            *("--conf", f"spark.jars.ivy={temporary}", str(nothing)),
        ]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False, env=environment
        )
        fetched = Path(temporary) / "jars"
        if done.returncode or not fetched.is_dir():
            raise WrongJarError(f"Spark's resolver did not fetch the jars: {done.stderr[-2000:]}")
        check(fetched)
        shutil.move(fetched, folder)


@dataclass(frozen=True, slots=True)
class Yarn:
    """A running cluster.

    Attributes:
        web: Address of the resource manager's web services.
        folder: Configuration and logs.
    """

    web: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What leads there."""
        return {"HADOOP_CONF_DIR": str(self.folder / "conf"), "YARN_CONF_DIR": str(self.folder / "conf")}

    @property
    def conf(self) -> dict[str, str]:
        """What an application needs on this machine: little memory, the loopback device."""
        loopback = {
            f"spark.{one}.{name}": "127.0.0.1"
            for one in ("yarn.appMasterEnv", "executorEnv")
            for name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
        }
        return loopback | {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
            "spark.yarn.am.memory": "512m",
            "spark.yarn.stagingDir": (self.folder / "staging").as_uri(),
            "spark.driver.extraJavaOptions": QUICK_START,
            "spark.executor.extraJavaOptions": QUICK_START,
        }

    def apps(self) -> list[Mapping[str, Any]]:
        """What the resource manager says about all applications."""
        found = _get(f"{self.web}/ws/v1/cluster/apps")
        apps: list[Mapping[str, Any]] = (found.get("apps") or {}).get("app") or []
        return apps


@contextmanager
def running_yarn(folder: Path) -> Iterator[Yarn]:
    """A cluster until the end of the `with`; whatever it still runs ends with it.

    Args:
        folder: For configuration, logs and the files of applications.
    """
    yarn = Yarn("", folder)
    ports = free_ports(9)
    web = f"127.0.0.1:{ports[0]}"
    yarn = Yarn(f"http://{web}", folder)
    (folder / "conf").mkdir()
    (folder / "staging").mkdir()
    _write_conf(folder, ports)
    found = find_installation().spark_home / "jars"
    classpath = [str(folder / "conf"), f"{jars()}/*"]
    classpath += [str(next(found.glob(f"hadoop-client-{one}-*.jar"))) for one in ("api", "runtime")]
    classpath += [str(one) for one in found.glob("jcl-over-slf4j-*.jar")]
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    environment |= yarn.environment
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in os.environ else "java"
    package = "org.apache.hadoop.yarn.server"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for name in (f"{package}.resourcemanager.ResourceManager", f"{package}.nodemanager.NodeManager"):
            with (folder / f"{name.rpartition('.')[2]}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [java, "-Xmx256m", *QUICK_START.split(), "-cp", ":".join(classpath), name],
                        env=environment,
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        wait_for(f"the cluster, whose logs are in {folder}", lambda: _nodes(yarn) == 1)
        yield yarn
    finally:
        for process in reversed(processes):
            process.terminate()  # the node manager ends its containers
        for process in reversed(processes):
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _write_conf(folder: Path, ports: Sequence[int]) -> None:
    manager = ("webapp", "", "scheduler", "resource-tracker", "admin")
    addresses = {
        f"yarn.resourcemanager.{f'{name}.' if name else ''}address": f"127.0.0.1:{port}"
        for name, port in zip(manager, ports, strict=False)
    }
    node = ("webapp", "", "localizer", "collector-service")
    addresses |= {
        f"yarn.nodemanager.{f'{name}.' if name else ''}address": f"127.0.0.1:{port}"
        for name, port in zip(node, ports[len(manager) :], strict=True)
    }
    settings = {
        **addresses,
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.resource.memory-mb": "6144",
        "yarn.nodemanager.resource.cpu-vcores": "8",
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.scheduler.capacity.maximum-am-resource-percent": "0.9",
        "yarn.scheduler.capacity.root.queues": "default",
        "yarn.scheduler.capacity.root.default.capacity": "100",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
        "yarn.nodemanager.delete.debug-delay-sec": "600",
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.resourcemanager.am.max-attempts": "2",
        "hadoop.tmp.dir": str(folder / "tmp"),
        "fs.defaultFS": "file:///",
    }
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    text = f"<configuration>\n{properties}</configuration>\n"
    for name in ("core-site.xml", "yarn-site.xml", "capacity-scheduler.xml"):
        (folder / "conf" / name).write_text(text, encoding="utf-8")


def _nodes(yarn: Yarn) -> int:
    try:
        return int(_get(f"{yarn.web}/ws/v1/cluster/metrics")["clusterMetrics"]["activeNodes"])
    except (urllib.error.URLError, OSError, ValueError, KeyError):
        return 0


def _get(url: str) -> Mapping[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: Mapping[str, Any] = json.load(answer)
    return found


if __name__ == "__main__":
    print(f"{jars()}: {len(list(jars().iterdir()))} jars")
