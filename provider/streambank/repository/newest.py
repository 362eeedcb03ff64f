"""The newest savepoints of a query, found without opening all of them."""

from __future__ import annotations

from streambank.core.errors import NotFoundError
from streambank.repository.catalog import glimpse, manifest_key
from streambank.repository.manifest import Manifest
from streambank.repository.marks import UNREADABLE, VERIFIED, latest, read_mark, to_verification
from streambank.storage.store import FileInfo, Store


def newest_good(store: Store, job: str, most: int) -> list[Manifest]:
    """The newest savepoints that no verification found damaged, newest first, without their files.

    Only manifests that were written last, and those of the highest batches, are looked into; after a restore
    these are not the same. Where the storage does not tell when files were written, all are.

    Args:
        store: The repository's root.
        job: `job`, without its queries, or `job/query`.
        most: How many of either.

    Raises:
        InputError: The name is not allowed (code `bad-name`).
        StorageError: The repository cannot be read.
    """
    folder = manifest_key(job, "x").removesuffix("x.json")
    infos = [info for info in store.list(folder.rstrip("/")) if _is_manifest(info, folder)]
    if all(info.mtime_ns > 0 for info in infos):
        by_time = sorted(infos, key=lambda info: info.mtime_ns)[-most:]
        by_batch = sorted(infos, key=lambda info: info.path)[-most:]
        infos = list({info.path: info for info in (*by_time, *by_batch)}.values())
    ids = (info.path.removeprefix(folder).removesuffix(".json") for info in infos)
    found = [head for savepoint in ids if (head := glimpse(store, job, savepoint)) is not None]
    found.sort(key=lambda head: head.taken_at, reverse=True)
    return [head for head in found if not _is_distrusted(store, job, head.savepoint)][:most]


def _is_manifest(info: FileInfo, folder: str) -> bool:
    name = info.path.removeprefix(folder)
    return name.endswith(".json") and "/" not in name


def _is_distrusted(store: Store, job: str, savepoint: str) -> bool:
    """Whether its last verification found damage."""
    name = latest(store.names(f"marks/{job}/{savepoint}"), VERIFIED)
    try:
        return name is not None and not to_verification(read_mark(store, job, savepoint, name)).ok
    except (NotFoundError, *UNREADABLE):
        return False  # it says nothing, or is gone
