"""A replica on a real S3 server: to it, inside it, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.replicas.header_repair import open_for_repair
from streambank.replicas.repair import repair
from streambank.replicas.replicate import Replicated, newest_first, open_replica, replicate
from streambank.repository.catalog import listed
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from tests.support.repository.repositories import FILES, LARGE, assert_whole, flip, save
from tests.support.storage.contents import keys
from tests.support.storage.faulty_store import WRITES, FaultyStore
from tests.support.storage.s3_servers import S3Server, seaweedfs

__all__ = ["seaweedfs"]  # fixture


def bring(source: Repository, target: Store) -> list[Replicated]:
    return list(replicate(source, open_replica(source, target), newest_first(source)))


def test_to_s3_inside_s3_and_back(
    seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = seaweedfs.use(monkeypatch)
    here = Repository.open(LocalStore(tmp_path / "here", fsync=False), create=True)
    which = save(here)
    save(here, {**FILES, "offsets/4": b"next"}, batch=4)
    total = sum(map(len, FILES.values())) + 4

    there = open_store(server.location())
    assert sum(each.moved_bytes for each in bring(here, there)) == total
    assert_whole(there)
    watched = FaultyStore(there)
    assert {each.state for each in bring(here, watched)} == {"there"}
    assert [call for call in watched.calls if call.operation in WRITES] == []

    other = open_store(server.location("s3a"))
    inside = bring(Repository.open(there), other)
    assert sum(each.service_bytes for each in inside) == len(LARGE)  # its bytes came here to be hashed only
    assert_whole(other)

    flip(there, keys(there, "objects")[0], 5)
    there.delete(keys(there, "packs")[0])
    repository, _ = open_for_repair(there, dry_run=False)
    report = repair(repository, [Repository.open(other)], listed(there))
    assert report.ok and len(report.repaired) == 2
    back = LocalStore(tmp_path / "back", fsync=False)
    bring(Repository.open(there), back)
    assert_whole(back)
    assert verify(Repository.open(back), which.job, which.savepoint, "full").ok
