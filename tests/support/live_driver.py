"""A driver without Spark that keeps committing batches into checkpoints of which savepoints can be taken.

Started like the real one; what it does stands in the application arguments of the launch spec. `dies` is a
file: where it exists, its number of batches is committed and the process ends at once, as by kill -9. `hangs`
is such a file, too: from then on no batch comes, while the process beats, and does what it is asked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from streambank.job.awake import AwakeClock
from streambank.job.generations import MAIN
from streambank.job.keeper import Keeper
from streambank.job.launch import decode_launch
from streambank.job.processes import this_process
from streambank.storage import open_store
from tests.support.live_checkpoint import LiveCheckpoint


def main() -> int:
    spec = decode_launch(Path(sys.argv[sys.argv.index("--launch") + 1]).read_bytes())
    parser = argparse.ArgumentParser()
    parser.add_argument("--dies", type=Path)
    parser.add_argument("--hangs", type=Path)
    parser.add_argument("--batches", type=int, default=10**9)
    parser.add_argument("--period-s", type=float, default=0.1)
    options = parser.parse_args(spec.args)
    print(f"live driver {os.getpid()} of {spec.launch_id}", flush=True)
    control = spec.control_of_job()
    claim = control.lease.acquire(
        [this_process("python")],
        beat_s=spec.beat_s,
        ttl_s=spec.ttl_s,
        details={"launch_id": spec.launch_id, "by": dict(spec.by)},
    )
    checkpoints = {name: go_on(query.checkpoint) for name, query in spec.queries.items()}
    seen: dict[str, dict[str, float]] = {name: {"batch": -1, "triggered": False} for name in checkpoints}
    awake = AwakeClock()
    moved = awake.now()

    def say() -> dict[str, object]:
        still = {"still_s": awake.now() - moved}
        return {"state": "running", **still, "queries": {name: one | still for name, one in seen.items()}}

    keeper = Keeper(claim, on_lost=lambda why: os.kill(os.getpid(), 9), status=say).start()
    control.record_event("driver-started", launch_id=spec.launch_id, epoch=claim.epoch)
    asked = None
    done = 0
    while asked is None and done < options.batches:
        if options.hangs is not None and options.hangs.exists() and done >= int(options.hangs.read_text()):
            print("java.lang.IllegalStateException: stuck with password=hunter2", flush=True)
            time.sleep(options.period_s)
            asked = next(iter(control.requests.open(claim.epoch)), None)
            continue
        if options.dies is not None and options.dies.exists() and done >= int(options.dies.read_text()):
            print("it does not feel well", flush=True)
            os._exit(9)
        for name, checkpoint in checkpoints.items():
            checkpoint.run(1)
            if done == 0:
                generation = spec.queries[name].generation
                facts = {"epoch": claim.epoch, "generation": generation, "query_id": checkpoint.query_id}
                control.record_query(None if name == MAIN else name, facts)
            seen[name] = {"batch": checkpoint.last, "triggered": True}
            moved = awake.now()
        done += 1
        time.sleep(options.period_s)
        asked = next(iter(control.requests.open(claim.epoch)), None)
    if asked is not None:
        control.record_event("stop-asked", launch_id=spec.launch_id, epoch=claim.epoch, request=asked.number)
        control.requests.answer(asked.number, "stopped", exit_code=0)
    keeper.stop()
    claim.release("released", exit_code=0)
    return 0


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
