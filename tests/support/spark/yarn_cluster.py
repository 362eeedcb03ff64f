"""A YARN cluster on the loopback device: a real ResourceManager and a NodeManager, from Hadoop's own jars.

There is no HDFS: the file system of the machine is what all processes share.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from demo.jars.yarn import YARN
from streambank.driver.installed import find_installation
from tests.support.spark.jvm import QUICK_START
from tests.support.storage.s3_servers import free_ports
from tests.support.waiting import wait_for


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
            # In client mode YARN's filter and the handlers of the page may start at once: the driver fails.
            "spark.ui.enabled": "false",
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
    classpath = [str(folder / "conf"), f"{YARN.jars()}/*"]
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
