"""Readers who looked at the index long ago, and objects that sweeps have had stored elsewhere since."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streambank.replicas.replicate import open_replica, replicate
from streambank.repository.digest import digest_of
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.retention.sweep import sweep
from streambank.savepoint.verify import verify
from streambank.storage.memory import MemoryStore
from tests.support.repository.retention import HOUR_S, assert_whole, content, drop, large, store_and_list
from tests.support.time_travel import Clock

KEPT = {"shared": b"s" * 400, "zip": large(7)}
DEAD = {**KEPT, **{str(number): b"%d" % number * 900 for number in range(9)}}


@pytest.fixture
def moved(clock: Clock) -> tuple[Repository, Manifest]:
    """A repository as somebody knows it who read its index before all that its savepoint names was moved."""
    store = MemoryStore()
    repository = Repository.open(store, create=True)
    store.delete(drop(repository, store_and_list(repository, DEAD, 1)).key)
    reader = Repository.open(store)
    for data in KEPT.values():
        assert reader.objects.read(digest_of("blake3", data)) == data
    old = content(store)
    clock.advance(2 * HOUR_S)
    sweep(Repository.open(store), grace_s=HOUR_S)
    kept = store_and_list(Repository.open(store), KEPT, 2)
    clock.advance(2 * HOUR_S)
    sweep(Repository.open(store), grace_s=HOUR_S)
    assert not old & content(store)
    return reader, kept


def read_all(reader: Repository, kept: Manifest) -> None:
    for data in KEPT.values():
        assert reader.objects.read(digest_of("blake3", data)) == data


def read_many(reader: Repository, kept: Manifest) -> None:
    assert {data for _, data in reader.objects.read_many(kept.objects())} == set(KEPT.values())


def verify_quickly(reader: Repository, kept: Manifest) -> None:
    assert verify(reader, kept.job, kept.savepoint, "quick").ok


def verify_fully(reader: Repository, kept: Manifest) -> None:
    assert verify(reader, kept.job, kept.savepoint, "full").ok


def bring_to_a_replica(reader: Repository, kept: Manifest) -> None:
    replica = open_replica(reader, MemoryStore())
    (one,) = replicate(reader, replica, [(kept.job, kept.savepoint)])
    assert one.state == "copied", one.errors
    assert assert_whole(replica.store) == {kept.savepoint}


@pytest.mark.parametrize("read", [read_all, read_many, verify_quickly, verify_fully, bring_to_a_replica])
def test_what_was_moved_is_found_where_it_is(
    moved: tuple[Repository, Manifest], read: Callable[[Repository, Manifest], None]
) -> None:
    read(*moved)


def test_a_long_verification_condemns_no_savepoint_that_was_repacked_meanwhile(clock: Clock) -> None:
    store = MemoryStore()
    repository = Repository.open(store, create=True)
    gone = store_and_list(repository, DEAD, 1)
    kept = store_and_list(repository, KEPT, 2)
    reader = Repository.open(store)
    assert verify(reader, kept.job, kept.savepoint, "full").ok
    store.delete(drop(repository, gone).key)
    for _ in range(2):
        clock.advance(2 * HOUR_S)
        sweep(Repository.open(store), grace_s=HOUR_S)
    assert verify(reader, kept.job, kept.savepoint, "full").ok
    (summary,) = Repository.open(store).manifests()
    assert summary.verified_ok
