"""A job that copies lines of text files, for drivers in any place: tests/data/applications/hanging.py."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streambank.control.control import JobControl
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from tests.support.drivers.real_driver import APPLICATIONS
from tests.support.waiting import DEADLINE_S, wait_for

_JOBS = """
repository = "repository"
[jobs.lines]
application = "{application}"
args = ["{folder}"]
checkpoint = "checkpoint"
python = "{python}"
{more}
[jobs.lines.start]
timeout = "10m"
[jobs.lines.stop]
force_after = "2m"
[jobs.lines.spark]
{spark}
"""


@dataclass(frozen=True, slots=True)
class LinesJob:
    """A declared job `lines`."""

    folder: Path
    job: Job

    @property
    def control(self) -> JobControl:
        """Its records, as a process sees them that has seen nothing of them before."""
        return self.job.records()

    def arrive(self, text: str) -> None:
        """Put a file into the input at once: Spark reads a name only once, whole or not."""
        (self.folder / text).write_text(f"{text}\n")
        (self.folder / text).rename(self.folder / "in" / text)

    def wait_rows(self, *rows: str, within_s: float = DEADLINE_S) -> None:
        """Wait until these rows have been written, each once, and no others."""

        def there() -> bool:
            return sorted(self.rows()) == sorted(rows)

        try:
            wait_for(f"rows {rows}", there, within_s)
        except AssertionError as error:
            raise AssertionError(f"{self.rows()} is not {rows}") from error

    def rows(self) -> list[str]:
        texts = [one.read_text() for one in sorted((self.folder / "out").iterdir())]
        return [row for text in texts if text for row in json.loads(text)]

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        return [one.data for one in self.control.events() if one.data.get("kind") == kind]


def lines_job(folder: Path, more: str, conf: Mapping[str, str]) -> LinesJob:
    """Declare it, with folders for its input and output."""
    for name in ("in", "out"):
        (folder / name).mkdir()
    jobs = folder / "jobs.toml"
    spark = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in conf.items())
    text = _JOBS.format(
        application=APPLICATIONS / "hanging.py", folder=folder, python=sys.executable, more=more, spark=spark
    )
    jobs.write_text(text, encoding="utf-8")
    return LinesJob(folder, load_jobs(jobs).job("lines"))
