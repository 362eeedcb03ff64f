"""A streaming query whose progress is written down, and is not, by turns: what measuring costs it.

    python -m bench.measured_query FOLDER STRETCHES SECONDS

The query is that of `bench.query`. In every other stretch a thread does what the runner's does once a second:
it takes Spark's new progress and writes it to the job's records. One line of JSON comes out: for each stretch
whether it was measured, and its batch times, and the processor seconds of Python that measuring took.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from bench.query import start
from streambank.control.progress import ProgressWriter
from streambank.storage import open_store
from streambank_spark.private import jvm
from streambank_spark.runner.poll import POLL_S

WARM_UP_BATCHES = 20
WARM_UP_S = 90.0


class Measuring:
    """What the runner does once a second for each query."""

    def __init__(self, query: StreamingQuery, folder: Path) -> None:
        self.cpu_s = 0.0
        self.written = 0
        self._query = query
        self._writer = ProgressWriter(open_store(folder / "records"), None, epoch=1)
        self._last = -1

    def run_for(self, seconds: float) -> None:
        """Measure for a while."""
        over = threading.Event()
        thread = threading.Thread(target=self._run, args=(over,))
        thread.start()
        time.sleep(seconds)
        over.set()
        thread.join()

    def skip(self) -> None:
        """Leave out what came while nobody measured."""
        for progress in jvm.new_progress(self._query, self._last):
            self._last = max(self._last, int(json.loads(progress)["batchId"]))

    def _run(self, over: threading.Event) -> None:
        while not over.wait(POLL_S):
            used = time.thread_time()
            for progress in jvm.new_progress(self._query, self._last):
                if self._writer.add(progress) and self._writer.last_batch is not None:
                    self._last = self._writer.last_batch
                    self.written += 1
            self._writer.flush()
            self.cpu_s += time.thread_time() - used


def main(folder: Path, stretches: int, stretch_s: float) -> dict[str, Any]:
    """Run the query, and measure it by turns."""
    spark, query = start(folder / "checkpoint")
    _wait(query)
    measuring = Measuring(query, folder)
    measuring.skip()
    found: list[dict[str, Any]] = []
    for number in range(stretches):
        for measured in (False, True) if number % 2 else (True, False):
            before = _last(query)
            if measured:
                measuring.skip()
                measuring.run_for(stretch_s)
            else:
                time.sleep(stretch_s)
            found.append({"measured": measured, "batches_ms": _since(query, before)})
    query.stop()
    spark.stop()
    return {"stretches": found, "cpu_s": measuring.cpu_s, "written": measuring.written}


def _last(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId)


def _since(query: StreamingQuery, before: int) -> list[int]:
    """Batch times; the first batch after `before` began earlier, and is left out."""
    return [one.batchDuration for one in query.recentProgress if one.batchId > before + 1]


def _wait(query: StreamingQuery) -> None:
    began = time.monotonic()
    while (batch := _last(query)) < WARM_UP_BATCHES:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        if batch >= 5 and time.monotonic() - began > WARM_UP_S:
            return
        time.sleep(0.5)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))), flush=True)
