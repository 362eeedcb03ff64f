"""Takes, expires, sweeps, pins, undeletes, readers, hours, and crashes, in any order, against a model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from streambank.core.errors import ConflictError, IntegrityError, NotFoundError
from streambank.repository.digest import digest_of
from streambank.repository.holds import HoldMarks, Holds, add_hold, hold_key
from streambank.repository.manifest import Manifest
from streambank.repository.repository import ObjectWriter, Repository
from streambank.retention.expire import expire
from streambank.retention.expired import expired_savepoints
from streambank.retention.policy import Policy
from streambank.retention.sweep import sweep
from streambank.retention.undelete import undelete
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.repository.repositories import TAKEN_AT, manifest_of
from tests.support.repository.retention import HOUR_S, assert_whole, large, store_and_list
from tests.support.storage.faulty_store import Fault, FaultyStore, SimulatedCrash
from tests.support.time_travel import time_travel

POOL = {
    "a": b"a" * 300, "b": b"b" * 500, "c": b"", "d": b"d" * 3000, "e": b"e" * 40,
    "x": large(1), "y": large(2), "z": large(3),
}  # fmt: skip
contents = st.sets(st.sampled_from(sorted(POOL)), min_size=1, max_size=5)
crashes = st.one_of(st.none(), st.none(), st.integers(1, 60))


class Repositories(RuleBasedStateMachine):
    """One repository, and what must be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.clock = self.stack.enter_context(time_travel())
        self.store = MemoryStore()
        self.taken: dict[str, set[str]] = {}
        self.pinned: set[str] = set()
        self.slow: tuple[Repository, ObjectWriter, dict[str, bytes], Manifest] | None = None
        self.reading: tuple[Repository, Manifest, HoldMarks, ExitStack] | None = None
        self.batch = 0

    @initialize()
    def begin(self) -> None:
        Repository.open(self.store, create=True)

    def teardown(self) -> None:
        if self.reading is not None:
            self.reading[3].close()
        self.stack.close()

    def advance(self, minutes: int) -> None:
        """Let time pass; who holds a savepoint renews that now and then."""
        for _ in range(minutes // 10):
            self.clock.advance(600)
            if self.reading is not None:
                assert self.reading[2].renew() is None

    def attempt(self, do: Callable[[Store], object], crash: int | None) -> bool:
        """Do something in a separate process, which may be killed; whether it was not."""
        if crash is None:
            do(self.store)
            return True
        try:
            do(FaultyStore(self.store, Fault("crash-after" if crash % 2 else "crash-before", call=crash)))
        except SimulatedCrash:
            return False
        return True

    def next_files(self, names: set[str]) -> dict[str, bytes]:
        self.batch += 1
        return {"offsets": b"%d" % self.batch, **{name: POOL[name] for name in names}}

    @rule(names=contents, crash=crashes)
    def take(self, names: set[str], crash: int | None) -> None:
        files, batch = self.next_files(names), self.batch
        self.taken[manifest_of(files, batch=batch).savepoint] = names
        self.attempt(lambda store: store_and_list(Repository.open(store), files, batch), crash)

    @precondition(lambda self: self.slow is None)
    @rule(names=contents)
    def begin_a_slow_take(self, names: set[str]) -> None:
        files = self.next_files(names)
        manifest = manifest_of(files, batch=self.batch, taken_at=TAKEN_AT + timedelta(hours=self.batch))
        repository = Repository.open(self.store)
        writer = repository.objects.writer()
        for data in files.values():
            writer.add(data, len(data))
        writer.flush()
        self.slow = repository, writer, files, manifest
        self.taken[manifest.savepoint] = names

    @precondition(lambda self: self.slow is not None)
    @rule()
    def end_the_slow_take(self) -> None:
        assert self.slow is not None
        repository, writer, files, manifest = self.slow
        self.slow = None
        for _ in range(3):
            try:
                repository.commit(manifest)
            except (ConflictError, IntegrityError) as error:
                assert error.code in ("objects-condemned", "object-missing")
                writer.forget(manifest.objects())
                for data in files.values():
                    writer.add(data, len(data))
                writer.flush()
            else:
                return
        raise AssertionError("condemned again and again")

    @precondition(lambda self: self.reading is None and self.taken)
    @rule(data=st.data(), dies=st.booleans())
    def begin_to_read(self, data: st.DataObject, dies: bool) -> None:
        listed = assert_whole(self.store)
        if not listed:
            return
        name = data.draw(st.sampled_from(sorted(listed)))
        if dies:
            add_hold(self.store, "blake3", hold_key("flights", name), "restore", {})
            return
        repository, stack = Repository.open(self.store), ExitStack()
        keeper = stack.enter_context(Holds(repository, "restore").held("flights", name))
        manifest = repository.load("flights", name)
        for digest in manifest.objects():
            repository.objects.locate(digest)  # from here on it counts on what it knows
        self.reading = repository, manifest, keeper, stack

    @precondition(lambda self: self.reading is not None)
    @rule()
    def end_reading(self) -> None:
        assert self.reading is not None
        repository, manifest, _, stack = self.reading
        self.reading = None
        with stack:
            assert manifest.savepoint in assert_whole(self.store)
            for digest, size_bytes in manifest.objects().items():
                data = repository.objects.read(digest)
                assert len(data) == size_bytes and digest_of("blake3", data) == digest

    @rule(keep=st.integers(1, 3), daily=st.integers(0, 2), verified=st.integers(0, 2), crash=crashes)
    def expire(self, keep: int, daily: int, verified: int, crash: int | None) -> None:
        before = {each.savepoint: each for each in Repository.open(self.store).manifests()}
        policy = Policy(keep_last=keep, keep_daily=daily, min_verified=verified)
        self.attempt(lambda store: expire(Repository.open(store), policy), crash)
        left = assert_whole(self.store)
        assert len(left) >= min(keep, len(before))
        proven = {name for name, each in before.items() if each.verified_ok}
        assert len(proven & left) >= min(verified, len(proven))
        aside = {copy.savepoint for copy in expired_savepoints(self.store)}
        assert before.keys() <= left | aside
        for name in before.keys() - left:
            del_time = max(c.expired_ns for c in expired_savepoints(self.store) if c.savepoint == name)
            assert self.clock.time_ns() - del_time < 60e9

    @rule(crash=crashes)
    def sweep(self, crash: int | None) -> None:
        before = assert_whole(self.store)
        young = self.undeletable()
        self.attempt(lambda store: sweep(Repository.open(store), grace_s=HOUR_S), crash)
        assert assert_whole(self.store) == before
        assert young <= self.undeletable()

    def undeletable(self) -> set[str]:
        """Expired savepoints that have some minutes of their grace left."""
        return {
            copy.savepoint
            for copy in expired_savepoints(self.store)
            if self.clock.time_ns() - copy.expired_ns < (HOUR_S - 300) * 1e9
        }

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), crash=crashes)
    def undelete(self, data: st.DataObject, crash: int | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.taken)))
        certain = name in self.undeletable() or name in assert_whole(self.store)
        try:
            done = self.attempt(lambda store: undelete(Repository.open(store), name), crash)
        except (NotFoundError, IntegrityError) as error:
            assert not certain, error
        else:
            assert not done or name in assert_whole(self.store)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), ok=st.booleans())
    def verify(self, data: st.DataObject, ok: bool) -> None:
        listed = assert_whole(self.store)
        if listed:
            name = data.draw(st.sampled_from(sorted(listed)))
            Repository.open(self.store).record_verification("flights", name, level="full", ok=ok)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), pinned=st.booleans())
    def pin(self, data: st.DataObject, pinned: bool) -> None:
        listed = assert_whole(self.store)
        if listed:
            name = data.draw(st.sampled_from(sorted(listed)))
            repository = Repository.open(self.store)
            (repository.pin if pinned else repository.unpin)("flights", name)
            self.pinned = self.pinned | {name} if pinned else self.pinned - {name}

    @rule(keep=st.integers(1, 2), crash=crashes)
    def a_night_passes(self, keep: int, crash: int | None) -> None:
        """What a schedule does; it takes three nights to get rid of something for good."""
        self.expire(keep=keep, daily=0, verified=1, crash=None)
        self.advance(70)
        self.sweep(crash=crash)

    @rule(minutes=st.sampled_from([20, 70, 200]))
    def time_passes(self, minutes: int) -> None:
        self.advance(minutes)

    @rule()
    def reindex(self) -> None:
        assert Repository.open(self.store).objects.index.rebuild().damaged == ()

    @invariant()
    def every_listed_savepoint_is_whole_and_what_was_taken(self) -> None:
        if not self.store.exists("repository.json"):
            return
        listed = assert_whole(self.store)
        assert self.pinned <= listed
        for name in listed:
            names = {entry.path for entry in Repository.open(self.store).load("flights", name).files}
            assert names == self.taken[name] | {"offsets"}


TestRepositories = Repositories.TestCase
TestRepositories.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.storm
@pytest.mark.timeout(3600)
def test_for_longer() -> None:
    run_state_machine_as_test(
        Repositories,
        settings=settings(
            max_examples=1000, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
