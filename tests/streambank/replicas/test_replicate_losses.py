"""Replicas that lose something while they are filled, or of which it is known that they have."""

from __future__ import annotations

import pytest

from streambank.core.errors import IntegrityError
from streambank.replicas.repair import repair
from streambank.replicas.replicate import Replicated, newest_first, open_replica, replicate
from streambank.repository.catalog import listed
from streambank.repository.digest import digest_of
from streambank.repository.repository import Repository
from streambank.retention.sweep import sweep
from streambank.savepoint.verify import verify
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.repository.repositories import FILES, flip, save
from tests.support.repository.retention import HOUR_S, assert_whole, content, drop
from tests.support.storage.contents import keys
from tests.support.storage.faulty_store import FaultyStore
from tests.support.storage.interrupting_store import interrupting
from tests.support.time_travel import time_travel

NEXT = {**FILES, "offsets/4": b"v1\n{}\n{4}"}


@pytest.fixture
def source() -> Repository:
    repository = Repository.open(MemoryStore(), create=True)
    save(repository)
    save(repository, NEXT, batch=4)
    return repository


def bring(source: Repository, store: Store) -> dict[int | None, Replicated]:
    found = replicate(source, open_replica(source, store), newest_first(source))
    return {each.batch: each for each in found}


def test_what_sweeps_of_the_replica_delete_at_any_moment_is_brought_again(source: Repository) -> None:
    """So long ago that their records are gone, too: what was known to be there is simply missing."""
    with time_travel() as clock:

        def begin() -> MemoryStore:
            store = MemoryStore()
            bring(source, store)
            replica = Repository.open(store)
            for which in listed(store):
                store.delete(drop(replica, replica.load(*which)).key)
            clock.advance(2 * HOUR_S)
            return store

        counting, counted = interrupting(begin(), {})
        bring(source, counting)
        deleted = 0
        for number in range(1, counted.calls + 1, 2):
            inner = begin()
            left = content(inner)

            def days(inner: Store = inner, left: set[str] = left) -> None:
                nonlocal deleted
                for _ in range(3):
                    sweep(Repository.open(inner), grace_s=HOUR_S)
                    clock.advance(2 * HOUR_S)
                deleted += not left & content(inner)

            store, interrupted = interrupting(inner, {number: days})
            states = {each.state for each in bring(source, store).values()}
            assert interrupted.happened and states <= {"copied", "there"}, number
            assert len(assert_whole(inner)) == 2
        assert deleted > 5


def test_what_is_lost_again_and_again_is_said(source: Repository) -> None:
    class Leaking(MemoryStore):
        def names(self, prefix: str = "") -> list[str]:
            if prefix == "condemned":  # each look at what is there to stay
                for key in keys(self, "objects"):
                    self.delete(key)
            return [*super().names(prefix)]

    target = Leaking()
    found = bring(source, target)
    assert [each.state for each in found.values()] == ["failed", "failed"]
    assert all(error.code == "object-missing" for each in found.values() for _, error in each.errors)
    assert keys(target, "savepoints") == []


def test_a_savepoint_that_was_found_damaged_there_is_not_said_to_be_there(
    source: Repository,
) -> None:
    target = MemoryStore()
    bring(source, target)
    place = Repository.open(target).objects.locate(digest_of("blake3", NEXT["offsets/4"]))
    flip(target, place.key, place.offset)
    assert {each.state for each in bring(source, target).values()} == {"there"}  # nobody knows
    for which in listed(target):
        verify(Repository.open(target), *which, "full")

    watched = FaultyStore(target)
    found = bring(source, watched)
    assert (found[3].state, found[4].state) == ("there", "failed")
    ((file, error),) = found[4].errors
    assert (
        file == "offsets/4"
        and isinstance(error, IntegrityError)
        and "takes from here what is damaged there" in error.hint
    )

    assert repair(Repository.open(target), [source], listed(target)).ok
    assert {each.state for each in bring(source, target).values()} == {"there"}
