"""The main story of a job, on whichever Spark: by the command line, with an application and a file sink.

Rows arrive in files, half of each file's keys were in the one before, and `dropDuplicates` lets each key
through once. So the output of a run that nothing disturbs is known: every key, once.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from streambank.core.errors import RefusedError
from tests.support.cli import Answer, streambank
from tests.support.waiting import poll, wait_for

NAME = "orders"
APPLICATION = '''
import sys, time
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

source, out, slow = sys.argv[1], sys.argv[2], sys.argv[3]

def nap(n):
    """A batch takes as long as the file says, which may change while it runs."""
    with open(slow) as file:
        time.sleep(float(file.read() or 0))
    return n

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("k string, n int").option("maxFilesPerTrigger", 1).json(source)
rows = rows.coalesce(1).withColumn("n", udf(nap, "int")("n")).dropDuplicates(["k"])
writer = rows.writeStream.format("json").option("path", out).trigger(processingTime="200 milliseconds")
writer.start().awaitTermination()
'''
KEYS = 10
"""New ones in each file."""


class ReleaseStory:
    """A job and what a person does with it.

    Args:
        more: Lines of the job's declaration: which Spark it runs on.
        output: Where it writes, in its own words; a folder of files when left out.
        more_arguments: Of the application, after input, output and the file that says how slow it is.
        call: The command line; that of this process when left out.
    """

    def __init__(
        self,
        folder: Path,
        more: str,
        *,
        application: str = APPLICATION,
        output: str = "",
        more_arguments: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        call: Callable[..., Answer] = streambank,
    ) -> None:
        self.call = call
        self.folder = folder
        self.source, self.out, self.slow = folder / "in", folder / "out", folder / "slow"
        self.source.mkdir(parents=True)
        self.files = 0
        self.nap(0)
        (folder / "app.py").write_text(application, encoding="utf-8")
        self.jobs = folder / "streaming_jobs.toml"
        arguments = json.dumps([str(self.source), output or str(self.out), str(self.slow), *more_arguments])
        spark = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", **(settings or {})}
        self.jobs.write_text(
            f'repository = "savepoints"\n[jobs.{NAME}]\napplication = "app.py"\nargs = {arguments}\n'
            'checkpoint = "checkpoint"\nmaster = "local[2]"\n'
            f"{more}\n[jobs.{NAME}.spark]\n"
            + "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in spark.items()),
            encoding="utf-8",
        )

    def nap(self, seconds: float) -> None:
        """How long each row of the next batches takes."""
        self.slow.write_text(str(seconds), encoding="utf-8")

    def feed(self, files: int = 1) -> None:
        for _ in range(files):
            first = self.files * KEYS
            rows = [{"k": f"k{n}", "n": n} for n in range(first, first + 2 * KEYS)]
            begun = self.folder / ".row"
            begun.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
            begun.rename(self.source / f"{self.files:05d}.json")
            self.files += 1

    def do(self, verb: str, *options: str | int | Path, code: int = 0) -> Answer:
        answer = self.call("job", verb, NAME, "--jobs", self.jobs, *options)
        assert answer.code == code, f"{answer.out}{answer.err}{self.log()}"
        return answer

    def document(self, verb: str, *options: str | int | Path) -> Any:
        """What a verb of the job says as JSON."""
        return self.do(verb, *options, "--json").document

    def restore(self, savepoint: str, *options: str | int | Path) -> Any:
        given = ("-r", self.folder / "savepoints", "--jobs", self.jobs, "--job", NAME, "--generation")
        answer = self.call("restore", savepoint, *given, *options, "--json")
        assert answer.code == 0, answer
        return answer.document

    def refused(self, savepoint: str, *options: str) -> str:
        """What a restore says that would lose or repeat rows."""
        given = ("-r", self.folder / "savepoints", "--jobs", self.jobs, "--job", NAME, "--generation")
        answer = self.call("restore", savepoint, *given, *options)
        assert answer.code == RefusedError.exit_code, answer
        return answer.err

    def kill(self) -> None:
        status = self.document("status")
        for role in ("jvm_pid", "pid"):
            os.kill(status[role], signal.SIGKILL)
        poll(lambda: self.document("status")["state"] != "running")  # a kill takes a moment

    def log(self) -> str:
        logs = sorted(
            self.folder.glob("savepoints.control/*/logs/*.log"), key=lambda path: path.stat().st_mtime
        )
        return logs[-1].read_text(encoding="utf-8", errors="replace")[-3000:] if logs else ""

    def rows(self) -> Counter[str]:
        """How often each key is in the output, by the sink's own log."""
        return Counter(str(row["k"]) for row in self.written())

    def written(self) -> list[dict[str, Any]]:
        """The rows of the output, by the sink's own log."""
        log = self.out / "_spark_metadata"
        names = sorted((path for path in log.glob("[0-9]*")), key=lambda path: int(path.name.split(".")[0]))
        newest = max((at for at, path in enumerate(names) if path.suffix == ".compact"), default=0)
        paths = {
            json.loads(line)["path"].removeprefix("file://")
            for path in names[newest:]
            for line in path.read_text(encoding="utf-8").splitlines()[1:]
        }
        lines = [line for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
        return [json.loads(line) for line in lines]

    def expected(self) -> Counter[str]:
        """What the output of a run is that nothing disturbs."""
        return Counter(f"k{n}" for n in range((self.files + 1) * KEYS))

    def newest_batch(self) -> int:
        """The newest committed batch; -1 before the first."""
        newest = self.document("status")["queries"]["main"]["batch"]
        return -1 if newest is None else int(newest)

    def until_batch(self, batch: int) -> None:
        wait_for(f"batch {batch}", lambda: self.newest_batch() >= batch)

    def until_busy(self) -> None:
        """Wait until a batch is under way, and for a moment after that."""

        def planned() -> bool:
            query = self.document("status")["queries"]["main"]
            return bool(query["planned_batch"] > query["batch"])

        poll(planned, timeout_s=60)
        time.sleep(0.3)

    def until_written(self) -> None:
        """Wait until all that has arrived is in the output."""
        poll(lambda: self.rows().keys() >= self.expected().keys(), timeout_s=300)
