"""What a take need not read again: files unchanged since the newest savepoint of the same checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streambank.core.errors import FormatError, IntegrityError, NotFoundError
from streambank.repository import catalog
from streambank.repository.entry import FileEntry
from streambank.repository.manifest import Manifest
from streambank.repository.repository import ObjectWriter, Repository
from streambank.savepoint.sinks import SinkCapture
from streambank.savepoint.wholeness import healed_objects
from streambank.work.copy import CHECKPOINT, CopyTask
from streambank.work.hashing import damaged_objects


@dataclass(slots=True)
class Arrived:
    """What is in the repository already.

    Attributes:
        entries: Files by origin, path and identity (`CopyTask.key`), with the digest of their bytes.
        parent: The savepoint they are known from.
        before: That savepoint; None where there is none.
    """

    entries: dict[tuple[int, str, str], FileEntry] = field(default_factory=dict)
    parent: str | None = None
    before: Manifest | None = None

    def add(self, task: CopyTask, entry: FileEntry) -> None:
        """A file has arrived."""
        self.entries[task.key] = entry


def from_newest(repository: Repository, job: str, checkpoint: str, sinks: Sequence[SinkCapture]) -> Arrived:
    """The files of the newest savepoint of a job that was taken from the same checkpoint.

    Those whose objects are not whole any more are left out, so that they are read and stored again; a damaged
    table of contents of a pack is written again first.

    Args:
        repository: Where the savepoints are.
        job: `job` or `job/query`.
        checkpoint: URI of the checkpoint.
        sinks: The sinks of the take.
    """
    arrived = Arrived()
    manifest = _newest(repository, job, checkpoint)
    if manifest is None:
        return arrived
    whole = healed_objects(repository, manifest)
    whole -= repository.condemned(whole, refresh=True)
    arrived.parent, arrived.before = manifest.savepoint, manifest
    origins = [(CHECKPOINT, entry) for entry in manifest.files]
    for number, sink in enumerate(sinks):
        saved = next((record for record in manifest.sinks if record.get("path") == sink.path), {})
        origins += [(number, FileEntry.from_dict(fields)) for fields in saved.get("files", ())]
    for origin, entry in origins:
        if entry.digest in whole:
            arrived.entries[origin, entry.path, entry.identity] = entry
    return arrived


def _newest(repository: Repository, job: str, checkpoint: str) -> Manifest | None:
    # By time, not by batch: a checkpoint that began anew at the same place counts from 0 again.
    heads = sorted(catalog.heads(repository.store, job), key=lambda head: head.taken_at, reverse=True)
    for head in heads:
        # What was derived from a savepoint says where that was taken, and has other files.
        if (head.job, head.checkpoint) == (job, checkpoint) and head.derived_from is None:
            try:
                return repository.load(job, head.savepoint)
            except (NotFoundError, IntegrityError, FormatError):
                continue  # its files are damaged, or it is gone
    return None


def forget_lost(repository: Repository, arrived: Arrived, writer: ObjectWriter) -> None:
    """What sweeps have condemned since it arrived, or deleted already, is read and stored again.

    Args:
        repository: Where it is.
        arrived: What the take counts on.
        writer: What the take stores with.
    """
    repository.refresh()
    lost = repository.missing({entry.digest: entry.size_bytes for entry in arrived.entries.values()})
    for key in [key for key, entry in arrived.entries.items() if entry.digest in lost]:
        del arrived.entries[key]
    writer.forget(lost)


def check_objects(repository: Repository, manifest: Manifest) -> None:
    """Read every object of a savepoint that is about to be made.

    Raises:
        IntegrityError: `repository-damaged`: one of them is not what it was.
    """
    for _, error in damaged_objects(repository, manifest.objects()):
        raise IntegrityError(
            f"No savepoint of {manifest.job}: it would share a damaged object. {error.message}",
            code="repository-damaged",
            hint="Take into another repository; `streambank verify --all` shows what is damaged in this one.",
        ) from error
