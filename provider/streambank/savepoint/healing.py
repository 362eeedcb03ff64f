"""A take heals its own batch: what a listed savepoint lacks is stored again, where its files are at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from streambank.core.errors import NotFoundError
from streambank.repository.entry import FileEntry
from streambank.repository.manifest import Manifest
from streambank.repository.objects.digest import digest_of, split_digest
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import ObjectWriter, Repository
from streambank.savepoint.sinks import SinkCapture
from streambank.savepoint.wholeness import healed_objects
from streambank.storage.chunks import chunks
from streambank.storage.store import FileInfo, Store
from streambank.work.copy import CHECKPOINT, CopyTask, run_task
from streambank.work.hashing import damaged_objects


def lacking_objects(repository: Repository, manifest: Manifest, *, distrust: bool) -> set[str]:
    """The digests of a savepoint's objects that are not whole.

    Args:
        repository: Where they should be.
        manifest: The savepoint.
        distrust: Read every byte, not only names, sizes and tables.
    """
    whole = healed_objects(repository, manifest)
    lacking = set(manifest.objects()) - whole
    if distrust:
        sizes = {digest: size for digest, size in manifest.objects().items() if digest in whole}
        lacking |= {digest for digest, _ in damaged_objects(repository, sizes)}
    return lacking


def heal(
    repository: Repository,
    writer: ObjectWriter,
    manifest: Manifest,
    lacking: Set[str],
    checkpoint: Store,
    sinks: Sequence[SinkCapture],
) -> None:
    """Store the objects that a savepoint lacks again, if all their files still have the very bytes.

    Else nothing is stored; whether it helped, `lacking_objects` says afterwards.

    Args:
        repository: Where the savepoint is.
        writer: Stores there.
        manifest: The savepoint.
        lacking: Digests of its objects that are not whole.
        checkpoint: Where it was taken from.
        sinks: The sinks of the take.

    Raises:
        ConflictError: A file changed meanwhile.
    """
    found: dict[str, tuple[CopyTask, Store]] = {}
    for origin, store, entry in _files(manifest, lacking, checkpoint, sinks):
        if entry.digest not in found and (info := _unchanged(store, entry)) is not None:
            found[entry.digest] = CopyTask.of(info, entry.role, origin), store
    if found.keys() != lacking:
        return
    for digest, (task, store) in found.items():
        if task.size_bytes <= SMALL_BYTES and repository.has(digest, task.size_bytes):
            _patch(repository, digest, store.read(task.path))
        else:
            writer.damaged.add(digest)
            run_task(task, store, writer)
    writer.flush()


def _files(
    manifest: Manifest, lacking: Set[str], checkpoint: Store, sinks: Sequence[SinkCapture]
) -> Iterator[tuple[int, Store, FileEntry]]:
    """The files that lie in lacking objects, and where each was."""
    yield from ((CHECKPOINT, checkpoint, entry) for entry in manifest.files if entry.digest in lacking)
    for number, sink in enumerate(sinks):
        saved = next((record for record in manifest.sinks if record.get("path") == sink.path), {})
        entries = [FileEntry.from_dict(fields) for fields in saved.get("files", ())]
        if wanted := [entry for entry in entries if entry.digest in lacking]:
            try:
                store = sink.capture(manifest.batch).store
            except NotFoundError:
                continue  # the sink keeps nothing of the batch any more
            if store is not None:
                yield from ((number, store, entry) for entry in wanted)


def _unchanged(store: Store, entry: FileEntry) -> FileInfo | None:
    """A saved file as it is now; None where it is gone or has other bytes."""
    try:
        info = store.stat(entry.path)
        if info.size_bytes != entry.size_bytes:
            return None
        with store.open(entry.path) as reader:
            digest = digest_of(split_digest(entry.digest)[0], chunks(reader))
    except NotFoundError:
        return None
    return info if digest == entry.digest else None


def _patch(repository: Repository, digest: str, data: bytes) -> None:
    """Put the right bytes into a pack that has wrong ones in the place of an object."""
    place = repository.object_location(digest)
    if place.kind == "pack" and digest_of(repository.digest_name, data) == digest:
        pack = repository.store.read(place.key)
        end = place.offset + place.length
        if pack[place.offset : end] != data:
            repository.store.write(place.key, pack[: place.offset] + data + pack[end:])
