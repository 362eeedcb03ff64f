"""A repository of two savepoints, and a replica of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.repository.repository import Repository
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.repository.damaged_savepoints import NEXT
from tests.support.repository.repositories import save
from tests.support.storage.contents import keys


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "one", fsync=False)


@pytest.fixture
def replica(store: Store) -> Repository:
    """A replica of two savepoints, whose packs hold other objects than the repository's own."""
    repository = Repository.open(store, create=True)
    save(repository)
    save(repository, NEXT, batch=4)
    other = open_replica(repository, MemoryStore())
    list(replicate(repository, other, newest_first(repository)))
    assert {key.rpartition("/")[2] for key in keys(other.store, "packs")} != {
        key.rpartition("/")[2] for key in keys(store, "packs")
    }
    return other
