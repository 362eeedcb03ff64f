"""A checkpoint directory as other packages see it: never writes; `inspect` never fails on what it finds."""

from __future__ import annotations

from dataclasses import replace

from streambank.checkpoint.closure import ClosurePlanner, plan_closure
from streambank.checkpoint.files import read_query_id
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.inspection import (
    LOGS_BEHIND,
    Inspection,
    explained,
    inspect_listing,
    retained_batches,
)
from streambank.checkpoint.listing import LISTING_ORDER, Listing, list_checkpoint
from streambank.checkpoint.position import batches_in_log
from streambank.checkpoint.shape import Closure
from streambank.core.choices import ClosureKind
from streambank.core.errors import ConflictError, NotFoundError, StreambankError
from streambank.core.finding import Finding
from streambank.storage import Store, local_path

__all__ = ["LISTING_ORDER", "CheckpointReader"]

_INSPECT_ATTEMPTS = 5


class CheckpointReader:
    """Reads one checkpoint, live or not; `planner` is what the last `inspect` worked with, to go on with."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.planner: ClosurePlanner | None = None

    def listing(self) -> Listing:
        """Every file, listed in the order that a plan needs."""
        return list_checkpoint(self.store)

    def query_id(self) -> str:
        """The query's id.

        Raises:
            NotFoundError: `not-a-checkpoint`.
            FormatError: `half-written`.
        """
        try:
            return read_query_id(self.store)
        except NotFoundError as error:
            raise self._no_checkpoint("it has no metadata, so its query is not known") from error

    def last_committed(self) -> int | None:
        return max(batches_in_log(self.store, "commits"), default=None)

    def last_planned(self) -> int | None:
        return max(batches_in_log(self.store, "offsets"), default=None)

    def retained_batches(self) -> list[int]:
        """Committed batches whose closure is whole, oldest first."""
        index = CheckpointIndex.build(self.listing())
        checked = retained_batches(index, ClosurePlanner(index, self.store.read))
        return [batch for batch, error in checked.items() if error is None]

    def closure(self, batch: int | None = None, kind: ClosureKind = "safe") -> Closure:
        """The closure of a committed batch; see `closure.plan_closure`.

        Raises:
            ConflictError: `checkpoint-moved`: the query went on meanwhile; ask again.
        """
        before = self.last_committed()
        try:
            return plan_closure(self.listing(), self.store.read, batch, kind)
        except NotFoundError as error:
            if error.code == "not-a-checkpoint":
                raise self._no_checkpoint("it has no metadata, offsets or commits") from error
            if self.last_committed() != before:
                raise ConflictError(
                    f"The query went on while its checkpoint was read: {error.message}",
                    code="checkpoint-moved",
                    hint="Ask again.",
                ) from error
            raise

    def explained(self, error: StreambankError) -> StreambankError:
        try:
            index = CheckpointIndex.build(self.listing())
            return explained(ClosurePlanner(index, self.store.read), error)
        except StreambankError:
            return error  # it moves, or cannot be read any more: the first error stands

    def inspect(self, batch: int | None = None) -> Inspection:
        """Everything worth knowing; what is damaged, half-written or unknown is a finding.

        Raises:
            NotFoundError: `not-a-checkpoint`: there is nothing of a checkpoint at all.
        """
        last: ConflictError | None = None
        for _ in range(_INSPECT_ATTEMPTS):
            listing = self.listing()
            index = CheckpointIndex.build(listing)
            if index.is_none:
                raise self._no_checkpoint("it has no metadata, offsets or commits")
            self.planner = ClosurePlanner(index, self.store.read)
            try:
                found = inspect_listing(self.store.uri, listing, self.store.read, batch, planner=self.planner)
                return self._if_it_stood_still(found)
            except ConflictError as error:
                last = error
        return self._always_moving(index, last)

    def _if_it_stood_still(self, found: Inspection) -> Inspection:
        """The same, without what only shows that batches were planned while state was listed."""
        left = tuple(finding for finding in found.findings if finding.code != LOGS_BEHIND)
        if left != found.findings and self.last_planned() != found.last_planned_batch:
            return replace(found, findings=left)
        return found

    def _always_moving(self, index: CheckpointIndex, error: StreambankError | None) -> Inspection:
        cause = error.message if error else ""
        return Inspection(
            checkpoint=self.store.uri,
            query_id=None,
            last_committed_batch=max(index.commits, default=None),
            last_planned_batch=max(index.offsets, default=None),
            retained_batches=(),
            retained_by="names",
            closure=None,
            minimal_bytes=None,
            file_count=len(index.listing),
            bytes=index.listing.bytes,
            findings=(
                Finding(
                    "checkpoint-moved",
                    "warning",
                    "",
                    f"Files went away each time the checkpoint was read: {cause}",
                    "The query deletes files faster than they can be read.",
                    "Let it retain more batches: spark.sql.streaming.minBatchesToRetain.",
                ),
            ),
        )

    def _no_checkpoint(self, why: str) -> NotFoundError:
        uri = self.store.uri
        path = local_path(uri)
        said = f"There is no checkpoint at {uri}: {why}."
        if path is not None and not path.exists():
            said = f"There is no directory {uri}."
        elif not self.store.names():
            said = f"There is nothing at {uri}."
        return NotFoundError(
            said,
            code="not-a-checkpoint",
            hint="Give the directory that the query has as its checkpointLocation.",
        )
