"""A replica: only what is missing moves, each one is whole by itself, and nothing damaged gets there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import ConflictError, InputError, StorageError
from streambank.replicas.repair import repair
from streambank.replicas.replicate import Replicated, newest_first, open_replica, replicate, replicate_to
from streambank.repository.catalog import listed
from streambank.repository.digest import digest_of
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from streambank.work.executor import Pace
from streambank.work.pace import Step
from tests.support.refuses import refuses
from tests.support.repository.repositories import FILES, LARGE, assert_whole, flip, manifest_of, save
from tests.support.storage.contents import keys
from tests.support.storage.faulty_store import READS, WRITES, Fault, FaultyStore

OTHER_LARGE = LARGE + b"!"
LATER = {**FILES, "offsets/4": b"v1\n{}\n{4}", "state/0/1/5.zip": OTHER_LARGE}


@pytest.fixture(params=["memory", "local"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, Store]:
    """Where the source is, and where the replica shall be: copied by the service, and streamed."""
    if request.param == "memory":
        return MemoryStore(), MemoryStore()
    return LocalStore(tmp_path / "one", fsync=False), LocalStore(tmp_path / "two", fsync=False)


@pytest.fixture
def source(stores: tuple[Store, Store]) -> Repository:
    repository = Repository.open(stores[0], create=True)
    save(repository)
    save(repository, LATER, batch=4)
    save(repository, {**FILES, "extra": b"of another job"}, job="orders/late", batch=9)
    return repository


def bring(source: Repository, store: Store, *jobs: str) -> dict[tuple[str, int | None], Replicated]:
    replica = open_replica(source, store)
    found = replicate(
        source, replica, [each for job in jobs or (None,) for each in newest_first(source, job)]
    )
    return {(each.job, each.batch): each for each in found}


def test_everything_goes_once_and_the_replica_is_whole_by_itself(
    source: Repository, stores: tuple[Store, Store]
) -> None:
    target = stores[1]
    found = bring(source, target)

    assert {each.state for each in found.values()} == {"copied"}
    assert next(iter(found)) == ("orders/late", 9)  # the highest batch is wanted most
    everything = {**LATER, "extra": b"of another job"}
    assert sum(each.moved_bytes for each in found.values()) == sum(map(len, everything.values()))
    total = sum(map(len, FILES.values()))
    assert sum(each.there_bytes for each in found.values()) == 2 * total
    for key in keys(source.store, "savepoints"):
        assert target.read(key) == source.store.read(key)
    for key in keys(source.store, ""):
        source.store.delete(key)
    replica = Repository.open(target)
    assert replica.id != source.id
    assert_whole(target)
    assert all(verify(replica, each.job, each.savepoint, "full").ok for each in found.values())


def test_where_all_is_there_nothing_is_written(source: Repository, stores: tuple[Store, Store]) -> None:
    bring(source, stores[1])
    watched = FaultyStore(stores[1])
    again = bring(source, watched)
    assert {each.state for each in again.values()} == {"there"}
    assert sum(each.moved_bytes for each in again.values()) == 0
    assert [call for call in watched.calls if call.operation in WRITES] == []


def test_only_what_is_missing_moves(source: Repository, stores: tuple[Store, Store]) -> None:
    bring(source, stores[1])
    more = {**LATER, "offsets/5": b"v1\n{}\n{5}"}
    save(source, more, batch=5)
    watched = FaultyStore(stores[0])
    found = bring(Repository.open(watched), stores[1])
    assert (found["flights", 5].moved_bytes, found["flights", 5].moved_objects) == (9, 1)
    assert not [call for call in watched.calls if call.operation in READS and "objects/" in call.key]
    assert_whole(stores[1])


def test_one_job_or_one_savepoint(source: Repository, stores: tuple[Store, Store]) -> None:
    assert set(bring(source, stores[1], "orders")) == {("orders/late", 9)}
    replica = Repository.open(stores[1])
    (one,) = replicate(source, replica, [source.find("b000003")])
    assert one.batch == 3
    assert len(keys(stores[1], "savepoints")) == 2


def test_large_objects_are_copied_by_the_service_where_that_is_no_shared_disk(
    source: Repository, stores: tuple[Store, Store]
) -> None:
    watched = FaultyStore(stores[1])
    found = bring(source, watched)
    copied = [call for call in watched.calls if call.operation == "copy_from"]
    by_service = sum(each.service_bytes for each in found.values())
    if stores[1].features.links:  # a reflink would share its blocks, and be lost with them
        assert (copied, by_service) == ([], 0)
    else:
        assert len(copied) == 2 and by_service == len(LARGE) + len(OTHER_LARGE)


def test_what_the_service_copies_is_hashed_before() -> None:
    source = Repository.open(MemoryStore(), create=True)
    save(source)
    (key,) = keys(source.store, "objects")
    flip(source.store, key, 5000)
    watched = FaultyStore(MemoryStore())
    found = bring(source, watched)
    assert found["flights", 3].state == "failed"
    assert keys(watched.inner, "objects") == []
    assert not [call for call in watched.calls if call.operation == "copy_from"]


def test_a_copy_of_another_length_is_replaced_by_bytes_that_are_hashed() -> None:
    class Cutting(MemoryStore):
        def copy_from(self, source: Store, source_key: str, key: str) -> bool:
            self.write(key, source.read(source_key)[:-1] + b"")
            return True

    source = Repository.open(MemoryStore(), create=True)
    save(source)
    target = Cutting()
    found = bring(source, target)
    assert (found["flights", 3].state, found["flights", 3].service_bytes) == ("copied", 0)
    assert_whole(target)


def test_an_object_that_changed_while_the_service_copied_it_is_streamed() -> None:
    class Moving(MemoryStore):
        def copy_from(self, source: Store, source_key: str, key: str) -> bool:
            self.write(key, b"x" * source.stat(source_key).size_bytes)
            source.write(source_key, source.read(source_key))  # another identity
            return True

    source = Repository.open(MemoryStore(), create=True)
    save(source)
    target = Moving()
    assert bring(source, target)["flights", 3].service_bytes == 0
    assert_whole(target)


@pytest.mark.parametrize("folder", ["objects", "packs"])
@pytest.mark.parametrize("how", ["flip", "delete"])
def test_damaged_bytes_are_named_and_stay_where_they_are(
    source: Repository, stores: tuple[Store, Store], folder: str, how: str
) -> None:
    """What only batch 4 of the job needs is damaged: the others go."""
    victim = source.objects.locate(
        next(entry.digest for entry in source.load("flights", manifest_of(LATER, batch=4).savepoint).files
             if entry.path == ("state/0/1/5.zip" if folder == "objects" else "offsets/4"))
    )  # fmt: skip
    if how == "flip":
        flip(stores[0], victim.key, victim.offset)
    else:
        stores[0].delete(victim.key)
    found = bring(Repository.open(stores[0]), stores[1])

    bad = found["flights", 4]
    assert bad.state == "failed"
    ((file, error),) = bad.errors
    assert file == ("state/0/1/5.zip" if folder == "objects" else "offsets/4")
    assert error.code in ("object-damaged", "object-missing", "pack-missing")
    assert victim.key.rpartition("/")[2] in error.message
    assert [found["flights", 3].state, found["orders/late", 9].state] == ["copied", "copied"]
    assert len(keys(stores[1], "savepoints")) == 2
    assert_whole(stores[1])


def test_a_damaged_manifest_at_the_source(source: Repository, stores: tuple[Store, Store]) -> None:
    key = f"savepoints/flights/{manifest_of().savepoint}.json"
    flip(stores[0], key, 200)
    found = bring(source, stores[1])
    assert found["flights", None].state == "failed"
    assert [file for file, _ in found["flights", None].errors] == [key]
    assert_whole(stores[1])


def test_one_bad_place_of_the_disk_is_one_savepoints_matter(source: Repository) -> None:
    for operation in ("read", "held.open"):
        key = "packs/" if operation == "read" else "objects/"
        faulty = FaultyStore(source.store, Fault("error", operations=frozenset({operation}), key=key))
        target = MemoryStore()
        source_again = Repository.open(faulty)
        states = [each.state for each in bring(source_again, target).values()]
        if operation == "held.open":
            faulty.assert_fired()
            assert sorted(states) == ["copied", "copied", "failed"]
        assert_whole(target)
        assert {each.state for each in bring(source, target).values()} <= {"copied", "there"}


def test_what_the_replica_had_lost_is_there_again(source: Repository, stores: tuple[Store, Store]) -> None:
    bring(source, stores[1])
    for key in [*keys(stores[1], "objects"), *keys(stores[1], "packs")]:
        stores[1].delete(key)
    found = bring(source, stores[1])
    assert {each.state for each in found.values()} <= {"refilled", "there"}
    assert found["orders/late", 9].state == "refilled"
    assert_whole(stores[1])


def test_a_damaged_manifest_in_the_replica_is_repairs_matter(
    source: Repository, stores: tuple[Store, Store]
) -> None:
    bring(source, stores[1])
    key = keys(stores[1], "savepoints/flights")[0]
    flip(stores[1], key, 100)
    before = stores[1].read(key)
    ((_, error),) = bring(source, stores[1])["flights", 3].errors
    assert "takes from here what is damaged there" in error.hint
    assert stores[1].read(key) == before


def test_another_take_of_the_same_batch_stays_what_it_is(
    source: Repository, stores: tuple[Store, Store]
) -> None:
    replica = open_replica(source, stores[1])
    save(replica, note="taken here")
    assert bring(source, stores[1])["flights", 3].state == "there"
    assert replica.load("flights", manifest_of().savepoint).note == "taken here"


def test_pins_go_along_and_are_never_taken_away(source: Repository, stores: tuple[Store, Store]) -> None:
    which = "flights", manifest_of().savepoint
    source.pin(*which)
    source.record_verification(*which, level="full", ok=True)
    assert bring(source, stores[1])["flights", 3].pinned
    replica = Repository.open(stores[1])
    assert replica.pinned(*which)
    assert replica.verifications(*which) == []  # it proves itself
    assert not bring(source, stores[1])["flights", 3].pinned
    source.unpin(*which)
    bring(source, stores[1])
    assert replica.pinned(*which)


def test_a_pin_that_cannot_be_read_counts(source: Repository, stores: tuple[Store, Store]) -> None:
    which = "flights", manifest_of().savepoint
    source.pin(*which)
    flip(stores[0], keys(stores[0], "marks")[0], 30)
    one = bring(source, stores[1])["flights", 3]
    assert (one.state, one.pinned, len(one.errors)) == ("copied", True, 1)
    assert Repository.open(stores[1]).pinned(*which)


def test_a_savepoint_that_was_deleted_meanwhile(source: Repository, stores: tuple[Store, Store]) -> None:
    replica = open_replica(source, stores[1])
    which = newest_first(source)
    stores[0].delete(keys(stores[0], "savepoints")[0])
    states = sorted(each.state for each in replicate(source, replica, which))
    assert states == ["copied", "copied", "gone"]


def test_a_savepoint_whose_objects_go_while_they_are_read(source: Repository) -> None:
    class Sweeping(MemoryStore):
        def exists(self, key: str) -> bool:
            return not key.startswith("savepoints/flights") and super().exists(key)

    store = Sweeping()
    repository = Repository.open(store, create=True)
    save(repository)
    store.delete(keys(store, "objects")[0])
    (one,) = replicate(repository, open_replica(repository, MemoryStore()), newest_first(repository))
    assert (one.state, one.errors) == ("gone", ())


def test_the_same_repository_and_other_digests_are_refused(tmp_path: Path) -> None:
    source = Repository.open(MemoryStore(), create=True)
    with refuses(InputError, "same-repository"):
        open_replica(source, source.store)
    other = Repository.open(MemoryStore(), create=True, digest="sha256")
    with refuses(InputError, "other-digest"):
        open_replica(source, other.store)
    assert open_replica(other, MemoryStore()).digest_name == "sha256"
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text("{}")
    with refuses(InputError, "not-empty"):
        open_replica(source, LocalStore(tmp_path / "checkpoint"))


def test_one_replica_that_fails_is_a_report(source: Repository, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    failed = replicate_to(source, open_store, str(tmp_path / "file"), newest_first(source))
    assert not failed.ok and failed.error is not None
    full = FaultyStore(MemoryStore(), Fault("full", operations=frozenset({"write"}), key="packs/", call=2))
    report = replicate_to(source, lambda location: full, "memory://x", newest_first(source))
    full.assert_fired()
    assert isinstance(report.error, StorageError) and report.error.code == "disk-full"
    assert [each.state for each in report.savepoints] == ["copied"]
    assert report.to_dict()["error"]["error"] == "disk-full"
    assert_whole(full.inner)


def test_progress_counts_what_moves(source: Repository) -> None:
    steps: list[Step] = []
    replica = open_replica(source, MemoryStore())
    list(replicate(source, replica, newest_first(source, "orders"), pace=Pace(progress=steps.append)))
    assert (steps[-1].phase, steps[-1].bytes_done) == ("copy", steps[-1].bytes_total)
    assert steps[-1].files_done == len(FILES) + 1


def test_objects_that_are_about_to_be_deleted_are_stored_again(source: Repository) -> None:
    """The replica says so when it comes to list the savepoint; what was known of it counts no more."""

    class Sweeping(Repository):
        refused = 0

        def adopt(self, manifest: Manifest, data: bytes, **how: Any) -> bool:
            if self.refused < 2:
                self.refused += 1
                for key in [*keys(self.store, "objects"), *keys(self.store, "packs")]:
                    self.store.delete(key)
                raise ConflictError("A sweep was faster.", code="objects-condemned")
            return super().adopt(manifest, data, **how)

    target = MemoryStore()
    replica = Sweeping.open(target, create=True)
    (one,) = replicate(source, replica, [source.find("b000003")])
    assert one.state == "copied"
    assert_whole(target)


def test_batches_are_numbers(source: Repository) -> None:
    for batch in (999_999, 1_000_000):
        save(source, batch=batch)
    newest = [savepoint.partition("-")[0] for _, savepoint in newest_first(source, "flights")]
    assert newest[:2] == ["b1000000", "b999999"]


def test_a_replica_that_a_verification_found_damaged_is_not_counted_on(
    source: Repository, stores: tuple[Store, Store]
) -> None:
    bring(source, stores[1], "flights")
    place = Repository.open(stores[1]).objects.locate(digest_of("blake3", FILES["metadata"]))
    flip(stores[1], place.key, place.offset)
    more = save(source, {**FILES, "offsets/7": b"v1\n{7}"}, batch=7)
    assert not verify(Repository.open(stores[1]), "flights", manifest_of().savepoint, "full").ok

    bad = bring(source, stores[1])["flights", 7]

    assert bad.state == "failed"
    ((file, error),) = bad.errors
    assert file == "metadata" and "takes from here what is damaged there" in error.hint
    assert more.savepoint not in " ".join(keys(stores[1], "savepoints"))
    assert repair(Repository.open(stores[1]), [source], listed(stores[1])).ok
    assert bring(source, stores[1])["flights", 7].state == "copied"
    assert_whole(stores[1])


def test_many_replicates_at_once(source: Repository, stores: tuple[Store, Store]) -> None:
    barrier = threading.Barrier(4)

    def race(_: int) -> list[str]:
        barrier.wait()
        return [each.state for each in bring(Repository.open(stores[0]), stores[1]).values()]

    with ThreadPoolExecutor(4) as pool:
        states = [state for found in pool.map(race, range(4)) for state in found]
    assert set(states) <= {"copied", "there"} and states.count("copied") >= 3
    assert_whole(stores[1])
    assert len(keys(stores[1], "savepoints")) == 3
