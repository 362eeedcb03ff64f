"""A driver in a separate process that waits for ever in the middle of one batch, to be killed there.

python -m tests.support.drivers.killed_in_batch QUERY LAYOUT SOURCE CHECKPOINT OUTPUT BATCH
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.spark.exactly_once_oracle import Trial
from tests.support.spark.queries import QUERIES
from tests.support.spark.sessions import END_S, Batches, own_spark, prepare, session_for, start

ROOT = Path(__file__).resolve().parents[3]


def kill_in_batch(trial: Trial, batch: int) -> None:
    """Run the trial's query in another process, and `kill -9` that and its JVM while `batch` runs.

    The batch is planned, its state is written, its rows have reached `foreachBatch`, and it is not committed.
    """
    arguments = [trial.query.name, trial.layout, trial.source, trial.checkpoint, trial.sink, batch]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'provider'}",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (trial.folder / "doomed.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.support.drivers.killed_in_batch", *map(str, arguments)],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + END_S
        while not (trial.sink / f"{batch}.json").exists():
            said = (trial.folder / "doomed.log").read_text()[-2000:]
            assert driver.poll() is None, f"the driver ended by itself: {said}"
            assert time.monotonic() < deadline, f"batch {batch} did not come: {said}"
            time.sleep(0.05)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def leave_temporary_files(checkpoint: Path, batch: int) -> None:
    """What a kill at a worse moment leaves as well: half-written files under Spark's temporary names."""
    uuid = "0f8fad5b-d9cb-469f-a165-70867728950e"
    for name in (
        f"commits/.{batch}.{uuid}.tmp",
        f"sources/0/.{batch + 1}.{uuid}.tmp",
        f"state/0/0/.{batch + 1}.delta.{uuid}.TID41.tmp",
        f"state/0/1/.{batch + 1}.zip.{uuid}.TID42.tmp",
    ):
        (checkpoint / name).write_bytes(b"v1\n{")


def main(arguments: list[str]) -> None:
    """Run the query up to the batch, and stay there."""
    query, layout, source, checkpoint, output, batch = arguments
    spark = own_spark()
    prepare(spark)
    batches = Batches(Path(output), gate_at=int(batch))
    session = session_for(spark, layout)
    start(session, QUERIES[query], Path(source), Path(checkpoint), Path(output), batches).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
