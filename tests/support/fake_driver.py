"""A driver without Spark: takes the lease, beats, obeys requests, commits batches. Started like the real one.

What it does stands in the application arguments of the launch spec; all around it is the real thing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from streambank.errors import StreambankError
from streambank.job.keeper import Keeper
from streambank.job.launch import check_generations, decode_launch
from streambank.job.processes import this_process
from streambank.storage import local_path


def main() -> int:
    spec = decode_launch(Path(sys.argv[sys.argv.index("--launch") + 1]).read_bytes())
    parser = argparse.ArgumentParser()
    parser.add_argument("--boot-s", type=float, default=0.0)
    parser.add_argument("--boot-until", type=Path, help="a file somebody will make")
    parser.add_argument("--stop-after-commit", action="store_true", help="SIGSTOP before the first heartbeat")
    parser.add_argument("--die-before-lease", type=int)
    parser.add_argument("--die-after-lease", type=int)
    parser.add_argument("--fail", help="record this as the failure of its query")
    parser.add_argument("--last-words", default="it does not feel well")
    parser.add_argument("--run-to-end", action="store_true")
    parser.add_argument("--never-trigger", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--forced", action="store_true")
    parser.add_argument("--still-s", type=float, help="say that there has been no progress for so long")
    parser.add_argument("--first", action="store_true", help="say that its first batch still runs")
    parser.add_argument("--recovers", type=Path, help="a file: where it is, there is progress again")
    options = parser.parse_args(spec.args)
    print(f"fake driver {os.getpid()} of {spec.launch_id}", flush=True)
    time.sleep(options.boot_s)
    while options.boot_until is not None and not options.boot_until.exists():
        time.sleep(0.02)
    if options.die_before_lease is not None:
        print(*options.last_words.split("|"), sep="\n", flush=True)
        return int(options.die_before_lease)
    control = spec.control_of_job()
    try:
        claim = control.lease.acquire(
            [this_process("python")],
            beat_s=spec.beat_s,
            ttl_s=spec.ttl_s,
            details={"launch_id": spec.launch_id, "by": dict(spec.by)},
        )
    except StreambankError as error:
        print(f"streambank: {error.message}", flush=True)
        return error.exit_code
    check_generations(spec, control)
    status: dict[str, object] = {"state": "running", "queries": {}}

    def say() -> dict[str, object]:
        if options.still_s is None:
            return status
        still_s = 0.0 if options.recovers is not None and options.recovers.exists() else options.still_s
        about = {
            name: {"batch": -1 if options.first else 0, "still_s": still_s, "trigger_s": 0.0}
            for name in spec.queries
        }
        return {**status, "still_s": still_s, "queries": about}

    keeper = Keeper(claim, on_lost=lambda why: os.kill(os.getpid(), 9), status=say).start()
    if options.fail is not None:
        control.record_event("query-ended", launch_id=spec.launch_id, failure=options.fail)
    if options.die_after_lease is not None:
        os._exit(options.die_after_lease)
    control.record_event("driver-started", launch_id=spec.launch_id, epoch=claim.epoch)
    triggered = not options.never_trigger
    for query in spec.queries.values() if triggered else ():
        folder = local_path(query.checkpoint)
        assert folder is not None
        for log in ("offsets", "commits"):
            (folder / log).mkdir(parents=True, exist_ok=True)
            number = len(list((folder / log).iterdir()))
            (folder / log / str(number)).write_text("v1\n{}")
    if options.stop_after_commit:
        os.kill(os.getpid(), signal.SIGSTOP)
    status["queries"] = {name: {"batch": -1, "triggered": triggered} for name in spec.queries}
    while not options.run_to_end:
        for request in control.requests.open(claim.epoch):
            if not options.deaf:
                drained = {"drained": True} if request.options.get("drain") else {}
                control.requests.answer(
                    request.number, "forced" if options.forced else "stopped", exit_code=0, **drained
                )
                options.run_to_end = True
        time.sleep(0.05)
    keeper.stop()
    claim.release("released", exit_code=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
