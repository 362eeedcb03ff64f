"""A crash or failure at any call of a replicate or a repair: nothing gets worse, a second run converges."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from streambank.core.errors import ConflictError, StorageError
from streambank.replicas.header_repair import open_for_repair
from streambank.replicas.repair import repair
from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.repository.catalog import listed
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Features, Store
from streambank.work.executor import Pace
from tests.support.repository.repositories import FILES, assert_whole, flip, save
from tests.support.storage.contents import keys
from tests.support.storage.faulty_store import WRITES, Fault, FaultyStore, Kind, SimulatedCrash
from tests.support.storage.s3_servers import S3Server, seaweedfs

pytestmark = pytest.mark.storm

__all__ = ["seaweedfs"]  # fixture

CRASHES: tuple[Kind, ...] = ("crash-before", "crash-during", "crash-after")
FAILURES: tuple[Kind, ...] = ("error", "full", "lost-reply")


class Disk(MemoryStore):
    """A place whose copies may share blocks with their source, so that objects are streamed."""

    @property
    def features(self) -> Features:
        return Features(links=True)

    def copy_from(self, source: Store, source_key: str, key: str) -> bool:
        raise AssertionError("never between disks")


def filled() -> MemoryStore:
    store = MemoryStore()
    repository = Repository.open(store, create=True)
    first = save(repository)
    save(repository, {**FILES, "offsets/4": b"next"}, batch=4)
    repository.pin(first.job, first.savepoint)
    return store


def bring(source: Store, target: Store) -> None:
    opened = Repository.open(source)
    list(replicate(opened, open_replica(opened, target), newest_first(opened), pace=Pace(parallel=1)))


def whole(store: Store) -> set[str]:
    """The savepoints that verify in full."""
    repository = Repository.open(store)
    return {
        savepoint
        for job, savepoint in listed(store)
        if verify(repository, job, savepoint, "full", record=False).restorable
    }


@pytest.mark.parametrize("place", [MemoryStore, Disk])
@pytest.mark.parametrize("kind", [*CRASHES, *FAILURES])
def test_replicate_fails_at_any_call_of_the_replica(kind: Kind, place: Callable[[], MemoryStore]) -> None:
    """At every call for a crash before it; between calls that only read nothing on the disk changes."""
    source = filled()
    for number in numbers(lambda store: bring(source, store), place(), every_call=kind == "crash-before"):
        target = place()
        faulty = FaultyStore(target, Fault(kind, call=number))
        with suppress(SimulatedCrash, StorageError, ConflictError):
            bring(source, faulty)
        faulty.assert_fired()
        assert_whole(target)

        bring(source, target)

        assert_whole(target)
        assert len(whole(target)) == 2
        assert [each.pinned for each in Repository.open(target).manifests()] == [True, False]


def test_in_another_order_a_crash_would_leave_a_savepoint_that_is_not_whole() -> None:
    """What the test above is able to find."""
    source = filled()

    def careless(target: Store) -> None:
        open_replica(Repository.open(source), target)
        for key in keys(source, "savepoints"):
            target.write(key, source.read(key))
        bring(source, target)

    found = 0
    for number in numbers(careless, Disk(), every_call=False):
        target = Disk()
        with suppress(SimulatedCrash):
            careless(FaultyStore(target, Fault("crash-before", call=number)))
        try:
            assert_whole(target)
        except AssertionError:
            found += 1
    assert found > 2


def numbers(work: Callable[[Store], None], store: Store, *, every_call: bool) -> list[int]:
    """The calls of some work: all of them, or those that change something."""
    undisturbed = FaultyStore(store)
    work(undisturbed)
    found = [
        number for number, call in enumerate(undisturbed.calls, 1) if every_call or call.operation in WRITES
    ]
    assert len(found) > (30 if every_call else 6)
    return found


@pytest.mark.parametrize("kind", ["crash-before", "error", "flip", "short-read"])
def test_replicate_fails_at_any_call_of_the_source(kind: Kind) -> None:
    source = filled()
    undisturbed = FaultyStore(source)
    bring(undisturbed, Disk())
    for number in range(1, len(undisturbed.calls) + 1):
        faulty = FaultyStore(source, Fault(kind, call=number))
        target = Disk()
        with suppress(SimulatedCrash, Exception):
            bring(faulty, target)
        faulty.assert_fired()
        assert_whole(target)
        bring(source, target)
        assert len(whole(target)) == 2


def damaged(source: MemoryStore) -> MemoryStore:
    """A copy of a repository with something wrong in a file of each kind."""
    store = MemoryStore()
    for key in keys(source):
        store.write(key, source.read(key))
    first, second = keys(store, "packs")
    flip(store, first, 3)
    store.delete(second)
    flip(store, keys(store, "objects")[0], 70_000)
    flip(store, keys(store, "index")[0], 90)
    flip(store, keys(store, "savepoints")[1], 120)
    flip(store, "repository.json", 40)
    return store


def mend(store: Store, replica: Store) -> None:
    repository, error = open_for_repair(store, dry_run=False)
    report = repair(
        repository, [Repository.open(replica)], listed(store), header_error=error, pace=Pace(parallel=1)
    )
    assert report.ok, report.to_dict()


def repair_with(kind: Kind, *, every_call: bool) -> None:
    """Repair with one fault, at each call that changes something or at each call there is; then again."""
    source = filled()
    replica = Disk()
    bring(source, replica)
    for number in numbers(lambda store: mend(store, replica), damaged(source), every_call=every_call):
        store = damaged(source)
        before = {key for key in keys(store) if not key.startswith("index/")}
        faulty = FaultyStore(store, Fault(kind, call=number))
        with suppress(SimulatedCrash, StorageError, ConflictError, AssertionError):
            mend(faulty, replica)
        faulty.assert_fired()
        assert before <= set(keys(store))  # nothing goes away but index files, which are made again

        mend(store, replica)

        assert len(whole(store)) == 2
        assert [each.pinned for each in Repository.open(store).manifests()] == [True, False]
        assert_whole(replica)


@pytest.mark.parametrize("kind", [*CRASHES, *FAILURES])
def test_repair_fails_at_any_call_that_changes_something(kind: Kind) -> None:
    """What is on the disk is the same before, between and after calls that only read."""
    repair_with(kind, every_call=False)


@pytest.mark.storm
@pytest.mark.parametrize("kind", [*CRASHES, *FAILURES])
def test_repair_fails_at_any_call(kind: Kind) -> None:
    repair_with(kind, every_call=True)


@pytest.mark.storm
@pytest.mark.parametrize("kind", CRASHES)
@pytest.mark.parametrize("where", ["local", "s3"])
def test_on_disks_and_buckets_too(
    where: str, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    places = itertools.count()
    if where == "s3":
        server: S3Server = request.getfixturevalue("seaweedfs").use(monkeypatch)

    def place() -> Store:
        if where == "s3":
            return open_store(server.location())
        return LocalStore(tmp_path / str(next(places)), fsync=False)

    source = place()
    for key in keys(filled()):
        source.write(key, filled().read(key))
    for number in numbers(lambda store: bring(source, store), place(), every_call=False):
        target = place()
        faulty = FaultyStore(target, Fault(kind, call=number))
        with suppress(SimulatedCrash):
            bring(source, faulty)
        faulty.assert_fired()
        assert_whole(target)
        bring(source, target)
        assert len(whole(target)) == 2
        for prefix in ("objects", "packs", "savepoints"):
            flip(target, keys(target, prefix)[0], 60)
        broken = FaultyStore(target, Fault(kind, call=3, operations=WRITES))
        with suppress(SimulatedCrash):
            mend(broken, source)
        broken.assert_fired()
        mend(target, source)
        assert len(whole(target)) == 2
