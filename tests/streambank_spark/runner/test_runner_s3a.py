"""The flights job with its live checkpoint on S3, by Spark's S3A: run, saved, destroyed, restored, exact."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from demo.jars import s3a
from spark_jobs.flights import expected, replay
from streambank.checkpoint.position import batches_of
from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.launchers.local import LocalLauncher, launch_arguments
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import write_launch
from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from tests.support.drivers.real_driver import environment, submit
from tests.support.jobs.declared import BY, end_drivers
from tests.support.paths import ROOT
from tests.support.refuses import refuses
from tests.support.spark.jvm import spark_options
from tests.support.storage.s3_servers import SECRET_KEY, S3Server, seaweedfs
from tests.support.waiting import poll

__all__ = ["seaweedfs"]  # a fixture

# In the storms: it takes a minute or more, and the jars of the connector from the network.
pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(1800)]

PATIENCE_S = 400
"""For a machine with much else to do; on a quiet one all of it takes less than a minute."""

STATE = "spark.sql.streaming.stateStore"
JOBS = """
repository = "{repository}"

[jobs.flights]
application = "{root}/spark_jobs/flights/hourly_delays.py"
args = [
  "--input", "{folder}/in", "--output", "{folder}/out",
  "--watermark", "2 hours", "--trigger", "50 milliseconds",
]
checkpoint = "{checkpoint}"
master = "local[2]"

[jobs.flights.spark]
{spark}
"""
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": spark_options(),
    "spark.driver.memory": "700m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    f"{STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass
class Flights:
    """The declared job, its departures still to come, and where everything of it is."""

    folder: Path
    server: S3Server
    job: Job
    waiting: list[Path] = field(default_factory=list)

    @property
    def checkpoint(self) -> str:
        generation = self.job.records().generation()
        return generation.location if generation else self.job.checkpoint

    @property
    def committed(self) -> int:
        last = batches_of(self.checkpoint).committed
        return -1 if last is None else last

    def depart(self, files: int) -> None:
        """Let files of departures appear in the input, in their order."""
        for path in self.waiting[:files]:
            path.rename(self.folder / "in" / path.name)
        del self.waiting[:files]

    def wait_committed(self, batch: int) -> None:
        poll(lambda: self.committed >= batch, timeout_s=PATIENCE_S)

    def second_driver(self) -> subprocess.CompletedProcess[str]:
        """What becomes of another driver of the job that somebody submits by hand."""
        control = self.job.records()
        spec = prepare_launch(self.job, control, by=BY)
        write_launch(control, spec)
        command = submit(
            ROOT / "spark_jobs/run_query.py", *launch_arguments(control, spec), conf=self.job.spark
        )
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment(**self.server.environment),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


@pytest.fixture
def flights(seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flights]:
    seaweedfs.use(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # where the logs of such jobs are
    spark = {**SETTINGS, **s3a.settings()}
    (tmp_path / "jobs.toml").write_text(
        JOBS.format(
            root=ROOT,
            folder=tmp_path,
            repository=seaweedfs.location(),
            checkpoint=f"{seaweedfs.location('s3a')}/flights",
            spark="\n".join(f'"{name}" = "{value}"' for name, value in spark.items()),
        )
    )
    found = Flights(tmp_path, seaweedfs, load_jobs(tmp_path / "jobs.toml").job("flights"))
    (tmp_path / "in").mkdir()
    departures = replay.departures(replay.data_dir())[:600]
    replay.replay(departures, tmp_path / "later", rows_per_file=100, gap_ms=0)
    found.waiting = sorted((tmp_path / "later").glob("flights-*.json"))
    try:
        yield found
    finally:
        end_drivers(found.job.records())


def test_the_flights_job_lives_on_s3(flights: Flights) -> None:
    job = flights.job
    repository = Repository.open(open_store(job.repository), create=True)
    flights.depart(3)
    first = start_job(job, by=BY, timeout_s=PATIENCE_S)
    flights.wait_committed(1)

    # A second driver would spoil the checkpoint in silence, as S3A's commits do not exclude each other.
    said = flights.second_driver()
    assert said.returncode == RefusedError.exit_code, said.stderr
    assert f"Job flights is held by process {first.pid}" in said.stderr + said.stdout

    flights.depart(1)  # so that the query is at work while it is saved
    (taken,) = savepoint_job(job, by=BY).savepoints.values()
    savepoint = taken.savepoint
    saved = repository.load("flights", savepoint)
    assert saved.checkpoint == job.checkpoint and saved.checkpoint.startswith("s3a://")
    flights.depart(1)
    flights.wait_committed(saved.batch + 1)  # and goes on: the output is further than the savepoint
    credentials_are_nowhere(flights, first.pid, first.jvm_pid)

    end_drivers(job.records())
    store = open_store(job.checkpoint)
    for info in list(store.list()):
        store.delete(info.path)
    store.prune()
    assert list(store.list()) == []
    with refuses(RefusedError, "checkpoint-lost"):
        start_job(job, by=BY)

    assert verify(repository, "flights", savepoint, level="full").ok
    report = restore(
        RestoreRequest(
            repository, "latest-good", job="flights", generation=job.records(), sink="rollback", by=BY
        )
    )
    assert report.plan.savepoint == savepoint
    assert flights.checkpoint == f"{job.checkpoint}.g0002"
    assert CheckpointReader(open_store(flights.checkpoint)).inspect().last_committed_batch == saved.batch

    flights.depart(len(flights.waiting))
    again = start_job(job, by=BY, timeout_s=PATIENCE_S)
    assert (again.state, again.generations) == ("started", {"main": 2})
    stopped = stop_job(job, by=BY, drain=True)
    assert (stopped.how, stopped.drained) == ("boundary", True)
    comparison = expected.check(
        "hourly_delays", flights.folder / "in", flights.folder / "out", watermark_delay=timedelta(hours=2)
    )
    assert comparison.equal, comparison.to_dict()
    assert comparison.expected > 100


def credentials_are_nowhere(flights: Flights, *pids: int | None) -> None:
    """Not in arguments of processes, the driver's log, or the job's records."""
    for pid in pids:
        assert SECRET_KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    (handle,) = LocalLauncher().find(flights.job.records())
    assert handle.log is not None
    assert SECRET_KEY not in Path(handle.log).read_text(errors="replace")
    records = flights.job.records().store
    listed = [info.path for info in records.list()]
    assert listed
    assert not [path for path in listed if SECRET_KEY.encode() in records.read(path)]
