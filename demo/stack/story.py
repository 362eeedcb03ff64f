"""The demo's story on the stack: flights come by Kafka, parts are killed and come back, then the disaster."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from demo import keeper, processes
from demo.job import WaitedTooLongError
from demo.places import ROOT
from demo.ready import is_ready
from demo.report import Fault
from demo.stack.addresses import WORKERS
from demo.stack.places import FLIGHTS_TOPIC, REPOSITORY
from demo.stack.whole import Stack
from demo.story import AT_THE_STOP, JOB, REPLAY_DAG, WATERMARK_HOURS, Story
from streambank.core.errors import NotFoundError, StorageError
from streambank.core.units import utc_now
from streambank.kafka.client import connect
from streambank.kafka.retention import replay_of
from streambank.kafka.settings import ASK_TIMEOUT_S, Brokers, KafkaConnection
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.storage import open_store

PATIENCE = 3.0  # every batch on S3 costs some hundred requests
RECORDS_PER_BATCH = 16_000  # as in streaming_jobs.toml: few and fat ones
ROWS_AT_ONCE = 1000
GAP_MS = 250  # between so many: 4,000 departures a second while parts are killed
ALL = 336_776
# How many departures a chapter gets: however fast batches are, more of them than the chapter waits for.
AT_FIRST = 6 * RECORDS_PER_BATCH
A_CHAPTER = 40_000
FIRST_SAVEPOINT_AT = 2
SECOND_SAVEPOINT_AFTER = 2
DISASTER_AFTER = 2
BACK_WITHIN_S = 180.0
GOES_ON_WITHIN_S = 420.0
A_WORKER = "a worker"
KILLED = (A_WORKER, "s3", "kafka")


@dataclass(slots=True)
class StackStory(Story):
    """Tells the story of one stack; every chapter leaves its figures in the report.

    Attributes:
        stack: What runs.
        fed: How many departures were asked to come.
    """

    stack: Stack = field(kw_only=True)
    fed: int = 0

    @property
    def repository(self) -> str:
        """Where the savepoints are: in the stack's S3."""
        return REPOSITORY

    def replay_conf(self, rows_per_file: int, gap_ms: int) -> dict[str, Any]:
        """What lets the first flights come, to the topic."""
        return self._next_flights(AT_FIRST, rows_per_file, gap_ms)

    def _next_flights(self, count: int, rows_per_file: int, gap_ms: int) -> dict[str, Any]:
        skip, self.fed = self.fed, min(ALL, self.fed + count)
        where = {"kafka": self.stack.addresses.kafka, "topic": FLIGHTS_TOPIC}
        return {
            **where,
            "skip": skip,
            "limit": self.fed,
            "rows_per_file": rows_per_file,
            "gap_ms": gap_ms,
        }

    def let_flights_come(self, count: int = A_CHAPTER, gap_ms: int = GAP_MS) -> None:
        """More of them, after those that were asked for before; they come while the story goes on."""
        conf = self._next_flights(count, ROWS_AT_ONCE, gap_ms)
        self.run_of_replay = self.airflow.trigger(REPLAY_DAG, conf)

    def source_of(self, manifest: Manifest) -> str:
        """Up to where a savepoint has read the topic, and how long what follows can be read again.

        Raises:
            WaitedTooLongError: It does not carry that.
        """
        brokers = Brokers(KafkaConnection(self.stack.addresses.kafka))
        found = list(replay_of(manifest.sources, brokers, utc_now()))
        for record, one in zip(manifest.sources, found, strict=False):
            told = record["kafka"]
            if one.state in ("gone", "not-known") or told["not_asked"]:
                raise WaitedTooLongError(
                    f"savepoint {manifest.savepoint} cannot be replayed from {', '.join(one.topics)}: "
                    f"{told['not_asked'] or one.why}"
                )
            read = [
                f"{topic}/{partition} up to {spot['next']}"
                for topic, kept in told["topics"].items()
                for partition, spot in kept["partitions"].items()
            ]
            return f"it has read {', '.join(read)}; what follows can be replayed {one.sentence(utc_now())}"
        raise WaitedTooLongError(f"savepoint {manifest.savepoint} has no offsets of a topic")

    def restore(self) -> None:
        """As the demo does it; the plan has to say that the topic still has what comes next."""
        Story.restore(self)
        if not self.report.source_effect:
            raise WaitedTooLongError("the restore's plan does not mention the topic that the job reads")

    def kill_and_bring_back(self, what: str) -> None:
        """Kill a part without warning while flights come; until it is back, and the job has read them all."""
        self.let_flights_come()
        with self.screen.step(f"{what} is killed (-9) in the middle, and brought back") as step:
            timeout_s = GOES_ON_WITHIN_S * self.patience
            last = self.job.last_commit()
            first_new = (last.number if last else -1) + 1
            before = self.job.wait_for_batch(first_new, timeout_s=timeout_s, meanwhile=self.check)
            name, driver_is_on = self._victim(what)
            part, state = self.stack.part(name), self._state()
            process = processes.look_at(state.services[name])
            if process is None:
                raise WaitedTooLongError(f"{name} is not running, so it cannot be killed")
            killed_at = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)
            self._wait_until(
                lambda: self._is_back(name, state.again.get(name, 0), part.ready),
                BACK_WITHIN_S * self.patience,
                f"{name} did not come back",
            )
            away_s = time.monotonic() - killed_at
            number = self._until_all_is_read(f"after {name} was brought back")
            goes_on_s = time.monotonic() - killed_at
            if number <= before.number:
                raise WaitedTooLongError(
                    f"all flights were read before {name} was killed, so the test proves nothing"
                )
            self.report.faults.append(Fault(name, round(away_s, 1), round(goes_on_s, 1), number))
            where = f"; the driver was on {driver_is_on}" if driver_is_on else ""
            step.detail = (
                f"{name}, pid {process.pid}, was away for {away_s:.1f} s{where}; "
                f"batch {number} is committed, all flights so far are read"
            )

    def _victim(self, what: str) -> tuple[str, str]:
        """Which part is meant, and where the driver is: with its worker the driver would go as well."""
        if what != A_WORKER:
            return what, ""
        workers = {f"spark-worker-{number}" for number in range(1, WORKERS + 1)}
        found: set[str] = set()

        def holds_it() -> bool:
            services = self._state().services
            above = {pid for one in self.job.driver() for pid in processes.ancestors(one.pid)}
            found.update(name for name in workers if services.get(name) in above)
            return bool(found)

        self._wait_until(
            holds_it, BACK_WITHIN_S * self.patience, "no worker runs the driver: it is not on the cluster"
        )
        return min(workers - found), found.pop()

    def _is_back(self, name: str, again: int, check: str) -> bool:
        state = self._state()
        return state.again.get(name, 0) > again and name in state.services and is_ready(check)

    def _state(self) -> keeper.KeeperState:
        state = keeper.read_state(self.places)
        if state is None:
            raise WaitedTooLongError("the stack has no keeper")
        return state

    def _until_all_is_read(self, when: str) -> int:
        """Until the flights that were asked for have come, and the job has read them; its newest batch."""
        timeout_s = GOES_ON_WITHIN_S * self.patience
        self.airflow.wait(REPLAY_DAG, self.run_of_replay, timeout_s=timeout_s, meanwhile=self.check)
        seen: list[str] = []

        def all_is_read() -> bool:
            # S3 or Kafka may just have been killed, and the checkpoint may be one that was restored.
            try:
                broker = connect(self.stack.addresses.kafka, {}, ASK_TIMEOUT_S)
                topic = broker.topics([FLIGHTS_TOPIC])[FLIGHTS_TOPIC]
                partitions = topic.partitions if topic is not None else ()
                ends = broker.offsets([(FLIGHTS_TOPIC, one) for one in partitions], "latest")
                read = self.job.read_until()
            except (NotFoundError, StorageError) as error:
                seen[:] = [str(error)]
                return False
            seen[:] = [f"read up to {sorted(read.items())} of {sorted(ends.items())}"]
            return bool(read) and read == ends

        self._wait_until(all_is_read, timeout_s, f"the job does not go on {when}", seen)
        last = self.job.last_commit()
        return last.number if last else -1

    def _wait_until(
        self, holds: Callable[[], bool], within_s: float, problem: str, seen: list[str] | None = None
    ) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            self.check()
            if time.monotonic() > deadline:
                raise WaitedTooLongError(
                    f"{problem} within {within_s:.0f} s" + "".join(f": {one}" for one in seen or ())
                )
            time.sleep(0.2)

    def to_the_end(self) -> None:
        """The rest of the flights comes, then the record that closes all windows, and all rows are due."""
        with self.screen.step("The remaining flights arrive, and the job reads them") as step:
            self.let_flights_come(ALL, gap_ms=0)
            number = self._until_all_is_read("after the restore")
            step.detail = f"{self.fed} flights arrived in total, batch {number} is committed"
        conf = {"kafka": self.stack.addresses.kafka, "topic": FLIGHTS_TOPIC, "closing_only": True}
        self.run_of_replay = self.airflow.trigger(REPLAY_DAG, conf)
        Story.to_the_end(self)

    def judging_command(self, within_s: float) -> list[str]:
        """What compares the output with a batch computation over all that is in the topic."""
        return [
            *(sys.executable, str(ROOT / "spark_jobs" / "flights" / "expected.py"), "hourly_delays"),
            *("--kafka", self.stack.addresses.kafka, "--topic", FLIGHTS_TOPIC),
            *("--output", str(self.places.data / "output")),
            *("--watermark-hours", str(WATERMARK_HOURS), "--within", str(within_s)),
        ]

    def prove_the_replica(self) -> None:
        """Every savepoint that the savepoint DAG took is in the replica as well."""
        with self.screen.step("The replica on disk holds the savepoints that the savepoint DAG took") as step:
            replica = Repository.open(open_store(self.stack.places.replica))
            there = {one.savepoint for one in replica.manifests(JOB)}
            taken = {one.savepoint for one in self.report.savepoints if one.kind != AT_THE_STOP}
            missing = taken - there
            if missing:
                raise WaitedTooLongError(
                    f"these savepoints are missing in the replica: {', '.join(sorted(missing))}"
                )
            step.detail = f"{len(there)} savepoints"


def chapters(story: StackStory, keeper_pid: int) -> None:
    """The chapters in their order."""
    story.wait_for_airflow()
    story.start_the_job(rows_per_file=ROWS_AT_ONCE, gap_ms=GAP_MS)
    first = story.take_savepoint("The first savepoint, hot", "hot", FIRST_SAVEPOINT_AT)
    story.let_flights_come()
    story.take_savepoint("The second, incremental", "incremental", first.batch + SECOND_SAVEPOINT_AFTER)
    for what in KILLED:
        story.kill_and_bring_back(what)
    last = story.job.last_commit()
    story.let_flights_come()
    story.disaster((last.number if last else 0) + DISASTER_AFTER)
    story.restore()
    story.to_the_end()
    story.look_around(keeper_pid)
    story.stop_the_job()
    story.prove()
    story.prove_the_replica()
