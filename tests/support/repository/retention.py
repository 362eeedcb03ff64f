"""Retention for tests: savepoints that come and go, and what must hold at any time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from streambank.core.errors import ConflictError
from streambank.repository.catalog import manifest_key
from streambank.repository.digest import digest_of
from streambank.repository.manifest import Manifest
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import Repository
from streambank.retention.expired import Expired, set_aside
from streambank.storage.store import Store
from tests.support.repository.repositories import TAKEN_AT, manifest_of

HOUR_S = 3600.0


def large(number: int) -> bytes:
    """Bytes that are a separate object."""
    return b"%08d" % number * (SMALL_BYTES // 8 + 1)


def store_and_list(repository: Repository, files: Mapping[str, bytes], batch: int, **more: Any) -> Manifest:
    """What a take does with the repository: store, list, and store again what a sweep has condemned."""
    more.setdefault("taken_at", TAKEN_AT + timedelta(hours=batch))
    manifest = manifest_of(files, batch=batch, digest=repository.digest_name, **more)
    with repository.objects.writer() as writer:
        for _ in range(4):
            for data in files.values():
                writer.add(data, len(data))
            writer.flush()
            try:
                repository.commit(manifest)
            except ConflictError as error:
                assert error.code == "objects-condemned"
                writer.forget(repository.objects.condemned(manifest.objects(), refresh=True))
            else:
                return manifest
    raise AssertionError("condemned again and again")


def drop(repository: Repository, manifest: Manifest) -> Expired:
    """Expire one savepoint, whatever any policy says."""
    copy = set_aside(repository, manifest.job, manifest.savepoint)
    repository.store.delete(manifest_key(manifest.job, manifest.savepoint))
    return copy


def assert_whole(store: Store) -> set[str]:
    """Every listed savepoint can be read to its last byte, through a fresh look; the ids of all."""
    repository = Repository.open(store)
    found = set()
    for summary in repository.manifests():
        assert summary.error is None, summary.error
        manifest = repository.load(summary.job, summary.savepoint)
        for digest, size_bytes in manifest.objects().items():
            data = repository.objects.read(digest)
            assert len(data) == size_bytes and digest_of("blake3", data) == digest
        found.add(summary.savepoint)
    return found


def content(store: Store) -> set[str]:
    """Every file with objects in it."""
    return {info.path for folder in ("objects", "packs") for info in store.list(folder)}
