"""A take and the sweeps of other machines, interleaved at each call that the take makes on the storage.

What the take counts on was left by a savepoint that is gone, so that every sweep wants to have it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from streambank.core.errors import IntegrityError
from streambank.repository.catalog import manifest_key
from streambank.repository.manifest import Manifest
from streambank.repository.objects.objects import Objects
from streambank.repository.repository import Repository, check_lasting
from streambank.retention.sweep import sweep
from streambank.savepoint.take import TakeRequest, take
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.repository.retention import HOUR_S, assert_whole, content, drop, large, store_and_list
from tests.support.storage.interrupting_store import interrupting
from tests.support.time_travel import Clock

FILES = {"offsets/3": b"v1\n{}", "state/0/0/4.delta": b"delta" * 100, "state/0/1/4.zip": large(1)}


def left_behind(clock: Clock) -> MemoryStore:
    """A repository whose only savepoint was expired and has gone for good; its objects are still there."""
    store = MemoryStore()
    repository = Repository.open(store, create=True)
    copy = drop(repository, store_and_list(repository, FILES, batch=3))
    store.delete(copy.key)
    clock.advance(2 * HOUR_S)
    return store


def sweep_now(store: Store) -> None:
    sweep(Repository.open(store), grace_s=HOUR_S)


def sweep_later(store: Store, clock: Clock) -> Callable[[], None]:
    def go() -> None:
        clock.advance(2 * HOUR_S)
        sweep_now(store)

    return go


def in_turn(*steps: Callable[[], None]) -> Callable[[], None]:
    def go() -> None:
        for step in steps:
            step()

    return go


def calls_of_a_take(clock: Clock) -> int:
    store, counted = interrupting(left_behind(clock), {})
    store_and_list(Repository.open(store), FILES, batch=4)
    return counted.calls


def test_condemned_and_deleted_between_any_two_calls(clock: Clock) -> None:
    calls = calls_of_a_take(clock)
    assert calls > 10
    stored_again = 0
    for first in range(1, calls + 1):
        for second in range(first, calls + 9, 2):
            inner = left_behind(clock)
            old = content(inner)
            later = sweep_later(inner, clock)

            now = partial(sweep_now, inner)
            orders: dict[int, Callable[[], None]] = {first: now, second: later}
            if first == second:
                orders = {first: in_turn(now, later)}
            store, interrupted = interrupting(inner, orders)
            store_and_list(Repository.open(store), FILES, batch=4)
            assert interrupted.happened[:1] == [first]
            stored_again += bool(content(inner) - old)
            assert len(assert_whole(inner)) == 1
            later()  # whatever the second one did, one more changes nothing
            assert len(assert_whole(inner)) == 1
    assert stored_again > calls / 2


@pytest.mark.parametrize(("sweeps", "step"), [(2, 1), (4, 5)], ids=["deleted", "deleted and forgotten"])
def test_a_real_take_whose_parent_is_swept_at_any_call(clock: Clock, sweeps: int, step: int) -> None:
    def begin() -> tuple[MemoryStore, LiveCheckpoint, Callable[[], None]]:
        store, checkpoint = MemoryStore(), MemoryStore()
        live = LiveCheckpoint(checkpoint, retain=6).run(5)
        repository = Repository.open(store, create=True)
        parent = take(TakeRequest(checkpoint, repository, "orders")).savepoint
        live.run(1)
        clock.advance(2 * HOUR_S)

        def disaster() -> None:
            if store.exists(manifest_key("orders", parent)):
                copy = drop(repository, repository.load("orders", parent))
                clock.advance(2 * HOUR_S)
                sweep_now(store)
                assert not store.exists(copy.key)
                for _ in range(sweeps - 1):
                    sweep_later(store, clock)()

        return store, live, disaster

    inner, live, _ = begin()
    store, counted = interrupting(inner, {})
    take(TakeRequest(live.store, Repository.open(store), "orders"))
    for number in range(1, counted.calls + 1, step):
        inner, live, disaster = begin()
        store, interrupted = interrupting(inner, {number: disaster})
        result = take(TakeRequest(live.store, Repository.open(store), "orders"))
        assert interrupted.happened == [number]
        assert result.savepoint in assert_whole(inner), number


def test_without_the_last_look_savepoints_would_be_lost(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: the same storms find the hole that the protocol closes."""

    def no_look(held: Objects, manifest: Manifest) -> float:
        return 0.0

    monkeypatch.setattr("streambank.repository.repository.check_lasting", no_look)
    monkeypatch.setattr("streambank.repository.repository.COMMIT_WINDOW_S", float("inf"))
    assert check_lasting is not no_look
    broken = 0
    for number in range(1, calls_of_a_take(clock) + 1):
        inner = left_behind(clock)
        both = in_turn(partial(sweep_now, inner), sweep_later(inner, clock))
        store, _ = interrupting(inner, {number: both})
        store_and_list(Repository.open(store), FILES, batch=4)
        try:
            assert_whole(inner)
        except IntegrityError:
            broken += 1
    assert broken


def test_a_machine_that_slept_while_it_listed_a_savepoint_notices(clock: Clock) -> None:
    calls = calls_of_a_take(clock)
    inner = left_behind(clock)
    both = in_turn(partial(sweep_now, inner), sweep_later(inner, clock))
    store, interrupted = interrupting(inner, {calls: both})  # the very call that creates the manifest
    store_and_list(Repository.open(store), FILES, batch=4)
    assert interrupted.happened and interrupted.calls > calls
    assert len(assert_whole(inner)) == 1


def test_a_machine_that_slept_for_days_lists_nothing_that_is_gone(clock: Clock) -> None:
    calls = calls_of_a_take(clock)
    inner = left_behind(clock)
    days = in_turn(partial(sweep_now, inner), *[sweep_later(inner, clock)] * 3)
    store, interrupted = interrupting(inner, {calls: days})
    with pytest.raises(IntegrityError) as gone:
        store_and_list(Repository.open(store), FILES, batch=4)
    assert gone.value.code == "object-missing" and interrupted.happened
    assert assert_whole(inner) == set()


@pytest.mark.parametrize("tidy", [sweep_now, lambda store: Repository.open(store).objects.index.rebuild()])
def test_a_lost_pack_that_is_stored_again_while_the_index_forgets_it(
    clock: Clock, tidy: Callable[[Store], object]
) -> None:
    """The same objects make a pack of the same name; its index file may have the name of the old one, too."""
    small = {"offsets/3": b"v1\n{}" * 90, "state/0/0/4.delta": b"delta" * 100}

    def begin() -> MemoryStore:
        store = MemoryStore()
        repository = Repository.open(store, create=True)
        store.delete(drop(repository, store_and_list(repository, small, batch=3)).key)
        (pack,) = content(store)
        store.delete(pack)
        clock.advance(2 * HOUR_S)
        return store

    counting, counted = interrupting(begin(), {})
    tidy(counting)
    stored_again = 0
    for number in range(1, counted.calls + 1):
        inner = begin()

        def again(inner: Store = inner) -> None:
            store_and_list(Repository.open(inner), small, batch=4)

        store, interrupted = interrupting(inner, {number: again})
        tidy(store)
        stored_again += bool(interrupted.happened)
        assert len(assert_whole(inner)) == 1, number
    assert stored_again == counted.calls > 5
