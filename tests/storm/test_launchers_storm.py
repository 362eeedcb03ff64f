"""Everything that there is for a job, in each place where a driver may be, on a real standalone cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from streambank.control.claims import Holder
from streambank.control.processes import ProcessId
from streambank.core.errors import StorageError
from streambank.driver.launchers.choose import launcher_for
from streambank.job.restart import restart_job
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from streambank.upgrade.plan import UpgradeRequest
from streambank.upgrade.upgrade import upgrade
from tests.support.drivers.real_driver import CONF
from tests.support.jobs.declared import BY
from tests.support.jobs.lifecycle import end_all, live_through_everything
from tests.support.jobs.lines_job import LinesJob, lines_job
from tests.support.refuses import refuses
from tests.support.spark.standalone_cluster import (
    SMALL,
    Cluster,
    alive_workers,
    daemon,
    daemon_environment,
    master_command,
    rest_options,
    running_cluster,
    worker_command,
)
from tests.support.storage.s3_servers import free_ports
from tests.support.waiting import wait_for

# A standalone cluster of two masters, one of which leads: ZooKeeper, which Spark brings along, says which.
#
# Source: Spark's "Standalone Mode", High Availability (4.3.0).

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


PATIENCE_S = 900.0
pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), workers=1, cores=4, rest=True) as found:
        yield found


def declared(folder: Path, cluster: Cluster, place: str, more: str = "") -> LinesJob:
    if place == "local":
        settings = {name: value for name, value in CONF.items() if name != "spark.master"}
        return lines_job(folder, 'master = "local[2]"', settings)
    mode = place.partition(" ")[2]
    address = f', rest = "{cluster.rest}", web = "{cluster.web}"' if mode == "cluster" else ""
    launch = f'master = "{cluster.master}"\nlaunch = {{deploy_mode = "{mode}"{address}{more}}}'
    return lines_job(folder, launch, {**cluster.conf, "spark.cores.max": "1"})


@pytest.mark.parametrize("place", ["local", "standalone client", "standalone cluster"])
def test_a_job_lives_through_everything(tmp_path: Path, cluster: Cluster, place: str) -> None:
    lines = declared(tmp_path, cluster, place)
    try:
        live_through_everything(lines, submitted=place == "standalone cluster")
    finally:
        end_all(lines)


@pytest.mark.parametrize("supervised", [False, True])
def test_an_upgrade_of_a_driver_in_a_cluster(tmp_path: Path, cluster: Cluster, supervised: bool) -> None:
    """The new driver waits in the cluster, unless that would start it again by itself."""
    lines = declared(tmp_path, cluster, "standalone cluster", ", supervise = true" if supervised else "")
    other = tmp_path / "other.py"
    other.write_text(Path(lines.job.application).read_text(encoding="utf-8"), encoding="utf-8")
    launcher = launcher_for(lines.job)
    try:
        lines.arrive("one")
        start_job(lines.job, by=BY)
        lines.wait_rows("one")
        asked = UpgradeRequest(
            lines.job, application=str(other), watch_s=5.0, unrehearsed=True, no_way_back=True, by=BY
        )
        with Watch(lines) as watch:
            found = upgrade(asked)
            lines.arrive("two")
            lines.wait_rows("one", "two", within_s=PATIENCE_S)
        assert (found.state, found.warm) == ("upgraded", not supervised), found
        assert watch.overlaps == [], "two drivers held the lease"
        assert len(lines.events("driver-waiting")) == (0 if supervised else 1)
        assert any("starts again by itself" in note for note in found.notes) == supervised
        now = job_status(lines.job)
        assert (now.epoch, now.launch_id) == (2, found.launch_id)
        assert stop_job(lines.job, by=BY).how == "boundary"
        wait_for("no driver is left", lambda: not launcher.find(lines.control))
    finally:
        end_all(lines)


class Watch:
    """Looks again and again who lives of those that ever held a job's lease."""

    def __init__(self, lines: LinesJob) -> None:
        self.lines = lines
        self.overlaps: list[tuple[int, int]] = []
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        control = self.lines.control
        records = control.lease.claims.records
        holders: dict[int, tuple[ProcessId, ...]] = {}
        while not self._over.is_set():
            # The records first: who lives of an earlier holder *after* a later one is seen, lives beside it.
            for number in records.numbers():
                if number not in holders:
                    holders[number] = Holder.from_dict(records.read(number)).processes
            living = [one for one, who in holders.items() if any(each.is_living() for each in who)]
            self.looks += 1
            if len(living) > 1:
                self.overlaps.append((living[0], living[-1]))
            time.sleep(0.005)


def test_a_supervised_driver_comes_back_and_there_are_never_two_holders(
    tmp_path: Path, cluster: Cluster
) -> None:
    lines = declared(tmp_path, cluster, "standalone cluster", ", supervise = true")
    job, launcher = lines.job, launcher_for(lines.job)
    try:
        lines.arrive("one")
        started = start_job(job, by=BY)
        lines.wait_rows("one")
        with Watch(lines) as watch:
            jvm, _ = _processes(lines)
            os.kill(jvm.pid, signal.SIGKILL)
            lines.arrive("two")
            wait_for("epoch 2", partial(_holds, lines, 2), PATIENCE_S)

            # Its Python, stopped, outlives its JVM: who comes back finds the lease held, and tries again.
            jvm, python = _processes(lines)
            os.kill(python.pid, signal.SIGSTOP)
            os.kill(jvm.pid, signal.SIGKILL)
            lines.arrive("three")
            refused = wait_for("a refusal", lambda: lines.events("driver-refused"), PATIENCE_S)
            assert refused[0]["code"] == "lease-held"
            view = lines.control.lease.view()
            assert python.is_living() and view is not None and view.epoch == 2, "the fault did not fire"
            # A start meanwhile waits for the one that comes back: it makes no other.
            with ThreadPoolExecutor(1) as pool:
                meanwhile = pool.submit(start_job, job, by=BY)
                time.sleep(3)
                os.kill(python.pid, signal.SIGCONT)
                assert meanwhile.result(PATIENCE_S).state == "already-running"
            wait_for("epoch 3", partial(_holds, lines, 3), PATIENCE_S)
            lines.wait_rows("one", "two", "three", within_s=PATIENCE_S)
        assert watch.looks > 100
        assert watch.overlaps == [], "a later holder of the lease beside a living earlier one"
        now = job_status(job)
        assert (now.launch_id, now.submission) == (started.launch_id, started.submission), "under the same id"
        assert len(lines.events("launched")) == 1

        stopped = stop_job(job, by=BY)
        assert (stopped.how, stopped.epoch) == ("boundary", 3)
        wait_for("supervision is over", lambda: not launcher.find(lines.control))
        assert job_status(job).state == "stopped"
    finally:
        end_all(lines)


def test_a_supervised_driver_that_a_stop_has_killed_stays_away(tmp_path: Path, cluster: Cluster) -> None:
    lines = declared(tmp_path, cluster, "standalone cluster", ", supervise = true")
    job, launcher = lines.job, launcher_for(lines.job)
    try:
        lines.arrive("one")
        start_job(job, by=BY)
        lines.wait_rows("one")
        (tmp_path / "stuck").touch()
        lines.arrive("two")
        wait_for("a batch that hangs", lambda: _planned(tmp_path) == 1)
        stopped = stop_job(job, by=BY, force_after_s=5.0)
        assert stopped.how in ("forced", "killed")
        (tmp_path / "stuck").unlink()
        wait_for("supervision is over", lambda: not launcher.find(lines.control))
        assert job_status(job).state == "stopped"
        assert lines.rows() == ["one"]
    finally:
        end_all(lines)


def test_a_supervised_driver_whose_worker_dies_comes_back_on_another_one(tmp_path: Path) -> None:
    """Its master submits it again: under another id, with the arguments of the same launch."""
    with running_cluster(tmp_path, workers=2, cores=2, rest=True) as cluster:
        lines = declared(tmp_path, cluster, "standalone cluster", ", supervise = true")
        job, launcher = lines.job, launcher_for(lines.job)
        try:
            lines.arrive("one")
            started = start_job(job, by=BY)
            lines.wait_rows("one")
            with Watch(lines) as watch:
                jvm, python = _processes(lines)
                worker = _parent(jvm.pid)
                assert worker in cluster.workers
                os.kill(worker, signal.SIGKILL)
                lines.arrive("two")
                wait_for("epoch 2", partial(_holds, lines, 2), PATIENCE_S)
                assert not jvm.is_living() and not python.is_living()
                lines.wait_rows("one", "two", within_s=PATIENCE_S)
            assert watch.looks > 100
            assert watch.overlaps == [], "a later holder of the lease beside a living earlier one"
            jvm, _ = _processes(lines)
            assert _parent(jvm.pid) in set(cluster.workers) - {worker}

            again = start_job(job, by=BY)
            assert (again.state, again.launch_id) == ("already-running", started.launch_id)
            assert len(lines.events("launched")) == 1
            now = job_status(job)
            assert now.state == "running" and now.submission != started.submission, "under another id"
            log = launcher.log_lines(launcher.find(lines.control)[0], 400)
            assert any("INFO" in line or "WARN" in line for line in log), log

            stopped = stop_job(job, by=BY)
            assert (stopped.how, stopped.epoch) == ("boundary", 2)
            wait_for("supervision is over", lambda: not launcher.find(lines.control))
            assert job_status(job).state == "stopped"
        finally:
            end_all(lines)


def with_two_masters(folder: Path, cluster: TwoMasters, mode: str) -> LinesJob:
    address = f', rest = "{cluster.rest}", web = "{",".join(cluster.web)}"' if mode == "cluster" else ""
    launch = f'master = "{cluster.url}"\nlaunch = {{deploy_mode = "{mode}"{address}}}'
    return lines_job(folder, launch, {**SMALL, "spark.cores.max": "1"})


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_job_lives_through_the_failure_of_its_master(tmp_path: Path, mode: str) -> None:
    with two_masters(tmp_path, cores=4) as cluster:
        lines = with_two_masters(tmp_path, cluster, mode)
        job, launcher = lines.job, launcher_for(lines.job)
        try:
            lines.arrive("one")
            started = start_job(job, by=BY)
            lines.wait_rows("one")
            failed = cluster.kill_leader()
            assert cluster.leader() == -1, "the fault did not fire"
            lines.arrive("two")
            again = start_job(job, by=BY)
            assert (again.state, again.launch_id) == ("already-running", started.launch_id)
            lines.wait_rows("one", "two", within_s=PATIENCE_S)
            wait_for("the other one leads", lambda: cluster.leader() == 1 - failed, PATIENCE_S)
            found = wait_for("its driver", lambda: launcher.find(lines.control), PATIENCE_S)
            assert {one.launch_id for one in found} == {started.launch_id}
            now = job_status(job)
            assert (now.state, now.epoch, now.submission) == ("running", 1, started.submission)

            restarted = restart_job(job, by=BY)
            assert (restarted.state, restarted.how, restarted.start.epoch) == ("restarted", "boundary", 2)
            lines.arrive("three")
            lines.wait_rows("one", "two", "three", within_s=PATIENCE_S)
            stopped = stop_job(job, by=BY)
            assert (stopped.how, stopped.epoch) == ("boundary", 2)
            wait_for("nothing is left", lambda: not launcher.find(lines.control))
        finally:
            end_all(lines)


def test_while_no_master_leads_a_job_can_be_stopped_and_none_be_started(tmp_path: Path) -> None:
    """Whether a driver comes up is not known then, and a start that guessed could make a second one."""
    with two_masters(tmp_path, cores=4) as cluster:
        lines = with_two_masters(tmp_path, cluster, "cluster")
        job = lines.job
        try:
            lines.arrive("one")
            start_job(job, by=BY)
            lines.wait_rows("one")
            failed = cluster.kill_leader()
            stopped = stop_job(job, by=BY)
            assert (stopped.how, stopped.epoch) == ("boundary", 1)
            for change in (start_job, stop_job):
                with refuses(StorageError, "cluster-refused", match="No master of the cluster is the leader"):
                    change(job, by=BY)
            assert cluster.leader() == -1 and len(lines.events("launched")) == 1

            wait_for("the other one leads", lambda: cluster.leader() == 1 - failed, PATIENCE_S)
            lines.arrive("two")
            again = start_job(job, by=BY)
            assert (again.state, again.epoch) == ("started", 2)
            lines.wait_rows("one", "two", within_s=PATIENCE_S)
            assert stop_job(job, by=BY).how == "boundary"
        finally:
            end_all(lines)


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat[stat.rindex(")") + 2 :].split()[1])


def _processes(lines: LinesJob) -> tuple[ProcessId, ProcessId]:
    """The JVM and the Python of who holds the lease."""
    view = lines.control.lease.view()
    assert view is not None and view.holder is not None
    found = {one.role: one for one in view.holder.processes}
    return found["jvm"], found["python"]


def _holds(lines: LinesJob, epoch: int) -> bool:
    view = lines.control.lease.view()
    return view is not None and view.epoch == epoch and view.state == "live"


def _planned(folder: Path) -> int:
    return max((int(one.name) for one in (folder / "checkpoint" / "offsets").glob("[0-9]")), default=-1)
