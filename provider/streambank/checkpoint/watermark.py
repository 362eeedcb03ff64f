"""How far a query's output is in event time: the watermark of its newest *committed* batch.

Three numbers in a checkpoint look like it, and only one will do for whoever is about to read the output.
`batchWatermarkMs` of `offsets/N` is what batch N runs with: when N is committed, all that this watermark
closes has been written (the progress of N shows the same as `eventTime.watermark`). The newest entry of the
offset log may belong to a batch that still runs, so its output is not there yet. `nextBatchWatermarkMs` of
`commits/N` has been reached by the input, but what it closes is written by batch N+1 only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streambank.checkpoint.files import read_entry
from streambank.checkpoint.logs import parse_offsets
from streambank.checkpoint.position import batches_in_log
from streambank.core.errors import ConflictError, NotFoundError
from streambank.core.units import from_epoch_ms
from streambank.storage.store import Store

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class CommittedWatermark:
    """The newest committed batch, and the watermark that it ran with; None for none, or none yet."""

    batch: int
    watermark_ms: int | None

    @property
    def moment(self) -> datetime | None:
        """The watermark as a time; None for none, or one beyond what a calendar can say."""
        return None if self.watermark_ms is None else from_epoch_ms(self.watermark_ms)


def committed_watermark(store: Store) -> CommittedWatermark | None:
    """How far a query is; None before its first commit. Lists one log, reads one small file.

    Raises:
        ConflictError: `checkpoint-moved`: batches went by faster than they could be read.
        NotFoundError: `missing-log-entry`: the newest committed batch was never planned, by what is there.
        FormatError: `half-written` or `unknown-version`.
    """
    before: int | None = None
    for _ in range(_ATTEMPTS):
        batch = max(batches_in_log(store, "commits"), default=None)
        if batch is None:
            return None
        path = f"offsets/{batch}"
        try:
            offsets = parse_offsets(read_entry(store, path), path)
        except NotFoundError as error:
            # Spark deletes old entries of both logs; the newest ones go only where it has gone on meanwhile.
            if batch == before:
                raise NotFoundError(
                    f"{store.uri} has commits/{batch} and no {path}, so its watermark is not known.",
                    code="missing-log-entry",
                    hint="Restore a savepoint: Spark cannot go on from this checkpoint either.",
                ) from error
            before = batch
            continue
        return CommittedWatermark(batch, offsets.watermark_ms or None)
    raise ConflictError(
        f"The query of {store.uri} committed another batch each time its logs were read.",
        code="checkpoint-moved",
        hint="Ask again.",
    )
