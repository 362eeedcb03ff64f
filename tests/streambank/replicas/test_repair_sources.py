"""Which replicas bytes come from: only whole ones, the first that has them, of places that answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

from streambank.core.errors import InputError, StorageError
from streambank.replicas.repair import repair
from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.repository.catalog import listed
from streambank.repository.header import HEADER_KEY
from streambank.repository.repository import Repository
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.refuses import refuses
from tests.support.repository.damaged_savepoints import FIRST, SECOND, contents, pack_of, repair_all
from tests.support.repository.repositories import FILES, flip
from tests.support.storage.contents import keys
from tests.support.storage.faulty_store import Fault, FaultyStore


def test_a_replica_that_is_damaged_in_the_same_place_gives_nothing(store: Store, replica: Repository) -> None:
    (key,) = keys(store, "objects")
    flip(store, key, 10)
    before = contents(store)
    flip(replica.store, keys(replica.store, "objects")[0], 999)
    report = repair_all(store, replica)
    assert not report.ok
    (lost,) = report.not_repaired
    assert (lost.file, lost.cause, lost.needed_by) == (
        key,
        lost.cause,
        (f"flights/{FIRST}", f"flights/{SECOND}"),
    )
    assert "is damaged" in lost.reason
    assert contents(store) == before


def test_of_two_replicas_the_one_that_has_it_whole(store: Store, replica: Repository) -> None:
    second = open_replica(replica, MemoryStore())
    list(replicate(replica, second, newest_first(replica)))
    for place in (store, replica.store):
        flip(place, keys(place, "objects")[0], 77)
    flip(second.store, keys(second.store, "packs")[0], 1)
    flip(store, pack_of(store, FILES["state/0/0/4.delta"]), 4)
    report = repair_all(store, Repository.open(replica.store), Repository.open(second.store))
    assert report.ok
    assert {one.sources for one in report.repaired if one.kind == "object"} == {(second.store.uri,)}


def test_a_bad_place_of_the_disk_is_repaired_too(replica: Repository) -> None:
    store = MemoryStore()
    list(replicate(replica, open_replica(replica, store), newest_first(replica)))
    key = keys(store, "objects")[0]
    opened = frozenset({"held.open"})
    faulty = FaultyStore(store, *(Fault("error", call, opened, key) for call in (1, 2)))  # asked twice
    report = repair(Repository.open(faulty), [replica], listed(store))
    faulty.assert_fired()
    assert [one.file for one in report.repaired] == [key]
    assert report.ok


def test_a_place_that_cannot_be_reached_is_an_error(store: Store, replica: Repository) -> None:
    flip(store, keys(store, "objects")[0])

    class Away(MemoryStore):
        @contextmanager
        def open(self, key: str) -> Iterator[BinaryIO]:
            if key != HEADER_KEY:
                raise StorageError("The service does not answer.", code="not-reachable")
            with super().open(key) as reader:
                yield reader

    away = Away(holds=False)
    for key in keys(replica.store):
        away.write(key, replica.store.read(key))
    gone = Repository.open(away)
    with pytest.raises(StorageError, match="does not answer"):
        repair(Repository.open(store), [gone], listed(store))


def test_what_is_no_replica_is_refused(store: Store, replica: Repository) -> None:
    other = Repository.open(MemoryStore(), create=True, digest="sha256")
    with refuses(InputError, "other-digest"):
        repair_all(store, other)
    with refuses(InputError, "same-repository"):
        repair_all(store, Repository.open(store))
