"""The demo's story on the stack: the same disaster, with parts killed and brought back before it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field

from demo import keeper, processes
from demo.job import WaitedTooLongError
from demo.ready import is_ready
from demo.report import Fault
from demo.stack.places import REPOSITORY
from demo.stack.whole import Stack
from demo.story import AT_THE_STOP, JOB, Story
from streambank.savepoint.repository import Repository
from streambank.storage import open_store

PATIENCE = 3.0  # every batch on S3 costs some hundred requests
ROWS_PER_FILE = 12_000
FILES_MS = 3000
FIRST_SAVEPOINT_AT = 2
SECOND_SAVEPOINT_AFTER = 2
DISASTER_AFTER = 2
GOES_ON_AFTER = 2
"""How many batches have to be committed after a part was brought back."""
BACK_WITHIN_S = 180.0
GOES_ON_WITHIN_S = 420.0
KILLED = ("spark-worker-1", "s3", "kafka")


@dataclass(slots=True)
class StackStory(Story):
    """Tells the story of one stack; every chapter leaves its figures in the report.

    Attributes:
        stack: What runs.
    """

    stack: Stack = field(kw_only=True)

    @property
    def repository(self) -> str:
        """Where the savepoints are: in the stack's S3."""
        return REPOSITORY

    def kill_and_bring_back(self, name: str) -> None:
        """Kill a part without warning; wait until its keeper has brought it back and the job goes on."""
        part = self.stack.part(name)
        with self.screen.step(f"{name} is killed (-9), and brought back") as step:
            before = self.job.last_commit()
            state = self._state()
            process = processes.look_at(state.services[name])
            if process is None:
                raise WaitedTooLongError(f"{name} does not run: there is nothing to kill")
            killed_at = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)
            deadline = killed_at + BACK_WITHIN_S * self.patience
            while not self._is_back(name, state.again.get(name, 0), part.ready):
                self.check()
                if time.monotonic() > deadline:
                    raise WaitedTooLongError(f"{name} was not brought back")
                time.sleep(0.2)
            away_s = time.monotonic() - killed_at
            number = (before.number if before else -1) + GOES_ON_AFTER
            last = self.job.wait_for_batch(
                number, timeout_s=GOES_ON_WITHIN_S * self.patience, meanwhile=self.check
            )
            goes_on_s = time.monotonic() - killed_at
            self.report.faults.append(Fault(name, round(away_s, 1), round(goes_on_s, 1), last.number))
            step.detail = f"pid {process.pid} was away for {away_s:.1f} s; batch {last.number} is committed"

    def _is_back(self, name: str, again: int, check: str) -> bool:
        state = self._state()
        return state.again.get(name, 0) > again and name in state.services and is_ready(check)

    def _state(self) -> keeper.KeeperState:
        state = keeper.read_state(self.places)
        if state is None:
            raise WaitedTooLongError("the stack has no keeper")
        return state

    def prove_the_replica(self) -> None:
        """Every savepoint that the savepoint DAG took is in the replica as well."""
        with self.screen.step("The replica on the disk holds what the savepoint DAG took") as step:
            replica = Repository.open(open_store(self.stack.places.replica))
            there = {one.savepoint for one in replica.manifests(JOB)}
            taken = {one.savepoint for one in self.report.savepoints if one.kind != AT_THE_STOP}
            missing = taken - there
            if missing:
                raise WaitedTooLongError(f"the replica lacks {', '.join(sorted(missing))}")
            step.detail = f"{len(there)} savepoints"


def chapters(story: StackStory, keeper_pid: int) -> None:
    """The chapters in their order."""
    story.wait_for_airflow()
    story.start_the_job(rows_per_file=ROWS_PER_FILE, gap_ms=FILES_MS)
    first = story.take_savepoint("The first savepoint, hot", "hot", FIRST_SAVEPOINT_AT)
    story.take_savepoint("The second, incremental", "incremental", first.batch + SECOND_SAVEPOINT_AFTER)
    for name in KILLED:
        story.kill_and_bring_back(name)
    last = story.job.last_commit()
    story.disaster((last.number if last else 0) + DISASTER_AFTER)
    story.restore()
    story.to_the_end()
    story.look_around(keeper_pid)
    story.stop_the_job()
    story.prove()
    story.prove_the_replica()
