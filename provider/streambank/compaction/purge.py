"""Delete a quarantine for good."""

from __future__ import annotations

from dataclasses import dataclass

from streambank.checkpoint.reader import CheckpointReader
from streambank.compaction.dead_files import FILES
from streambank.compaction.quarantine import (
    DONE_KEY,
    PURGING_KEY,
    RECORD_KEY,
    Quarantine,
    QuarantineRecord,
)
from streambank.core.errors import RefusedError
from streambank.core.shape import JsonObject
from streambank.core.units import to_json_time, utc_now
from streambank.repository.digest import DEFAULT_DIGEST
from streambank.repository.sealed import encode_record
from streambank.storage import FileInfo, Opener, open_store
from streambank.storage.threads import each
from streambank.work.pace import Meter, Progress


@dataclass(frozen=True, slots=True)
class PurgeReport(JsonObject):
    """What a purge deleted.

    Attributes:
        checkpoint: URI of the checkpoint that the files were of; None where an earlier purge had ended but
            for its last word.
    """

    checkpoint: str | None
    quarantine: str
    files: int
    bytes: int
    already_done: bool = False


def purge(
    quarantine: Quarantine, *, opener: Opener = open_store, progress: Progress | None = None
) -> PurgeReport:
    """Delete what a compaction has moved, and its record last; the checkpoint is not touched.

    Raises:
        NotFoundError: There is no quarantine (code `not-a-quarantine`).
        RefusedError: The compaction broke off, and its query has not shown since that it goes on without the
            files (code `quarantine-unfinished`).
    """
    store = quarantine.store
    if quarantine.is_purging and quarantine.record() is None:
        store.delete(PURGING_KEY)
        store.prune()
        return PurgeReport(None, store.uri, 0, 0)
    record = quarantine.existing()
    if not quarantine.is_purging:
        _refuse_unfinished(quarantine, record, opener)
        begun = {"at": to_json_time(utc_now()), "checkpoint": record.checkpoint}
        store.write(PURGING_KEY, encode_record(begun, DEFAULT_DIGEST))
    ours = {entry.key for entry in record.entries}
    files = [info for info in store.list(FILES) if info.path in ours]
    meter = Meter(progress, "purge", len(files), sum(info.size_bytes for info in files))

    def delete(info: FileInfo) -> None:
        store.delete(info.path)
        meter.add(1, info.size_bytes)

    for _ in each(delete, files, store.features.at_once):
        pass  # the first error is raised
    for key in (DONE_KEY, RECORD_KEY, PURGING_KEY):
        store.delete(key)
    store.prune()
    return PurgeReport(record.checkpoint, store.uri, len(files), sum(info.size_bytes for info in files))


def _refuse_unfinished(quarantine: Quarantine, record: QuarantineRecord, opener: Opener) -> None:
    if quarantine.won() is not None:
        return
    newest = CheckpointReader(opener(record.checkpoint)).last_committed()
    if newest is None or record.batch is None or newest <= record.batch:
        raise RefusedError(
            f"The compaction that made {quarantine.store.uri} broke off and never finished.",
            code="quarantine-unfinished",
            hint="Bring everything back with --undo, and compact again. Once the query has committed another "
            "batch, --purge deletes it.",
        )
