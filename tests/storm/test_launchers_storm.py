"""Everything that there is for a job, in each place where a driver may be, on a real standalone cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from streambank.job.launchers.choose import launcher_for
from streambank.job.processes import ProcessId
from streambank.job.restart import restart_job
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from tests.storm.test_yarn_storm import KILLED_STARTER
from tests.support.cluster import Cluster, running_cluster
from tests.support.driver import CONF, wait_for
from tests.support.jobs import BY, child, end_drivers
from tests.support.lines_job import LinesJob, lines_job

PATIENCE_S = 900.0
pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), workers=1, cores=4, rest=True) as found:
        yield found


def declared(folder: Path, cluster: Cluster, place: str, more: str = "") -> LinesJob:
    if place == "local":
        return lines_job(folder, 'master = "local[2]"', CONF)
    mode = place.partition(" ")[2]
    address = f', rest = "{cluster.rest}", web = "{cluster.web}"' if mode == "cluster" else ""
    launch = f'master = "{cluster.master}"\nlaunch = {{deploy_mode = "{mode}"{address}{more}}}'
    return lines_job(folder, launch, {**cluster.conf, "spark.cores.max": "1"})


def end_all(lines: LinesJob) -> None:
    launcher = launcher_for(lines.job)
    for handle in launcher.find(lines.control):
        launcher.kill(handle)
    end_drivers(lines.control)


@pytest.mark.parametrize("place", ["local", "standalone client", "standalone cluster"])
def test_a_job_lives_through_everything(tmp_path: Path, cluster: Cluster, place: str) -> None:
    lines = declared(tmp_path, cluster, place)
    job, launcher = lines.job, launcher_for(lines.job)
    try:
        lines.arrive("one")
        # A start that is killed right after it has submitted: the next one finds what it left behind.
        with child(KILLED_STARTER, tmp_path / "jobs.toml") as starter:
            assert starter.wait() == -signal.SIGKILL
        assert lines.events("launched") == []
        left = wait_for("the driver that was left", lambda: launcher.find(lines.control))
        started = start_job(job, by=BY)
        assert (started.state, started.launch_id) == ("already-running", left[0].launch_id)
        assert (started.submission is not None) == (place == "standalone cluster")
        lines.wait_rows("one")
        assert start_job(job, by=BY).state == "already-running", "a retry"
        handles = launcher.find(lines.control)
        assert {one.launch_id for one in handles} == {started.launch_id}
        assert wait_for("its log", lambda: launcher.log_lines(handles[0], 400))

        assert started.jvm_pid is not None
        os.kill(started.jvm_pid, signal.SIGKILL)
        wait_for("its death", lambda: job_status(job).state == "failed")
        lines.arrive("two")
        again = start_job(job, by=BY)
        assert (again.state, again.epoch) == ("started", 2)
        lines.wait_rows("one", "two")

        restarted = restart_job(job, by=BY)
        assert (restarted.state, restarted.how, restarted.start.epoch) == ("restarted", "boundary", 3)
        lines.arrive("three")
        lines.wait_rows("one", "two", "three")

        stopped = stop_job(job, by=BY, savepoint=True)
        assert (stopped.how, stopped.batch, len(stopped.savepoints)) == ("boundary", 2, 1)
        assert job_status(job).state == "stopped"
        wait_for("nothing is left", lambda: not launcher.find(lines.control))

        # A driver that comes up is ended by a stop.
        with child(KILLED_STARTER, tmp_path / "jobs.toml") as starter:
            assert starter.wait() == -signal.SIGKILL
        wait_for("the driver that was left", lambda: launcher.find(lines.control))
        assert stop_job(job, by=BY).state == "stopped"
        wait_for("nothing is left", lambda: not launcher.find(lines.control))
        assert job_status(job).state == "stopped"
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
                    processes = records.read(number)["processes"]
                    holders[number] = tuple(ProcessId.from_dict(one) for one in processes)
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
            for epoch, text in ((2, "two"), (3, "three")):
                view = lines.control.lease.view()
                assert view is not None and view.holder is not None
                (jvm,) = [one.pid for one in view.holder.processes if one.role == "jvm"]
                os.kill(jvm, signal.SIGKILL)
                lines.arrive(text)
                if epoch == 3:
                    # A start meanwhile waits for the one that comes back: it makes no other.
                    assert start_job(job, by=BY).state == "already-running"
                wait_for(f"epoch {epoch}", partial(_holds, lines, epoch), PATIENCE_S)
                assert watch.overlaps == [], "a later holder of the lease beside a living earlier one"
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


def _holds(lines: LinesJob, epoch: int) -> bool:
    view = lines.control.lease.view()
    return view is not None and view.epoch == epoch and view.state == "live"


def _planned(folder: Path) -> int:
    return max((int(one.name) for one in (folder / "checkpoint" / "offsets").glob("[0-9]")), default=-1)
