"""One job with everything around it, small and quick: checkpoint, file sink, repository, records."""

from __future__ import annotations

from pathlib import Path

from streambank.control.control import JobControl
from streambank.recovery.report import RestoreReport
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, TakeResult, take
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.unguarded import sinks_from_descriptions
from streambank.storage import normalize_location, open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from streambank.work.executor import DEFAULT_PACE
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint

JOB = "orders"
BY = {"user": "tester"}


class SimulatedJob:
    """A query with a file sink, and where its savepoints go.

    Args:
        base: A directory, or a location such as `memory://name`.
        sink: Whether the query has a file sink; else it writes to a console.
    """

    def __init__(self, base: Path | str, *, sink: bool = True, state_bytes: int = 200) -> None:
        self.base = normalize_location(base)
        self.checkpoint = self.open("ck")
        self.live = LiveCheckpoint(self.checkpoint, state_bytes=state_bytes)
        self.sink_store = self.open("out")
        self.sink = FileSinkWriter(self.sink_store) if sink else None
        self.repository_store = self.open("repository")
        self.repository = Repository.open(self.repository_store, create=True)

    def open(self, name: str) -> Store:
        """A place of the job; durability is not what its tests are about."""
        return quick_store(f"{self.base}/{name}")

    def run(self, batches: int) -> SimulatedJob:
        """Commit some batches; the sink gets as many rows as the batch's number."""
        for _ in range(batches):
            self.live.plan()
            batch = self.live.next_batch
            if self.sink is not None:
                self.sink.write(batch, [{"batch": batch, "row": row} for row in range(batch)])
            self.live.commit()
        return self

    def take(self, checkpoint: Store | None = None, **options: object) -> TakeResult:
        pace = options.pop("pace", DEFAULT_PACE)
        nothing = sinks_from_descriptions(["ConsoleTable"])
        sinks = [FileSinkCapture(self.sink_store.uri, self.sink_store)] if self.sink else nothing
        request = TakeRequest(
            checkpoint or self.checkpoint,
            self.repository,
            JOB,
            sinks=sinks,
            **options,  # type: ignore[arg-type]  # options are those of a take
        )
        return take(request, pace=pace)  # type: ignore[arg-type]  # so is the pace

    def restore(self, reference: str, name: str = "restored", **options: object) -> RestoreReport:
        """Restore into a directory of the job."""
        pace = options.pop("pace", DEFAULT_PACE)
        request = RestoreRequest(
            self.repository,
            reference,
            into=self.open(name),
            opener=quick_store,
            **options,  # type: ignore[arg-type]  # options are those of a restore
        )
        return restore(request, pace=pace)  # type: ignore[arg-type]  # so is the pace

    def restore_next(self, reference: str, **options: object) -> RestoreReport:
        pace = options.pop("pace", DEFAULT_PACE)
        request = RestoreRequest(
            self.repository,
            reference,
            generation=self.control(),
            opener=quick_store,
            **options,  # type: ignore[arg-type]  # options are those of a restore
        )
        return restore(request, pace=pace)  # type: ignore[arg-type]  # so is the pace

    def control(self) -> JobControl:
        return JobControl(self.open(f"repository.control/{JOB}"), JOB)


def quick_store(location: object) -> Store:
    """The store at a location, without waiting for the disk where that is local."""
    uri = normalize_location(str(location))
    if uri.startswith("file://"):
        return LocalStore(uri.removeprefix("file://"), fsync=False)
    return open_store(uri)
