"""Drivers that YARN runs, and drivers here whose executors it runs: all that there is, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.lifecycle import end_all, live_through_everything
from tests.support.jobs.lines_job import lines_job
from tests.support.spark.jvm import QUICK_START
from tests.support.storage.hadoop_daemons import get_json, running, write_conf
from tests.support.storage.s3_servers import free_ports
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(3600)]

# A YARN cluster on the loopback device: a real ResourceManager and a NodeManager, from Hadoop's own jars.
#
# There is no HDFS: the file system of the machine is what all processes share.


@dataclass(frozen=True, slots=True)
class Yarn:
    """A running cluster."""

    web: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
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
        found = get_json(f"{self.web}/ws/v1/cluster/apps")
        apps: list[Mapping[str, Any]] = (found.get("apps") or {}).get("app") or []
        return apps


@contextmanager
def running_yarn(folder: Path) -> Iterator[Yarn]:
    """A cluster until the end of the `with`; whatever it still runs ends with it."""
    ports = free_ports(9)
    web = f"127.0.0.1:{ports[0]}"
    yarn = Yarn(f"http://{web}", folder)
    (folder / "staging").mkdir()
    _write_conf(folder, ports)
    package = "org.apache.hadoop.yarn.server"
    daemons = (f"{package}.resourcemanager.ResourceManager", f"{package}.nodemanager.NodeManager")
    with running(folder, ("-Xmx256m", *QUICK_START.split()), daemons, lambda: _nodes(yarn) == 1):
        yield yarn


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
    write_conf(folder / "conf", settings, ("core-site.xml", "yarn-site.xml", "capacity-scheduler.xml"))


def _nodes(yarn: Yarn) -> int:
    try:
        return int(get_json(f"{yarn.web}/ws/v1/cluster/metrics")["clusterMetrics"]["activeNodes"])
    except (OSError, ValueError, KeyError):
        return 0


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with running_yarn(tmp_path_factory.mktemp("yarn")) as found:
        yield found


@pytest.mark.parametrize("deploy_mode", ["cluster", "client"])
def test_a_job_lives_through_everything(
    tmp_path: Path, yarn: Yarn, monkeypatch: pytest.MonkeyPatch, deploy_mode: str
) -> None:
    for name, value in yarn.environment.items():
        monkeypatch.setenv(name, value)
    launch = f'master = "yarn"\nlaunch = {{deploy_mode = "{deploy_mode}", queue = "default"}}'
    lines = lines_job(tmp_path, launch, yarn.conf)
    before = {one["id"] for one in yarn.apps()}
    try:
        started = live_through_everything(lines, submitted=deploy_mode == "cluster")
        if started.submission is not None:
            assert started.submission.startswith("application_")
            assert started.tracking and "application_" in started.tracking
            assert {started.submission} < {one["id"] for one in yarn.apps()} - before
        wait_for("nothing runs", lambda: not [one for one in yarn.apps() if one["state"] == "RUNNING"])
        applications = [one for one in yarn.apps() if one["id"] not in before]
        assert 3 <= len(applications) <= 4, "one for each epoch, and the one that did not come up"
    finally:
        end_all(lines)
