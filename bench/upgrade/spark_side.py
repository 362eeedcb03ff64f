"""Streambank's side: a job on this machine with the same query, upgraded by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.million_keys import PROVIDERS
from bench.tree import environment
from bench.upgrade.swaps import COLD, UPGRADE, Swap
from streambank.control.progress import last_progress
from streambank.declaration.load import load_jobs

APPLICATION = Path(__file__).with_name("count_per_key.py")
JOB = "counts"
SETTINGS = {
    **PROVIDERS["rocksdb"],
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
STEPS = ("stop", "start", "first-batch")


class SparkSide:
    """A managed job.

    Args:
        folder: Where all of it is.
        source: The folder of the input.
        watch_s: How long each upgrade watches the new code, in seconds.
    """

    def __init__(self, folder: Path, source: Path, watch_s: float = 5.0) -> None:
        folder.mkdir()
        self.folder = folder
        self.watch_s = watch_s
        self.version = 1
        self._deploy()
        (folder / "streaming_jobs.toml").write_text(
            f'repository = "savepoints"\n[jobs.{JOB}]\napplication = "app.py"\n'
            f'args = [{json.dumps(str(source))}]\ncheckpoint = "checkpoint"\nmaster = "local[2]"\n'
            f"[jobs.{JOB}.spark]\n"
            + "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in SETTINGS.items()),
            encoding="utf-8",
        )

    def start(self) -> None:
        """Start it, and wait for its first batch."""
        self._streambank("job", "start")

    def end(self) -> None:
        """Stop it."""
        self._streambank("job", "stop")

    def swap(self, cold: bool = False) -> Swap:
        """Upgrade it to the next version of its code.

        Args:
            cold: Launch the new driver after the stop.

        Raises:
            RuntimeError: It was not upgraded, or not in the way that was asked for.
        """
        self.version += 1
        self._deploy()
        options = ["--watch", f"{self.watch_s:g}s", *(["--cold"] if cold else [])]
        report = self._streambank("upgrade", *options)
        if report["state"] != "upgraded" or report["warm"] == cold or report["notes"]:
            raise RuntimeError(f"the job was not upgraded as it was asked to: {json.dumps(report)}")
        steps = {name: report["steps"][name] for name in STEPS}
        return Swap(COLD if cold else UPGRADE, report["without_processing_s"], steps)

    def rows(self) -> int:
        """Rows of its state, by its newest progress record."""
        jobs = load_jobs(self.folder / "streaming_jobs.toml")
        newest = last_progress(jobs.job(JOB).records().store)
        assert newest is not None, "it has committed batches"
        return sum(int(one["numRowsTotal"]) for one in newest.progress["stateOperators"])

    def _deploy(self) -> None:
        code = APPLICATION.read_text(encoding="utf-8")
        assert "VERSION = 1" in code
        (self.folder / "app.py").write_text(
            code.replace("VERSION = 1", f"VERSION = {self.version}"), encoding="utf-8"
        )

    def _streambank(self, *verb: str) -> Any:
        command, options = verb[: 1 + (verb[0] == "job")], verb[1 + (verb[0] == "job") :]
        jobs = str(self.folder / "streaming_jobs.toml")
        done = subprocess.run(
            [sys.executable, "-m", "streambank", *command, JOB, "--jobs", jobs, "--json", *options],
            env=environment(SPARK_LOCAL_IP="127.0.0.1"),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(verb)} failed: {done.stderr[-2000:]}{done.stdout[-500:]}")
        return json.loads(done.stdout)
