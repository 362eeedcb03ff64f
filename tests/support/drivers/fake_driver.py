"""The driver that stands in for Spark (streambank_spark/stand_in), with faults that only this suite needs.

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streambank.control.processes import this_process
from streambank.core.errors import StreambankError
from streambank.storage import local_path
from streambank_spark.runner.superseded import exit_code
from streambank_spark.stand_in.driver import (
    KeepsCommitting,
    StandIn,
    kind_of_work,
    launched,
    when_released,
    work_until_over,
)
from streambank_spark.stand_in.told import Told


def main() -> int:
    spec = launched(sys.argv)
    options = parser().parse_args(spec.args)
    print(f"fake driver {os.getpid()} of {spec.launch_id}", flush=True)
    time.sleep(options.boot_s)
    while options.boot_until is not None and not options.boot_until.exists():
        time.sleep(0.02)
    spec = when_released(spec)
    if options.die_before_lease is not None:
        print(*options.last_words.split("|"), sep="\n", flush=True)
        return int(options.die_before_lease)
    try:
        role = "python" if options.lingers is None else "jvm"  # which ends after it
        driver = Ponders(spec, spec.control_of_job(), this_process(role))
        driver.ponder_s = options.ponder_s
        work = work_of(driver, options)
        driver.begin(work.status, on_lost=lambda why: os.kill(os.getpid(), 9))
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
    work_until_over(driver, work)
    driver.end(code)
    while options.lingers is not None and not options.lingers.exists():
        time.sleep(0.02)
    return code


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
    found.add_argument("--batches", type=int, help="with a period: end after so many")
    found.add_argument("--dies", type=Path, help="a file: after as many batches end as by kill -9")
    found.add_argument("--differs", type=Path, help="a file: where it is, a copy computes something else")
    found.add_argument("--hangs", type=Path, help="a file: after as many batches commit no more")
    return found


class Ponders(StandIn):
    """It has the lease for a while before it looks whether it still is wanted."""

    ponder_s = 0.0

    def check_wanted(self) -> None:
        time.sleep(self.ponder_s)
        super().check_wanted()


class CommitsOnce(KeepsCommitting):
    """One batch of each query, with logs alone; then it waits."""

    queries: Mapping[str, Any] = {}

    def __init__(self, driver: StandIn, options: argparse.Namespace) -> None:
        super().__init__(driver, lambda: told(options))
        self.options = options

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


def told(options: argparse.Namespace) -> Told:
    """What its options say, and the files that they name."""

    def number(file: Path | None) -> int | None:
        return int(file.read_text()) if file is not None and file.exists() else None

    dies, hangs = number(options.dies), number(options.hangs)
    words = HANGING if hangs is not None else options.last_words.replace("|", "\n")
    return Told(
        period_s=options.period_s or 0.0,
        batches=options.batches,
        dies_after=dies,
        hangs_after=hangs,
        last_words=words,
        state_rows=None,
        differs=options.differs is not None and options.differs.exists(),
    )


HANGING = "java.lang.IllegalStateException: stuck with password=hunter2"


def work_of(driver: StandIn, options: argparse.Namespace) -> KeepsCommitting:
    kind = kind_of_work(driver.spec)
    if kind is KeepsCommitting and options.period_s is None:
        return CommitsOnce(driver, options)
    return kind(driver, lambda: told(options))


if __name__ == "__main__":
    sys.exit(main())
