"""A simulated job that declares copies of its state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from streambank.checkpoint.reader import CheckpointReader
from streambank.control.marker import SUFFIX
from streambank.copies.refresh import RefreshRequest, refresh
from streambank.copies.report import RefreshReport
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.jobs.drill_story import hashes
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob

STAGING = """
[jobs.orders.copies.staging]
checkpoint = "staging/ck"
outputs = { "./out" = "staging/out" }
"""


class CopiedJob(SimulatedJob):
    """A query with a file sink, a savepoint of batch 2 and two batches after it, and what it declares.

    Args:
        inputs: Where its source reads a file for each batch, `0.json` and so on; a directory that is not
            there when left out.
    """

    def __init__(self, base: Path, more: str = STAGING, inputs: Path | None = None) -> None:
        super().__init__(base)
        if inputs is not None:
            inputs.mkdir()
            for batch in range(5):
                (inputs / f"{batch}.json").write_text("{}", encoding="utf-8")
            self.live.inputs = inputs.as_uri()
        self.folder = base
        (base / "app.py").write_text("", encoding="utf-8")
        self.jobs = base / "streaming_jobs.toml"
        self.declare(more)
        self.run(3)
        self.saved = self.take().savepoint
        self.run(2)

    def declare(self, more: str) -> None:
        self.jobs.write_text(
            f'repository = "repository"\n[jobs.{JOB}]\napplication = "app.py"\ncheckpoint = "ck"\n{more}',
            encoding="utf-8",
        )

    @property
    def job(self) -> Job:
        return load_jobs(self.jobs).job(JOB)

    def on(self, copy: str = "staging") -> Job:
        return load_jobs(self.jobs).job(f"{JOB}@{copy}")

    def refresh(self, copy: str = "staging", **more: Any) -> RefreshReport:
        return refresh(RefreshRequest(self.job, copy, by=BY, **more))

    def ran_on_copy(self, copy: str = "staging") -> None:
        """Leave behind what a driver on the copy does once Spark has started its query with a file sink."""
        records = self.on(copy).records()
        current = records.generation()
        assert current is not None
        (output,) = current.new_sinks.values()
        facts = {
            "generation": current.number,
            "query_id": CheckpointReader(open_store(current.location)).query_id(),
            "checkpoint": current.location,
            "sink": f"FileSink[{output}]",
            "sink_path": output,
            "output": {"kind": "files", "path": output, "name": None},
            "launch_id": f"launch-{current.number}",
        }
        records.record_query(None, facts)

    def restore_on_copy(self, copy: str = "staging") -> str:
        """Save the copy's own state, which names no sink, and restore it there; where it is then."""
        job = self.on(copy)
        records = job.records()
        current = records.generation()
        assert current is not None
        repository = Repository.open(open_store(job.repository), create=True)
        name = job.savepoint_name("main")
        take(TakeRequest(open_store(current.location), repository, name))
        request = RestoreRequest(
            repository, "latest-good", job=name, generation=records, checkpoint=job.checkpoint, by=BY
        )
        restore(request)
        restored = records.generation()
        assert restored is not None and restored.number > current.number
        return restored.location

    def live_files(self) -> dict[str, str]:
        return hashes(*(self.folder / name for name in ("ck", "out", f"repository.control/{JOB}")))


def numbered(folder: Path) -> set[str]:
    """The directories of refreshes in a folder; each has its claim beside it, and nothing else has one."""
    names = {path.name for path in folder.iterdir() if re.search(r"\.g[0-9]{4}", path.name)}
    directories = {name for name in names if not name.endswith(SUFFIX)}
    assert names == directories | {f"{name}{SUFFIX}" for name in directories}
    return directories
