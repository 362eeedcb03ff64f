"""Readers that take longer than any grace, beside expires and sweeps: what is held stays, and no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest

from streambank.core.errors import StreambankError
from streambank.replicas.replicate import open_replica, replicate
from streambank.repository import holds as hold_marks
from streambank.repository.holds import HOLD_S, MAX_HOLD_S, Holds, add_hold, hold_key, holds
from streambank.repository.repository import Repository
from streambank.retention import expire as expiring
from streambank.retention.expire import expire
from streambank.retention.expired import expired_savepoints
from streambank.retention.policy import Policy
from streambank.retention.sweep import SweepReport, sweep
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from streambank.work.executor import Pace
from tests.support.repository.repositories import flip
from tests.support.repository.retention import HOUR_S, assert_whole, content, drop, large, store_and_list
from tests.support.storage.interrupting_store import interrupting
from tests.support.time_travel import Clock, time_travel

JOB = "flights"
KEEP = Policy(keep_last=1, min_verified=0)
LONG_S = 40 * HOUR_S


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    with time_travel() as clock:
        # An expire that has copied nothing yet goes by this machine's clock, which is the same one here.
        monkeypatch.setattr(expiring, "_own_ns", clock.time_ns)
        yield clock


@pytest.fixture
def long_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds that are renewed all the time, as far as anybody can tell."""
    monkeypatch.setattr(hold_marks, "HOLD_S", LONG_S)
    monkeypatch.setattr(hold_marks, "MAX_HOLD_S", LONG_S)


@pytest.fixture
def repository() -> Repository:
    return Repository.open(MemoryStore(), create=True)


def sweep_now(store: Store) -> SweepReport:
    return sweep(Repository.open(store), grace_s=HOUR_S)


def two(store: Store) -> tuple[str, str]:
    """Two savepoints with nothing in common."""
    repository = Repository.open(store, create=True)
    old, new = (
        store_and_list(repository, {"offsets": b"%d" % batch * 300, "zip": large(batch)}, batch)
        for batch in (1, 2)
    )
    return old.savepoint, new.savepoint


def holds_on(store: Store, clock: Clock) -> int:
    return sum(hold.counts for hold in holds(store, clock.time_ns()))


# What a hold is


def test_it_counts_for_an_hour_and_ends_by_itself(repository: Repository, clock: Clock) -> None:
    old, _ = two(repository.store)
    add_hold(repository.store, "blake3", hold_key(JOB, old), "restore", {"user": "ann", "host": "etl-1"})
    (hold,) = holds(repository.store, clock.time_ns())
    assert (hold.which, hold.holder) == ((JOB, old), "restore by ann on etl-1")
    assert HOLD_S - 10 < hold.left_s <= HOLD_S
    clock.advance(HOLD_S)
    assert not holds(repository.store, clock.time_ns())[0].counts
    sweep_now(repository.store)
    assert holds(repository.store, clock.time_ns()) == []


def test_a_clock_that_is_set_forward_here_ends_none_of_this_machine(repository: Repository) -> None:
    old, _ = two(repository.store)
    add_hold(repository.store, "blake3", hold_key(JOB, old), "restore", {})
    (hold,) = holds(
        repository.store, repository.store.stat("repository.json").mtime_ns + int(9 * HOUR_S * 1e9)
    )
    assert hold.counts  # the boot clock knows better


def test_one_that_cannot_be_read_counts_for_a_day(repository: Repository, clock: Clock) -> None:
    old, _ = two(repository.store)
    key = hold_key(JOB, old)
    add_hold(repository.store, "blake3", key, "restore", {})
    flip(repository.store, key, 60)
    clock.advance(MAX_HOLD_S - HOUR_S)
    assert holds_on(repository.store, clock) == 1
    assert [each.keep for each in expire(repository, KEEP).decisions] == [True, True]
    clock.advance(2 * HOUR_S)
    assert holds_on(repository.store, clock) == 0


def test_one_that_says_it_counts_for_ever_counts_for_a_day(
    repository: Repository, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = two(repository.store)
    monkeypatch.setattr(hold_marks, "HOLD_S", 1e9)
    add_hold(repository.store, "blake3", hold_key(JOB, old), "restore", {})
    clock.advance(MAX_HOLD_S - HOUR_S)
    assert holds_on(repository.store, clock) == 1
    clock.advance(2 * HOUR_S)
    assert holds_on(repository.store, clock) == 0


def test_what_is_no_hold_of_a_savepoint_is_passed_over(repository: Repository, clock: Clock) -> None:
    old, _ = two(repository.store)
    repository.pin(JOB, old)
    for name in ("hold-0000000001.json", "hold-xyz.json", f"hold-{'0' * 32}.txt"):
        repository.store.write(f"marks/{JOB}/{old}/{name}", b"")
    repository.store.write(f"marks/hold-{'0' * 32}.json", b"")
    assert holds(repository.store, clock.time_ns()) == []


# What expire makes of it


def test_a_held_savepoint_is_kept_with_the_reason(repository: Repository, clock: Clock) -> None:
    old, _ = two(repository.store)
    with Holds(repository, "restore", {"user": "ann"}).held(JOB, old):
        kept = expire(repository, KEEP).decisions[1]
        assert (kept.summary.savepoint, kept.keep) == (old, True)
        assert [(reason.rule, reason.why) for reason in kept.reasons] == [
            ("held", "it is being read: restore by ann")
        ]
    assert [each.summary.savepoint for each in expire(repository, KEEP).dropped] == [old]


def test_a_promise_never_leans_on_a_hold(repository: Repository, clock: Clock) -> None:
    old, new = two(repository.store)
    last = store_and_list(repository, {"offsets": b"last"}, 3).savepoint
    for verified in (old, new):
        repository.record_verification(JOB, verified, level="full", ok=True)
    with Holds(repository, "restore").held(JOB, old):
        decisions = expire(repository, Policy(keep_last=1, min_verified=1)).decisions
    assert [(each.summary.savepoint, each.reasons[0].rule) for each in decisions] == [
        (last, "last"), (new, "min-verified"), (old, "held"),
    ]  # fmt: skip


def test_an_abandoned_hold_only_delays(repository: Repository, clock: Clock) -> None:
    old, _ = two(repository.store)
    add_hold(repository.store, "blake3", hold_key(JOB, old), "restore", {})
    assert expire(repository, KEEP).dropped == ()
    clock.advance(HOLD_S + 1)
    assert len(expire(repository, KEEP).dropped) == 1
    for _ in range(3):
        clock.advance(2 * HOUR_S)
        sweep_now(repository.store)
    assert len(content(repository.store)) == 2
    assert repository.store.names(f"marks/{JOB}/{old}") == []


def test_expire_and_hold_in_the_same_moment(clock: Clock) -> None:
    """At whatever call of the expire somebody begins to hold: it is listed, or the reader is told so."""
    kept = told = number = 0
    while True:
        number += 1
        inner = MemoryStore()
        old, _ = two(inner)
        held: list[str] = []

        def hold(inner: MemoryStore = inner, old: str = old, held: list[str] = held) -> None:
            key = hold_key(JOB, old)
            add_hold(inner, "blake3", key, "restore", {})
            if inner.exists(f"savepoints/{JOB}/{old}.json"):  # as a holder does, after its mark
                held.append(old)
            else:
                inner.delete(key)

        store, interrupted = interrupting(inner, {number: hold})
        expire(Repository.open(store), KEEP)
        if not interrupted.happened:
            break
        listed = assert_whole(inner)
        assert old in listed if held else old not in listed
        kept += bool(held)
        told += not held
    assert kept > 5 and told >= 1


# What sweep makes of it


def test_nothing_of_a_held_savepoint_goes_although_it_was_expired(
    repository: Repository, clock: Clock, long_holds: None
) -> None:
    old, _ = two(repository.store)
    manifest = repository.load(JOB, old)
    before = content(repository.store)
    with Holds(repository, "restore", {"user": "ann"}).held(JOB, old):
        copy = drop(repository, manifest)  # an expire that did not see the hold
        for _ in range(4):
            clock.advance(2 * HOUR_S)
            report = sweep_now(repository.store)
            assert (report.condemned.files, report.deleted.files, report.removed) == (0, 0, [])
        assert [hold.which for hold in report.holds] == [(JOB, old)]
        assert content(repository.store) == before
        assert [each.key for each in expired_savepoints(repository.store)] == [copy.key]
        repository.objects.refresh()
        assert repository.objects.read(manifest.files[1].digest) == large(1)
    for expected in ((2, 0), (0, 2)):
        clock.advance(2 * HOUR_S)
        report = sweep_now(repository.store)
        assert (report.condemned.files, report.deleted.files) == expected
    assert expired_savepoints(repository.store) == []


def test_what_was_condemned_before_waits_for_a_hold(
    repository: Repository, clock: Clock, long_holds: None
) -> None:
    """A pack that is mostly dead is condemned; a reader that counts on the rest of it comes later."""
    mostly_dead = {"shared": b"s" * 400, **{str(number): b"%d" % number * 900 for number in range(10)}}
    drop(repository, store_and_list(repository, mostly_dead, 1))
    kept = store_and_list(repository, {"shared": b"s" * 400, "offsets": b"2"}, 2)
    clock.advance(2 * HOUR_S)
    sweep_now(repository.store)
    clock.advance(2 * HOUR_S)
    with Holds(repository, "restore").held(JOB, kept.savepoint):
        dry = sweep(Repository.open(repository.store), grace_s=HOUR_S, dry_run=True)
        report = sweep_now(repository.store)
        assert (report.held.files, report.deleted.files, report.waiting.files) == (1, 0, 1)
        assert report.to_dict()["held"]["files"] == 1 and report.to_dict()["holds"][0]["purpose"] == "restore"
        assert dry.deleted.files == 0
    assert sweep_now(repository.store).deleted.files == 1
    assert assert_whole(repository.store) == {kept.savepoint}


def disaster(store: Store, clock: Clock, old: str, *, blindly: bool) -> Callable[[], None]:
    """An expire and the sweeps of two days, in one moment."""

    def go() -> None:
        repository = Repository.open(store)
        if blindly and store.exists(f"savepoints/{JOB}/{old}.json"):
            drop(repository, repository.load(JOB, old))
        expire(repository, KEEP)
        for _ in range(3):
            clock.advance(2 * HOUR_S)
            sweep_now(store)

    return go


def bring(source: Store, old: str) -> tuple[str, Store]:
    replica = MemoryStore()
    opened = Repository.open(source)
    target = open_replica(opened, replica)
    (done,) = replicate(opened, target, [(JOB, old)], pace=Pace(parallel=1))
    return done.state, replica


def states(clock: Clock, *, blindly: bool) -> list[str]:
    """What comes of a replicate, with a disaster before each of the calls that it makes at the source."""
    found: list[str] = []
    while True:
        inner = MemoryStore()
        old, _ = two(inner)
        at = {len(found) + 1: disaster(inner, clock, old, blindly=blindly)}
        store, interrupted = interrupting(inner, at)
        try:
            state, replica = bring(store, old)
        except StreambankError as error:
            state = type(error).__name__
        else:
            assert assert_whole(replica) == ({old} if state == "copied" else set())
        if not interrupted.happened:
            assert state == "copied"
            return found
        found.append(state)


@pytest.mark.parametrize("blindly", [False, True])
def test_a_replicate_that_takes_days_ends_well_once_it_has_its_hold(
    clock: Clock, long_holds: None, blindly: bool
) -> None:
    found = states(clock, blindly=blindly)
    held_from = found.index("copied")
    assert 0 < held_from < len(found) - 6
    assert set(found[:held_from]) == {"gone"} and set(found[held_from:]) == {"copied"}


def test_without_holds_it_would_not(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the same disasters take away what is being read."""
    monkeypatch.setattr(Holds, "held", lambda self, job, savepoint: nullcontext())
    found = states(clock, blindly=False)
    assert 2 * found.count("copied") < len(found) and found.count("gone") > 6


def beside_a_repack(clock: Clock) -> list[str]:
    """What comes of a reader that knows one pack, which is stored again and deleted between its calls."""

    def prepared() -> tuple[MemoryStore, str]:
        store = MemoryStore()
        repository = Repository.open(store, create=True)
        mostly_dead = {"shared": b"s" * 400, **{str(number): b"%d" % number * 900 for number in range(10)}}
        copy = drop(repository, store_and_list(repository, mostly_dead, 1))
        kept = store_and_list(repository, {"shared": b"s" * 400, "offsets": b"2"}, 2)
        store.delete(copy.key)
        clock.advance(2 * HOUR_S)
        return store, kept.savepoint

    def sweeps(store: Store, times: int) -> Callable[[], None]:
        def go() -> None:
            for _ in range(times):
                clock.advance(2 * HOUR_S)
                sweep_now(store)

        return go

    inner, old = prepared()
    store, counted = interrupting(inner, {})
    assert bring(store, old)[0] == "copied"
    found = []
    for number in range(1, counted.calls + 1):
        for before in (0, 1):  # condemned only now, or an hour ago
            inner, old = prepared()
            sweeps(inner, before)()
            store, interrupted = interrupting(inner, {number: sweeps(inner, 2 - before)})
            state, replica = bring(store, old)
            assert interrupted.happened
            assert assert_whole(replica) == ({old} if state == "copied" else set())
            found.append(state)
    return found


def test_a_reader_of_a_listed_savepoint_beside_a_repack(clock: Clock, long_holds: None) -> None:
    assert set(beside_a_repack(clock)) == {"copied"}


def test_even_without_a_hold_such_a_reader_finds_what_was_stored_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Holds, "held", lambda self, job, savepoint: nullcontext())
    assert set(beside_a_repack(clock)) == {"copied"}
