"""A driver without Spark that keeps committing batches into a checkpoint of which savepoints can be taken.

Started like the real one; what it does stands in the application arguments of the launch spec. `dies` is a
file: where it exists, its number of batches is committed and the process ends at once, as by kill -9.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from streambank.job.keeper import Keeper
from streambank.job.launch import decode_launch
from streambank.job.processes import this_process
from streambank.storage import open_store
from tests.support.live_checkpoint import LiveCheckpoint


def main() -> int:
    spec = decode_launch(Path(sys.argv[sys.argv.index("--launch") + 1]).read_bytes())
    parser = argparse.ArgumentParser()
    parser.add_argument("--dies", type=Path)
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
    ((name, query),) = spec.queries.items()
    store = open_store(query.checkpoint)
    checkpoint = LiveCheckpoint(store, retain=20)
    if store.exists("metadata"):
        checkpoint.query_id = json.loads(store.read("metadata"))["id"]
        checkpoint.next_batch = max((int(each) for each in store.names("commits")), default=-1) + 1
    status = {"state": "running", "queries": {name: {"batch": -1, "triggered": False}}}
    keeper = Keeper(claim, on_lost=lambda why: os.kill(os.getpid(), 9), status=lambda: status).start()
    control.record_event("driver-started", launch_id=spec.launch_id, epoch=claim.epoch)
    asked = None
    first = checkpoint.next_batch
    while asked is None and checkpoint.next_batch - first < options.batches:
        done = checkpoint.next_batch - first
        if options.dies is not None and options.dies.exists() and done >= int(options.dies.read_text()):
            print("it does not feel well", flush=True)
            os._exit(9)
        checkpoint.run(1)
        if checkpoint.last == first:
            control.record_query(
                None, {"epoch": claim.epoch, "generation": query.generation, "query_id": checkpoint.query_id}
            )
        status["queries"] = {name: {"batch": checkpoint.last, "triggered": True}}
        time.sleep(options.period_s)
        asked = next(iter(control.requests.open(claim.epoch)), None)
    if asked is not None:
        control.record_event("stop-asked", launch_id=spec.launch_id, epoch=claim.epoch, request=asked.number)
        control.requests.answer(asked.number, "stopped", exit_code=0)
    keeper.stop()
    claim.release("released", exit_code=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
