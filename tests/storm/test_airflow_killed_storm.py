"""Airflow's processes killed while a job is started, saved and restored: the job does not notice.

A real Airflow of four processes, a real driver, a real person's answers. Each run ends well, or fails with a
reason and ends well once it is cleared. At the end the output of all that went on is what a batch
computation gives.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from demo.job import FlightsJob
from demo.places import ROOT
from demo.story import WATERMARK_HOURS
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from tests.support.airflow_face.live_airflow import LiveAirflow, live_airflow
from tests.support.waiting import poll

pytestmark = [pytest.mark.spark, pytest.mark.airflow, pytest.mark.storm, pytest.mark.timeout(2400)]

JOB = "flights"
ROWS_PER_FILE = 750
GAP_MS = 6000
"""So the flights last for 45 minutes: all cells on one Airflow."""
TRIES = 8
"""How often a run is begun again where its moment was over before it could be killed."""

MOMENTS = {
    "savepoint": [("take", "running"), ("verify", "running")],
    "restore": [("approve", "awaiting_input"), ("restore", "running"), ("start", "running")],
    "run": [("start", "running"), ("keep_running", "deferred")],
}
VICTIMS = ("scheduler", "scheduler and workers", "worker", "triggerer", "api-server")


@dataclass
class Site:
    """The Airflow, the job, and what it reads."""

    airflow: LiveAirflow
    job: FlightsJob
    replay: subprocess.Popen[bytes]

    def trigger(self, verb: str) -> str:
        conf = {"sink": "rollback", "stop_running": True} if verb == "restore" else {}
        return self.airflow.client.trigger(f"{JOB}.{verb}", conf)

    def drivers(self) -> set[int]:
        return {one.pid for one in self.job.driver()}

    def epochs(self) -> list[int]:
        """Of drivers and restores, in their order."""
        return list(self.job.records().lease.claims.records.numbers())

    def goes_on(self) -> None:
        """Wait for one more batch."""
        last = self.job.last_commit()
        self.job.wait_for_batch(last.number + 1 if last else 0, timeout_s=180, meanwhile=_nothing)

    def savepoint(self) -> None:
        """Make sure that there is one to restore, some batches old."""
        run = self.trigger("savepoint")
        assert self.airflow.wait_for_end(f"{JOB}.savepoint", run, _nothing) == "success"
        self.goes_on()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("killed") / "demo"
    with live_airflow(home) as airflow:
        replay = _replay(airflow, GAP_MS)
        site = Site(airflow, FlightsJob(JOB, f"{airflow.places.repository}.control"), replay)
        run = site.trigger("run")
        airflow.client.wait_for_task(f"{JOB}.run", run, "start", timeout_s=300)
        site.job.wait_for_batch(3, timeout_s=120, meanwhile=_nothing)
        yield site
        _prove(site)


def _replay(airflow: LiveAirflow, gap_ms: int) -> subprocess.Popen[bytes]:
    target = airflow.places.data / "input"
    target.mkdir(exist_ok=True)
    command = [sys.executable, str(ROOT / "spark_jobs" / "flights" / "replay.py"), str(target)]
    command += ["--rows-per-file", str(ROWS_PER_FILE), "--gap-ms", str(gap_ms)]
    return subprocess.Popen(command, env=airflow.environment, stdout=subprocess.DEVNULL)


def _prove(site: Site) -> None:
    """All flights arrive, and the output is that of a batch computation; every savepoint is whole."""
    site.savepoint()
    site.replay.terminate()
    site.replay.wait()
    assert _replay(site.airflow, 20).wait(300) == 0
    data = site.airflow.places.data
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "spark_jobs" / "flights" / "expected.py"), "hourly_delays"),
            *("--input", str(data / "input"), "--output", str(data / "output")),
            *("--watermark-hours", str(WATERMARK_HOURS), "--within", "300"),
        ],
        capture_output=True,
        text=True,
    )
    answer = json.loads(done.stdout)
    assert answer["equal"] and answer["found"] > 1000, answer
    repository = Repository.open(open_store(site.airflow.places.repository))
    for savepoint in repository.manifests(JOB):
        assert verify(repository, JOB, savepoint.savepoint, "full").ok, savepoint.savepoint


def _nothing() -> None:
    """Nothing is to be done meanwhile."""


def _kill(site: Site, victim: str, task_id: str) -> Callable[[], None]:
    """Kill it; what starts it again."""
    airflow = site.airflow
    if victim == "worker":
        assert airflow.kill_worker(task_id), "a task was running, and nobody worked on it"
        return _nothing
    name, _, more = victim.partition(" and ")
    killed = airflow.kill(name, with_children=bool(more))
    assert len(killed) > 1 or not more
    return lambda: airflow.start(name)


def _cells() -> Iterator[tuple[str, str, str, str]]:
    for verb, moments in MOMENTS.items():
        for task_id, state in moments:
            for victim in VICTIMS:
                if state == "running" or victim in ("scheduler", "triggerer", "api-server"):
                    yield verb, task_id, state, victim


@pytest.mark.parametrize(("verb", "task_id", "state", "victim"), list(_cells()))
def test_the_job_is_not_disturbed_and_the_run_ends_well(
    site: Site, verb: str, task_id: str, state: str, victim: str
) -> None:
    airflow, dag_id = site.airflow, f"{JOB}.{verb}"
    airflow.wait_until_healthy()
    if verb == "restore":
        site.savepoint()
    if (verb, task_id) == ("run", "start"):
        run = site.airflow.client.trigger(f"{JOB}.stop", {"savepoint": False})
        assert airflow.wait_for_end(f"{JOB}.stop", run, _nothing) == "success"
        assert not site.drivers()
    before, epochs = site.drivers(), site.epochs()

    for _ in range(TRIES):
        run = site.trigger(verb)
        meanwhile = _nothing if task_id == "approve" else partial(site.airflow.approve, dag_id, run)
        if airflow.wait_for(dag_id, run, task_id, state, meanwhile):
            bring_back = _kill(site, victim, task_id)
            break
        assert (verb, task_id) != ("run", "start"), "a start takes seconds"
    else:
        raise AssertionError(f"{task_id} was never seen {state}")
    time.sleep(2)  # it is gone for a while
    if verb == "savepoint":
        assert site.drivers() == before, "the job has noticed"
    bring_back()
    airflow.wait_until_healthy()

    if task_id == "keep_running":
        _is_still_kept(site, before)
        return
    if not _goes_well(site, verb, dag_id, run):
        _has_one_reason(site, dag_id, run)
        airflow.clear(dag_id, run)
        poll(lambda: airflow.run_state(dag_id, run) != "failed", timeout_s=60)
        assert _goes_well(site, verb, dag_id, run)
    if verb == "savepoint":
        assert site.drivers() == before and site.epochs() == epochs, "the job has noticed"
    elif verb == "run":
        assert len(site.epochs()) == len(epochs) + 1, "one driver was made, and no more"
    assert len(site.drivers()) == 2, "one driver: its Python and its JVM"
    site.goes_on()


def _goes_well(site: Site, verb: str, dag_id: str, run: str) -> bool:
    """Whether a run ends with success; one that keeps the job running does not end, but gets as far."""
    meanwhile = partial(site.airflow.approve, dag_id, run)
    if verb == "run":
        return site.airflow.wait_for(dag_id, run, "keep_running", "deferred", meanwhile)
    return site.airflow.wait_for_end(dag_id, run, meanwhile) == "success"


def _has_one_reason(site: Site, dag_id: str, run: str) -> None:
    """What failed says why, in its own log."""
    states = site.airflow.states(dag_id, run)
    (failed,) = [task_id for task_id, state in states.items() if state == "failed"]
    said = site.airflow.client.why(dag_id, run)
    print(f"{dag_id} failed in {failed}:\n{said}")
    assert len(said.splitlines()) > 1, f"{failed} failed without a word"


def _is_still_kept(site: Site, before: set[int]) -> None:
    """Whoever keeps the job running still does: a driver that dies is replaced."""
    site.job.kill_driver()
    poll(lambda: bool(site.drivers()) and not site.drivers() & before, timeout_s=240)
    site.goes_on()
