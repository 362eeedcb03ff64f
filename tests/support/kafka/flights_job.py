"""The flights from topic to topic: a declared job on a real broker, fed as a test wants it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.jars.kafka import spark_settings
from spark_jobs.flights import replay
from spark_jobs.flights.expected_origins import TopicComparison, compare_topic, origin_delays
from streambank.checkpoint.position import batches_of
from streambank.checkpoint.reader import CheckpointReader
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.job.savepoint import savepoint_job
from streambank.job.start import StartResult, start_job
from streambank.job.stop import stop_job
from streambank.kafka.offsets import parse_offsets
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.storage import local_path, open_store
from tests.support.jobs.declared import BY, end_drivers
from tests.support.kafka.real_broker import Kafka
from tests.support.paths import ROOT
from tests.support.spark.jvm import spark_options
from tests.support.waiting import poll

PATIENCE_S = 500
"""For a machine with much else to do."""
REPEAT_EVERY = 10
FLIGHTS, DELAYS = "flights", "delays"
STATE = "spark.sql.streaming.stateStore"
JOBS = """
repository = "repository"

[jobs.origins]
application = "{root}/spark_jobs/flights/origin_delays.py"
args = [
  "--kafka", "{bootstrap}", "--topic", "{flights}", "--to", "{delays}",
  "--records-per-trigger", "400", "--trigger", "50 milliseconds",
]
checkpoint = "checkpoints/origins"
master = "local[2]"

[jobs.origins.spark]
{spark}
"""
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": spark_options(),
    "spark.driver.memory": "700m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    f"{STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass
class Origins:
    """The job, its broker, and its departures still to come.

    Attributes:
        fed: How many of them are in the topic.
    """

    kafka: Kafka
    job: Job
    departures: list[dict[str, Any]]
    fed: int = 0

    @property
    def checkpoint(self) -> str:
        generation = self.job.records().generation()
        return generation.location if generation else self.job.checkpoint

    @property
    def committed(self) -> int:
        """The newest committed batch; -1 before the first."""
        last = batches_of(self.checkpoint).committed
        return -1 if last is None else last

    @property
    def repository(self) -> Repository:
        return Repository.open(open_store(self.job.repository), create=True)

    def feed(self, count: int) -> None:
        """Let so many more departures come, one in ten of them twice."""
        new = self.departures[self.fed : self.fed + count]
        replay.feed(new, self.kafka.bootstrap, FLIGHTS, repeat_every=REPEAT_EVERY)
        self.fed += len(new)

    def start(self) -> StartResult:
        """Start the job, and wait for its first batch."""
        return start_job(self.job, by=BY, timeout_s=PATIENCE_S)

    def wait_committed(self, batch: int) -> None:
        poll(lambda: self.committed >= batch, timeout_s=PATIENCE_S)

    def savepoint(self) -> Manifest:
        (taken,) = savepoint_job(self.job, by=BY).savepoints.values()
        return self.repository.load("origins", taken.savepoint)

    def wait_all_read(self) -> None:
        def read() -> bool:
            closure = CheckpointReader(open_store(self.checkpoint)).inspect().closure
            if closure is None:
                return False
            offsets = parse_offsets(closure.sources[0].offset)
            return offsets is not None and dict(offsets[FLIGHTS]) == self.kafka.ends(FLIGHTS)

        poll(read, timeout_s=PATIENCE_S)

    def kill(self) -> None:
        end_drivers(self.job.records())

    def lose_checkpoint(self) -> None:
        """End the driver, and let its checkpoint be gone."""
        self.kill()
        path = local_path(self.checkpoint)
        assert path is not None
        shutil.rmtree(path)

    def finish(self) -> TopicComparison:
        """Feed the rest, close every window, stop, and compare the output with the expectation."""
        self.feed(len(self.departures))
        self.wait_all_read()
        last = self.departures[-1]["event_time"]
        closing = replay.closing_record(last)
        replay.feed([closing], self.kafka.bootstrap, FLIGHTS)
        due = origin_delays(self.departures, closing["event_time"])

        def all_there() -> bool:
            return not compare_topic(due, self.values()).missing

        poll(all_there, timeout_s=PATIENCE_S)
        stop_job(self.job, by=BY)
        return compare_topic(due, self.values())

    def values(self) -> list[dict[str, Any]]:
        return [value for _, value in self.kafka.consume(DELAYS)]


@contextmanager
def origins(kafka: Kafka, folder: Path, count: int = 3000) -> Iterator[Origins]:
    """A job with new topics; what it left running is ended afterwards, and its topics are deleted."""
    kafka.create(FLIGHTS)
    kafka.create(DELAYS)
    spark = {**SETTINGS, **spark_settings()}
    (folder / "jobs.toml").write_text(
        JOBS.format(
            root=ROOT,
            bootstrap=kafka.bootstrap,
            flights=FLIGHTS,
            delays=DELAYS,
            spark="\n".join(f'"{name}" = "{value}"' for name, value in spark.items()),
        )
    )
    job = load_jobs(folder / "jobs.toml").job("origins")
    found = Origins(kafka, job, replay.departures(replay.data_dir())[:count])
    try:
        yield found
    finally:
        end_drivers(job.records())
        kafka.delete(FLIGHTS)
        kafka.delete(DELAYS)
