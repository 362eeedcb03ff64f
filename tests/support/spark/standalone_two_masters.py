"""A standalone cluster of two masters, one of which leads: ZooKeeper, which Spark brings along, says which.

Source: Spark's "Standalone Mode", High Availability (4.3.0).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.spark.standalone_cluster import (
    alive_workers,
    daemon,
    daemon_environment,
    master_command,
    rest_options,
    worker_command,
)
from tests.support.storage.s3_servers import free_ports
from tests.support.waiting import wait_for

TIMEOUT_S = 20
"""After so long without a word masters give up workers and applications, and ZooKeeper a master."""
RECOVERY = (
    f"-Dspark.worker.timeout={TIMEOUT_S} -Dspark.deploy.recoveryMode=ZOOKEEPER "
    f"-Dspark.deploy.zookeeper.sessionTimeout={TIMEOUT_S * 1000} -Dspark.deploy.zookeeper.url="
)


@dataclass(frozen=True, slots=True)
class TwoMasters:
    """The cluster.

    Attributes:
        rest: Addresses of the REST servers, with a comma between them.
    """

    url: str
    rest: str
    web: tuple[str, str]
    pids: tuple[int, int]
    worker: int

    def leader(self) -> int:
        """Which of them leads and has the worker; -1 for none."""
        return next((place for place, web in enumerate(self.web) if alive_workers(web) == 1), -1)

    def kill_leader(self) -> int:
        """Kill it with SIGKILL; which one it was."""
        led = self.leader()
        assert led >= 0, "no master leads: there is nothing to kill"
        os.kill(self.pids[led], signal.SIGKILL)
        return led


@contextmanager
def two_masters(folder: Path, *, cores: int) -> Iterator[TwoMasters]:
    """Two masters and a worker until the end of the `with`."""
    zookeeper, *ports = free_ports(7)
    settings = daemon_environment(folder)
    settings["SPARK_DAEMON_JAVA_OPTS"] += f" {RECOVERY}127.0.0.1:{zookeeper}"
    masters = [ports[:3], ports[3:]]
    url = "spark://" + ",".join(f"127.0.0.1:{port}" for port, _, _ in masters)
    (folder / "zookeeper.cfg").write_text(
        f"tickTime=500\ndataDir={folder}/zookeeper\nclientPort={zookeeper}\n"
        "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    )
    with ExitStack() as stack:
        quorum = ["org.apache.zookeeper.server.ZooKeeperServerMain", str(folder / "zookeeper.cfg")]
        stack.enter_context(daemon(folder, "zookeeper", quorum, settings))
        pids = []
        for number, (port, web, rest) in enumerate(masters):
            command, environment = master_command(port, web), settings | rest_options(rest)
            pids.append(stack.enter_context(daemon(folder, f"master-{number}", command, environment)).pid)
        command = worker_command(folder, 0, cores, url)
        worker = stack.enter_context(daemon(folder, "worker", command, settings))
        found = TwoMasters(
            url,
            ",".join(f"http://127.0.0.1:{rest}" for _, _, rest in masters),
            (f"http://127.0.0.1:{masters[0][1]}", f"http://127.0.0.1:{masters[1][1]}"),
            (pids[0], pids[1]),
            worker.pid,
        )
        wait_for(f"a leading master (logs: {folder})", lambda: found.leader() >= 0)
        yield found
