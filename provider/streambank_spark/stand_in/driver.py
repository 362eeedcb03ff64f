"""A driver without Spark: takes the lease, beats, commits batches, obeys requests. Started like the real one.

What it does besides is told by a file (told.py); its checkpoints are such that savepoints can be taken of
them. A launch that redirects its queries is the copy of a drill or of an upgrade's rehearsal: then it does
what one does, and writes down what came of it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from streambank.checkpoint.replay import Replay, lay_plan
from streambank.control.control import JobControl
from streambank.control.keepalive import Keeper
from streambank.control.processes import ProcessId, this_process
from streambank.control.progress import ProgressWriter
from streambank.control.requests import STOP, Request
from streambank.core.errors import StreambankError
from streambank.core.shape import decode
from streambank.core.units import from_epoch_ms, to_json_time, utc_now
from streambank.driver.spec import NOT_NEEDED, LaunchSpec, check_generations, decode_launch
from streambank.job.health import AwakeClock
from streambank.sites.standing import Deposed, check_launched_site
from streambank.storage import open_store
from streambank_spark.runner.site_watch import SiteWatch, leave_deposed
from streambank_spark.runner.superseded import check_not_superseded, exit_code, take_lease
from streambank_spark.runner.until_released import NotNeededError, until_released
from streambank_spark.stand_in.checkpoint import LiveCheckpoint, go_on
from streambank_spark.stand_in.told import Told, read_told


class StandIn:
    """What a driver is to the records of its job: it takes the lease, beats, and obeys a stop.

    It may be a separate process, as below, or a thread.

    Raises:
        RefusedError: Somebody holds the lease (code `lease-held`).
    """

    def __init__(self, spec: LaunchSpec, control: JobControl, process: ProcessId) -> None:
        self.spec = spec
        self.control = control
        self.claim = take_lease(spec, control, [process])

    def begin(
        self, status: Callable[[], Mapping[str, object]], on_lost: Callable[[str], None] | None = None
    ) -> None:
        """Beat, and look whether it still is wanted.

        Raises:
            StreambankError: It is not; the lease is free again.
        """
        self.keeper = Keeper(self.claim, on_lost=on_lost, status=status).start()
        try:
            self.check_wanted()
        except StreambankError:
            self.keeper.stop()
            self.claim.release("refused")
            raise

    def check_wanted(self) -> None:
        """Look whether it still is wanted."""
        check_generations(self.spec, self.control)
        check_not_superseded(self.spec, self.control, self.claim)
        check_launched_site(self.spec, self.control)

    def stops(self) -> list[Request]:
        """The stops that nobody has answered."""
        return [one for one in self.control.requests.open(self.claim.epoch) if one.kind == STOP]

    def end(self, exit_code: int = 0) -> None:
        """Give the lease back."""
        self.keeper.stop()
        self.claim.release("released", exit_code=exit_code)


class KeepsCommitting:
    """What a driver does from start to end: batch after batch, into checkpoints as Spark writes them.

    While it hangs it beats, and does what it is asked.
    """

    def __init__(self, driver: StandIn, told: Callable[[], Told]) -> None:
        self.driver = driver
        self.spec = driver.spec
        self.control = driver.control
        self.claim = driver.claim
        self.told = told
        self.checkpoints = {name: go_on(query.checkpoint) for name, query in self.spec.queries.items()}
        self.progress = {
            name: ProgressWriter(self.control.store, name, epoch=self.claim.epoch)
            for name in self.checkpoints
        }
        self.seen: dict[str, dict[str, float]] = {
            name: {"batch": -1, "triggered": False} for name in self.checkpoints
        }
        self.awake = AwakeClock()
        self.moved = self.awake.now()

    def status(self) -> Mapping[str, object]:
        """What goes with each heartbeat."""
        still = {"still_s": self.awake.now() - self.moved}
        queries = {name: one | still for name, one in self.seen.items()}
        return {"state": "running", **still, "queries": queries}

    def run(self) -> None:
        """Work until it is asked to stop, and answer that."""
        asked = None
        done = 0
        while asked is None and not _is_due((told := self.told()).batches, done):
            if _is_due(told.hangs_after, done):
                print(told.last_words, flush=True)
            elif _is_due(told.dies_after, done):
                print(told.last_words, flush=True)
                os._exit(9)
            else:
                self.commit(told, first=done == 0)
                done += 1
            time.sleep(told.period_s)
            asked = next(iter(self.driver.stops()), None)
        if asked is not None:
            self.note("stop-asked", request=asked.number)
            self.control.requests.answer(asked.number, "stopped", exit_code=0)

    def note(self, kind: str, **facts: Any) -> None:
        """Leave an event among the job's records."""
        self.control.record_event(kind, launch_id=self.spec.launch_id, epoch=self.claim.epoch, **facts)

    def commit(self, told: Told, *, first: bool) -> None:
        """Commit one batch of each query."""
        for name, checkpoint in self.checkpoints.items():
            began = time.monotonic()
            checkpoint.watermark_ms = told.watermark_ms
            checkpoint.run(1)
            if first:
                facts = {
                    "epoch": self.claim.epoch,
                    "launch_id": self.spec.launch_id,
                    "generation": self.spec.queries[name].generation,
                    "query_id": checkpoint.query_id,
                    "sink": "ConsoleTable",  # such a query writes nothing anywhere
                }
                self.control.record_query(name, facts)
            if told.state_rows is not None:
                self.progress[name].add(self.measured(checkpoint, told, time.monotonic() - began))
                self.progress[name].flush()
            self.seen[name] = {"batch": checkpoint.last, "triggered": True}
            self.moved = self.awake.now()

    def measured(self, checkpoint: LiveCheckpoint, told: Told, took_s: float) -> dict[str, Any]:
        """What Spark would say of the batch that was committed last."""
        took_ms = round(took_s * 1000)
        reached = None if checkpoint.watermark_ms is None else from_epoch_ms(checkpoint.reached_ms or 0)
        tasks = {"commitTimeMs": took_ms, "numShufflePartitions": 2, "memoryUsedBytes": 400}
        rows = {"numRowsTotal": told.state_rows, "numRowsUpdated": 1, "numRowsDroppedByWatermark": 0}
        return {
            "id": checkpoint.query_id,
            "runId": self.spec.launch_id,
            "timestamp": to_json_time(utc_now()),
            "batchId": checkpoint.last,
            "numInputRows": 7,
            "durationMs": {
                "triggerExecution": took_ms,
                "addBatch": took_ms,
                "walCommit": 0,
                "commitOffsets": 0,
            },
            "eventTime": {} if reached is None else {"watermark": to_json_time(reached)},
            "stateOperators": [{"operatorName": "stateStoreSave", **tasks, **rows, "customMetrics": {}}],
            "sources": [],
        }


class ExecutesAgain(KeepsCommitting):
    """A copy: it opens its state, and executes the live query's batches. Without any it goes on by itself."""

    def run(self) -> None:
        for name, checkpoint in self.checkpoints.items():
            self.note("copy-state-read", query=name, seconds=0.01, batch=checkpoint.last, parts=_STATE)
        replays = {
            name: decode(Replay, one.replay, "launch spec")
            for name, one in self.spec.queries.items()
            if one.replay is not None
        }
        for name, replay in replays.items():
            self.execute(name, replay)
        if len(replays) < len(self.checkpoints):
            super().run()

    def execute(self, name: str, replay: Replay) -> None:
        """Execute the batches of one query, and say what came out."""
        checkpoint, plans = self.checkpoints[name], open_store(replay.plans)
        differs = self.told().differs
        for batch in replay.batches:
            lay_plan(plans, checkpoint.store, batch)
            checkpoint.next_batch = batch
            checkpoint.commit()
            output = {"rows": 7, "live_rows": 7, "only_copy": int(differs), "only_live": int(differs)}
            self.note("copy-batch", query=name, batch=batch, seconds=0.01, input_rows=7, output=output)
        both = {"copy": {"parts": _STATE}, "live": {"parts": _STATE}}
        self.note("copy-state-compared", query=name, batch=replay.batches[-1], **both)
        self.note("copy-done", query=name, batches=list(replay.batches))


_STATE = [{"rows": 3}]
"""What a copy says of each part of its state."""


def kind_of_work(spec: LaunchSpec) -> type[KeepsCommitting]:
    """What a launch is for."""
    return (
        ExecutesAgain if any(one.redirect is not None for one in spec.queries.values()) else KeepsCommitting
    )


def launched(arguments: list[str]) -> LaunchSpec:
    """The launch that a driver's arguments name."""
    folder, _, name = arguments[arguments.index("--launch") + 1].rpartition("/")
    return decode_launch(open_store(folder).read(name))


def when_released(spec: LaunchSpec) -> LaunchSpec:
    """A launch as it stands when it may run; a driver that waits and is not needed ends here, as it does."""
    if spec.held_by is None:
        return spec
    try:
        return until_released(spec, spec.control_of_job())
    except NotNeededError as reason:
        spec.control_of_job().record_event(NOT_NEEDED, launch_id=spec.launch_id, why=str(reason))
        os.kill(os.getpid(), signal.SIGKILL)
        raise


def work_until_over(driver: StandIn, work: KeepsCommitting) -> None:
    """Work, and be gone where another site becomes the active one, as the real driver."""

    def be_deposed(found: Deposed) -> None:
        leave_deposed(driver.control, found, driver.control.record_event)
        os.kill(os.getpid(), signal.SIGKILL)

    watch = SiteWatch(driver.spec, driver.control, be_deposed)
    watch.start()
    work.run()
    watch.stop()


def main(arguments: list[str]) -> int:
    """Run as the driver that a launch asks for, told by the file of its job in a folder.

    Args:
        arguments: The folder, and what the runner's entry gets.

    Returns:
        The exit code.
    """
    spec = launched(arguments)
    told = partial(read_told, Path(arguments[0]) / f"{spec.job}.json")
    print(f"stand-in of {spec.launch_id}", flush=True)
    spec = when_released(spec)
    if (error := told().cannot_start) is not None:
        print(error, flush=True)
        return 1
    try:
        driver = StandIn(spec, spec.control_of_job(), this_process("python"))
        work = kind_of_work(spec)(driver, told)
        driver.begin(work.status, on_lost=lambda why: os.kill(os.getpid(), signal.SIGKILL))
    except StreambankError as refused:
        print(f"streambank: {refused.message}", flush=True)
        return exit_code(spec, refused)
    driver.control.record_event("driver-started", launch_id=spec.launch_id, epoch=driver.claim.epoch)
    work_until_over(driver, work)
    driver.end()
    return 0


def _is_due(after: int | None, done: int) -> bool:
    return after is not None and done >= after


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
