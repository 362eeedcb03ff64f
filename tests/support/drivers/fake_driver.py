"""A driver without Spark: takes the lease, beats, obeys requests, commits batches. Started like the real one.

What it does stands in the application arguments of the launch spec; all around it is the real thing. It
commits one batch and then waits for a stop; with `--period-s` it goes on committing, into checkpoints of
which savepoints can be taken. A launch that redirects its queries is the copy of a drill: then it does what
one does, and writes down what came of it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streambank.checkpoint.replay import Replay, lay_plan
from streambank.control.control import JobControl
from streambank.control.keepalive import Keeper
from streambank.control.processes import ProcessId, this_process
from streambank.control.requests import STOP, Request
from streambank.core.errors import StreambankError
from streambank.core.shape import decode
from streambank.driver.spec import NOT_NEEDED, LaunchSpec, check_generations, decode_launch
from streambank.job.health import AwakeClock
from streambank.sites.standing import Deposed, check_launched_site
from streambank.storage import local_path, open_store
from streambank_spark.runner.site_watch import SiteWatch, leave_deposed
from streambank_spark.runner.superseded import check_not_superseded, exit_code, take_lease
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint


class FakeDriver:
    """What a driver is to the records of its job: it takes the lease, beats, and obeys a stop.

    It may be a separate process, as below, or a thread (tests/support/drivers/cluster_drivers.py).

    Raises:
        RefusedError: Somebody holds the lease (code `lease-held`).
    """

    def __init__(self, spec: LaunchSpec, control: JobControl, process: ProcessId) -> None:
        self.spec = spec
        self.control = control
        self.claim = take_lease(spec, control, [process])

    def begin(
        self,
        status: Callable[[], Mapping[str, object]],
        on_lost: Callable[[str], None] | None = None,
        ponder_s: float = 0.0,
    ) -> None:
        """Beat, and look whether it still is wanted, after a while.

        Raises:
            StreambankError: It is not; the lease is free again.
        """
        self.keeper = Keeper(self.claim, on_lost=on_lost, status=status).start()
        time.sleep(ponder_s)
        try:
            check_generations(self.spec, self.control)
            check_not_superseded(self.spec, self.control, self.claim)
            check_launched_site(self.spec, self.control)
        except StreambankError:
            self.keeper.stop()
            self.claim.release("refused")
            raise

    def stops(self) -> list[Request]:
        return [one for one in self.control.requests.open(self.claim.epoch) if one.kind == STOP]

    def end(self, exit_code: int = 0) -> None:
        self.keeper.stop()
        self.claim.release("released", exit_code=exit_code)


def main() -> int:
    folder, _, name = sys.argv[sys.argv.index("--launch") + 1].rpartition("/")
    spec = decode_launch(open_store(folder).read(name))
    options = parser().parse_args(spec.args)
    print(f"fake driver {os.getpid()} of {spec.launch_id}", flush=True)
    time.sleep(options.boot_s)
    while options.boot_until is not None and not options.boot_until.exists():
        time.sleep(0.02)
    if spec.held_by is not None:
        # Loads PySpark, which takes twice as long as all else that hundreds of these drivers load.
        from streambank_spark.runner.held import NotNeededError, until_released

        try:
            spec = until_released(spec, spec.control_of_job())
        except NotNeededError as reason:
            spec.control_of_job().record_event(NOT_NEEDED, launch_id=spec.launch_id, why=str(reason))
            os.kill(os.getpid(), signal.SIGKILL)
    if options.die_before_lease is not None:
        print(*options.last_words.split("|"), sep="\n", flush=True)
        return int(options.die_before_lease)
    try:
        role = "python" if options.lingers is None else "jvm"  # which ends after it
        driver = FakeDriver(spec, spec.control_of_job(), this_process(role))
        work = kind_of_work(spec, options)(driver, options)
        driver.begin(work.status, on_lost=lambda why: os.kill(os.getpid(), 9), ponder_s=options.ponder_s)
    except StreambankError as error:
        print(f"streambank: {error.message}", flush=True)
        return exit_code(spec, error)
    if options.fail is not None:
        driver.control.record_event("query-ended", launch_id=spec.launch_id, failure=options.fail)
    if options.die_after_lease is not None:
        os._exit(options.die_after_lease)
    driver.control.record_event("driver-started", launch_id=spec.launch_id, epoch=driver.claim.epoch)
    if (code := options.without_query) is not None:
        print("FileNotFoundError: no such folder: orders", flush=True)
        facts = {"launch_id": spec.launch_id, "exit_code": code, "batches": {}, "failed": {}}
        driver.control.record_event("driver-ended", **facts)
        driver.end(code)
        return int(code)
    code = 8 if options.refused else 0
    watch = SiteWatch(spec, driver.control, lambda found: be_deposed(driver, found))
    watch.start()
    work.run()
    watch.stop()
    driver.end(code)
    while options.lingers is not None and not options.lingers.exists():
        time.sleep(0.02)
    return code


def be_deposed(driver: FakeDriver, found: Deposed) -> None:
    """Another site is the active one: be gone, as the real one."""
    leave_deposed(driver.control, found, driver.control.record_event)
    os.kill(os.getpid(), 9)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser()
    found.add_argument("--boot-s", type=float, default=0.0)
    found.add_argument("--ponder-s", type=float, default=0.0, help="between its lease and its last checks")
    found.add_argument("--boot-until", type=Path, help="a file somebody will make")
    found.add_argument("--stop-after-commit", action="store_true", help="SIGSTOP before the first heartbeat")
    found.add_argument("--die-before-lease", type=int)
    found.add_argument("--die-after-lease", type=int)
    found.add_argument("--fail", help="record this as the failure of its query")
    found.add_argument("--last-words", default="it does not feel well")
    found.add_argument("--run-to-end", action="store_true")
    found.add_argument("--never-trigger", action="store_true")
    found.add_argument("--refused", action="store_true", help="with the first batch, as at a second query")
    found.add_argument("--failed", help="a query that fails in its first batch, while the others go on")
    found.add_argument("--without-query", type=int, help="end with this code, and no query was started")
    found.add_argument("--deaf", action="store_true")
    found.add_argument("--forced", action="store_true")
    found.add_argument("--lingers", type=Path, help="a file: stay until it is there")
    found.add_argument("--still-s", type=float, help="say that there has been no progress for so long")
    found.add_argument("--first", action="store_true", help="say that its first batch still runs")
    found.add_argument("--recovers", type=Path, help="a file: where it is, there is progress again")
    found.add_argument("--period-s", type=float, help="commit a batch so often, until it is asked to stop")
    found.add_argument("--batches", type=int, default=10**9, help="with a period: end after so many")
    found.add_argument("--dies", type=Path, help="a file: after as many batches end as by kill -9")
    found.add_argument("--differs", type=Path, help="a file: where it is, a copy computes something else")
    found.add_argument("--hangs", type=Path, help="a file: after as many batches commit no more")
    return found


class Work:
    """What a driver does between its start and its end."""

    def __init__(self, driver: FakeDriver, options: argparse.Namespace) -> None:
        self.driver = driver
        self.spec = driver.spec
        self.options = options
        self.control = driver.control
        self.claim = driver.claim

    def status(self) -> Mapping[str, object]:
        raise NotImplementedError

    def run(self) -> None:
        """Work until it is asked to stop, and answer that."""
        raise NotImplementedError

    def note(self, kind: str, **facts: Any) -> None:
        self.control.record_event(kind, launch_id=self.spec.launch_id, epoch=self.claim.epoch, **facts)


class CommitsOnce(Work):
    """One batch of each query, with logs alone; then it waits."""

    queries: Mapping[str, Any] = {}

    def status(self) -> Mapping[str, object]:
        status = {"state": "running", "queries": self.queries}
        if self.options.refused:
            status["application"] = "starting"
        options = self.options
        if options.still_s is None:
            return status
        still_s = 0.0 if options.recovers is not None and options.recovers.exists() else options.still_s
        about = {
            name: {
                "batch": -1 if options.first or not self.queries else 0,
                "still_s": still_s,
                "trigger_s": 0.0,
            }
            for name in self.spec.queries
        }
        return {**status, "still_s": still_s, "queries": about}

    def run(self) -> None:
        triggered = not self.options.never_trigger
        for name, query in self.spec.queries.items() if triggered else ():
            if name == self.options.failed:
                continue
            folder = local_path(query.checkpoint)
            assert folder is not None
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / "metadata").exists():
                (folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
            for log in ("offsets", "commits"):
                (folder / log).mkdir(exist_ok=True)
                number = len(list((folder / log).iterdir()))
                (folder / log / str(number)).write_text("v1\n{}")
        if self.options.stop_after_commit:
            os.kill(os.getpid(), signal.SIGSTOP)
        self.queries = {name: {"batch": -1, "triggered": triggered} for name in self.spec.queries}
        if (failed := self.options.failed) is not None:
            self.queries = {**self.queries, failed: {"batch": -1, "over": True, "failed": True}}
            self.note("query-ended", query=failed, failure="ValueError: what is this")
        ends = self.options.run_to_end
        if self.options.refused:
            time.sleep(5 * self.spec.beat_s)  # a heartbeat shows the first batch
            print("streambank.core.errors.RefusedError: the second query is not declared", flush=True)
            ends = True
        while not ends:
            for request in self.driver.stops():
                if not self.options.deaf:
                    drained = {"drained": True} if request.options.get("drain") else {}
                    how = "forced" if self.options.forced else "stopped"
                    self.control.requests.answer(request.number, how, exit_code=0, **drained)
                    ends = True
            time.sleep(0.05)


class KeepsCommitting(Work):
    """Batch after batch, into checkpoints as Spark writes them.

    While it hangs it beats, and does what it is asked.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.checkpoints = {name: go_on(query.checkpoint) for name, query in self.spec.queries.items()}
        self.seen: dict[str, dict[str, float]] = {
            name: {"batch": -1, "triggered": False} for name in self.checkpoints
        }
        self.awake = AwakeClock()
        self.moved = self.awake.now()

    def status(self) -> Mapping[str, object]:
        still = {"still_s": self.awake.now() - self.moved}
        queries = {name: one | still for name, one in self.seen.items()}
        return {"state": "running", **still, "queries": queries}

    def run(self) -> None:
        asked = None
        done = 0
        while asked is None and done < self.options.batches:
            if _is_due(self.options.hangs, done):
                print("java.lang.IllegalStateException: stuck with password=hunter2", flush=True)
            elif _is_due(self.options.dies, done):
                print(*self.options.last_words.split("|"), sep="\n", flush=True)
                os._exit(9)
            else:
                self.commit(first=done == 0)
                done += 1
            time.sleep(self.options.period_s)
            asked = next(iter(self.driver.stops()), None)
        if asked is not None:
            self.note("stop-asked", request=asked.number)
            self.control.requests.answer(asked.number, "stopped", exit_code=0)

    def commit(self, *, first: bool) -> None:
        for name, checkpoint in self.checkpoints.items():
            checkpoint.run(1)
            if first:
                facts = {
                    "epoch": self.claim.epoch,
                    "generation": self.spec.queries[name].generation,
                    "query_id": checkpoint.query_id,
                    "sink": "ConsoleTable",  # such a query writes nothing anywhere
                }
                self.control.record_query(name, facts)
            self.seen[name] = {"batch": checkpoint.last, "triggered": True}
            self.moved = self.awake.now()


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
        checkpoint, plans = self.checkpoints[name], open_store(replay.plans)
        differs = self.options.differs is not None and self.options.differs.exists()
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
"""What it says of each part of its state."""


def kind_of_work(spec: LaunchSpec, options: argparse.Namespace) -> type[CommitsOnce | KeepsCommitting]:
    if any(query.redirect is not None for query in spec.queries.values()):
        return ExecutesAgain
    return CommitsOnce if options.period_s is None else KeepsCommitting


def _is_due(file: Path | None, done: int) -> bool:
    return file is not None and file.exists() and done >= int(file.read_text())


def go_on(location: str) -> LiveCheckpoint:
    """The checkpoint at a location, at its last committed batch."""
    store = open_store(location)
    checkpoint = LiveCheckpoint(store, retain=20)
    if store.exists("metadata"):
        checkpoint.query_id = json.loads(store.read("metadata"))["id"]
        checkpoint.next_batch = max((int(each) for each in store.names("commits")), default=-1) + 1
    return checkpoint


if __name__ == "__main__":
    sys.exit(main())
