"""Repositories for tests: a savepoint of any few files, without a checkpoint to take it from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from streambank.repository.digest import digest_of
from streambank.repository.manifest import FileEntry, Manifest, savepoint_id
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import Repository
from streambank.storage.store import Store

LARGE = b"large" * (SMALL_BYTES // 5) + b"tail of a large object"
FILES: Mapping[str, bytes] = {
    "metadata": b'{"id":"q"}',
    "offsets/3": b"v1\n{}\n{}",
    "commits/3": b"v1\n{}",
    "state/0/0/4.delta": b"delta" * 100,
    "state/0/1/4.delta": b"",
    "state/0/1/4.zip": LARGE,
}
TAKEN_AT = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)


def save(
    repository: Repository,
    files: Mapping[str, bytes] = FILES,
    *,
    job: str = "flights",
    batch: int = 3,
    **more: Any,
) -> Manifest:
    """Store some files and commit a savepoint of them."""
    with repository.objects.writer() as writer:
        for data in files.values():
            writer.add(data, len(data))
    manifest = manifest_of(files, job=job, batch=batch, digest=repository.digest_name, **more)
    repository.commit(manifest)
    return manifest


def manifest_of(
    files: Mapping[str, bytes] = FILES,
    *,
    job: str = "flights",
    batch: int = 3,
    digest: str = "blake3",
    **more: Any,
) -> Manifest:
    """The manifest of some files, stored or not."""
    entries = tuple(
        FileEntry(
            path, len(data), digest_of(digest, data), 1_356_998_400_000_000_000, f"7-{len(data)}-1", "state"
        )
        for path, data in files.items()
    )
    fields: dict[str, Any] = {
        "savepoint": savepoint_id(job, "q", batch, b"offsets", b"commits"),
        "job": job,
        "query_id": "q",
        "batch": batch,
        "taken_at": TAKEN_AT,
        "bytes": sum(map(len, files.values())),
        "file_count": len(files),
        "files": entries,
        **more,
    }
    return Manifest(**fields)


def assert_whole(store: Store) -> None:
    """Every listed savepoint can be read to its last byte."""
    if not store.exists("repository.json"):
        assert store.names() == []
        return
    repository = Repository.open(store)
    for summary in repository.manifests():
        assert summary.error is None
        assert summary.mark_errors == ()
        manifest = repository.load(summary.job, summary.savepoint)
        for digest, data in repository.objects.read_many(manifest.objects()):
            assert isinstance(data, bytes)
            assert digest_of(repository.digest_name, data) == digest


def flip(store: Store, key: str, where: int = 0) -> None:
    data = store.read(key)
    where %= len(data)
    store.write(key, data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :])
