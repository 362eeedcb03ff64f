"""A query with a file sink that commits many batches a second, in a process of its own, in Spark's order.

Of each batch: the source's log, `offsets/N`, the state, the sink's data and its log, `commits/N`. What is no
longer retained goes, and the logs of source and sink are compacted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import TracebackType

from streambank.storage.local.store import LocalStore
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.paths import ROOT

RETAIN = 100
"""Spark's default of minBatchesToRetain."""


class BusyQuery:
    """Writes until the block ends.

    Args:
        batches_per_second: How many it commits in a second, unless the machine is too busy.

    Attributes:
        batches: How many it has committed in the block; known when that has ended.
        quickest_s: The shortest time from one of these to the next.
    """

    def __init__(
        self, checkpoint: Path, output: Path, *, batches_per_second: int = 50, retain: int = RETAIN
    ) -> None:
        self._arguments = [str(checkpoint), str(output), str(batches_per_second), str(retain)]
        self._process: subprocess.Popen[str] | None = None
        self.batches = 0
        self.quickest_s = 0.0

    def __enter__(self) -> BusyQuery:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *self._arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "begun\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        said, _ = self._process.communicate("", timeout=60)
        assert self._process.returncode == 0
        told = json.loads(said)
        self.batches, self.quickest_s = told["batches"], told["quickest_s"]


def _write(checkpoint: Path, output: Path, batches_per_second: int, retain: int) -> None:
    live = LiveCheckpoint(LocalStore(checkpoint, fsync=False), retain=retain, compact_every=10)
    sink = FileSinkWriter(LocalStore(output, fsync=False), retain=retain)
    over = threading.Event()

    def end_with_input() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=end_with_input, daemon=True).start()
    committed: list[float] = []
    while not over.is_set():
        live.plan()
        live.write_state()
        sink.write(live.next_batch, [{"batch": live.next_batch}])
        live.write_commit()
        if live.last < retain:  # as fast as it can, up to the first that has to go
            continue
        if not committed:
            print("begun", flush=True)
        committed.append(time.monotonic())
        time.sleep(max(0.0, committed[0] + len(committed) / batches_per_second - time.monotonic()))
    steps = (after - before for before, after in pairwise(committed))
    print(json.dumps({"batches": len(committed), "quickest_s": min(steps, default=0.0)}))


if __name__ == "__main__":
    _write(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
