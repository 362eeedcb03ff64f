"""Sweeps beside sweeps, and sweeps beside undeletes, interleaved at each call on the storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from streambank.core.errors import IntegrityError, NotFoundError
from streambank.repository.repository import Repository
from streambank.repository.trash import condemn
from streambank.retention.sweep import sweep
from streambank.retention.undelete import undelete
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.repository.retention import HOUR_S, assert_whole, content, drop, large, store_and_list
from tests.support.storage.interrupting_store import interrupting
from tests.support.time_travel import Clock

SHARED = {"shared": b"s" * 400, "zip": large(7)}
KEPT = {**SHARED, "offsets": b"2" * 900}


def sweep_now(store: Store) -> None:
    sweep(Repository.open(store), grace_s=HOUR_S)


def due(clock: Clock, *, condemned: bool) -> tuple[MemoryStore, str]:
    """A repository with work for a sweep, and the id of the one savepoint that is expired in it."""
    store = MemoryStore()
    repository = Repository.open(store, create=True)
    dead = {**SHARED, **{str(number): b"%d" % number * 900 for number in range(9)}}
    gone = store_and_list(repository, dead, 1)
    store_and_list(repository, KEPT, 2)
    drop(repository, gone)
    clock.advance(2 * HOUR_S)
    if condemned:
        sweep_now(store)
        clock.advance(2 * HOUR_S)
    return store, gone.savepoint


def settle(store: Store, clock: Clock) -> None:
    for _ in range(4):
        clock.advance(2 * HOUR_S)
        sweep_now(store)
        assert_whole(store)


def each_call(
    begin: Callable[[], MemoryStore], outer: Callable[[Store], object], inner: Callable[[Store], object]
) -> Iterator[tuple[int, MemoryStore, Callable[[], object]]]:
    """Repository and work, for each call that `outer` makes and at which `inner` happens."""
    counted = interrupting(begin(), {})
    outer(counted[0])
    assert counted[1].calls > 10
    for number in range(1, counted[1].calls + 1):
        store = begin()
        yield number, store, partial(outer, interrupting(store, {number: partial(inner, store)})[0])


@pytest.mark.parametrize("condemned", [False, True], ids=["condemns", "deletes"])
@pytest.mark.parametrize("hours", [0, 2])
def test_a_sweep_at_any_call_of_another(clock: Clock, condemned: bool, hours: int) -> None:
    def another(store: Store) -> None:
        clock.advance(hours * HOUR_S)
        sweep_now(store)

    for number, store, run in each_call(lambda: due(clock, condemned=condemned)[0], sweep_now, another):
        run()
        assert len(assert_whole(store)) == 1
        if number % 12 == 0:
            settle(store, clock)
            assert len(content(store)) <= 4
            assert not Repository.open(store).objects.index.rebuild().changed


def test_copies_that_two_sweeps_condemned_at_once_are_saved(clock: Clock) -> None:
    """Each of them counted on the copy that the other one took."""
    store, _ = due(clock, condemned=False)
    for key in sorted(content(store)):
        condemn(store, "blake3", [key], {})
    clock.advance(2 * HOUR_S)
    before = content(store)
    sweep_now(store)
    assert len(assert_whole(store)) == 1
    assert not before & content(store)


def test_an_undelete_at_any_call_of_a_sweep(clock: Clock) -> None:
    back = lost = 0
    for condemned in (False, True):
        found = due(clock, condemned=condemned)[1]

        def bring_back(store: Store, name: str = found) -> None:
            try:
                undelete(Repository.open(store), name)
            except (NotFoundError, IntegrityError) as error:
                assert error.code in ("not-expired", "savepoint-swept")

        def begin(condemned: bool = condemned) -> MemoryStore:
            return due(clock, condemned=condemned)[0]

        for number, store, run in each_call(begin, sweep_now, bring_back):
            run()
            back += found in assert_whole(store)
            lost += found not in assert_whole(store)
            if number % 7 == 0:
                settle(store, clock)
    assert back > 5 and lost > 5


def test_sweeps_at_any_call_of_an_undelete(clock: Clock) -> None:
    def begin() -> MemoryStore:
        return due(clock, condemned=False)[0]

    def storm(store: Store) -> None:
        for _ in range(2):
            sweep_now(store)
            clock.advance(2 * HOUR_S)
        sweep_now(store)

    name = due(clock, condemned=False)[1]
    back = lost = 0
    for _, store, run in each_call(begin, lambda store: undelete(Repository.open(store), name), storm):
        try:
            run()
        except (NotFoundError, IntegrityError) as error:
            assert error.code in ("not-expired", "savepoint-swept", "objects-condemned")
            lost += 1
        else:
            back += 1
            assert name in assert_whole(store), "it said that it is listed again"
        if name in assert_whole(store):
            settle(store, clock)
    assert back and lost
