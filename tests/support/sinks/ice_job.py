"""A declared job that writes to an Iceberg table, without Spark: its batches are written by tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streambank.declaration.declaration import Job
from streambank.job.savepoint import savepoint_job
from streambank.sinks.tags import TagScope
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import succeed
from tests.support.jobs.declared import BY, declare
from tests.support.sinks.iceberg import NAME, IceTable

QUERY = "051c7676-82ba-42c3-8085-6b157703ac5f"


class IceJob:
    """A job that writes to an Iceberg table; three batches are in its checkpoint and in the table."""

    def __init__(self, folder: Path, replica: str | None = None) -> None:
        self.folder = folder
        self.ice = IceTable(folder / "lake", QUERY)
        self.ice.create()
        catalog = ", ".join(f'{name} = "{value}"' for name, value in self.ice.properties.items())
        more = f'[[jobs.flights.sinks]]\nkind = "iceberg"\ntable = "{NAME}"\ncatalog = {{{catalog}}}\n'
        if replica is not None:
            more += f'[jobs.flights.replicate]\nto = ["{folder / replica}"]\nretention = {{keep_last = 1}}\n'
        self.job: Job = declare(folder, more=more)
        self.jobs = folder / "streaming_jobs.toml"
        self.live = LiveCheckpoint(open_store(self.job.checkpoint), query_id=QUERY)
        self.run(3)
        control = self.job.records()
        control.generations().ensure_first(self.job.checkpoint, by=BY)
        control.record_query(None, {"sink": "ForeachBatchSink", "query_id": QUERY, "generation": 1})

    def run(self, batches: int = 1) -> None:
        for _ in range(batches):
            self.live.run(1)
            self.ice.write(self.live.last, [f"{self.live.last}-{row}" for row in range(2)])

    def take(self) -> tuple[str, tuple[str, ...]]:
        """A savepoint of the newest batch, and its warnings."""
        (taken,) = savepoint_job(self.job, by=BY).savepoints.values()
        return taken.savepoint, taken.warnings

    def expire(self, *options: str | int | Path) -> list[dict[str, Any]]:
        """Keep the newest savepoint only, by the command line; what became of tags."""
        keep = ("--keep-last", 1, "--min-verified", 0, "--jobs", self.jobs, "--json")
        document = succeed("expire", "-r", self.job.repository, *keep, *options).document
        found: list[dict[str, Any]] = document["sink_tags"]
        return found

    def tagged(self) -> list[int]:
        """The batches that tags of the job are of."""
        scope = TagScope(self.job.open_repository().id, "flights")
        return sorted(batch for tag in self.ice.tags() if (batch := scope.batch(tag)) is not None)
