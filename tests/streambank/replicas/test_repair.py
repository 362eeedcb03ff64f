"""Whatever file of a repository is damaged: a replica that has its bytes whole gives them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from streambank.errors import InputError, IntegrityError, NotFoundError, StorageError
from streambank.replicas.headless import open_for_repair
from streambank.replicas.repair import RepairReport, repair
from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.savepoint.catalog import listed
from streambank.savepoint.digest import digest_of
from streambank.savepoint.packs import SMALL_BYTES, TRAILER_BYTES, pack_key, read_pack
from streambank.savepoint.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage.base import Store
from streambank.storage.local import LocalStore
from streambank.storage.memory import MemoryStore
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.repositories import FILES, LARGE, assert_whole, flip, keys, manifest_of, save

NEXT = {**FILES, "offsets/4": b"v1\n{}\n{4}", "commits/4": b"v1\n{4}"}
FIRST, SECOND = manifest_of().savepoint, manifest_of(NEXT, batch=4).savepoint


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


def mend(store: Store, *replicas: Repository, dry_run: bool = False, job: str | None = None) -> RepairReport:
    repository, error = open_for_repair(store, dry_run=dry_run)
    return repair(repository, replicas, listed(store, job), header_error=error, dry_run=dry_run)


def damage(store: Store) -> int:
    """How many savepoints do not verify in full."""
    repository = Repository.open(store)
    return sum(not verify(repository, *each, "full", record=False).restorable for each in listed(store))


def contents(store: Store) -> dict[str, bytes]:
    return {key: store.read(key) for key in keys(store) if not key.startswith("marks/")}


def pack_of(store: Store, data: bytes) -> str:
    return Repository.open(store).object_location(digest_of("blake3", data)).key


def cut(store: Store, key: str) -> None:
    store.write(key, store.read(key)[:-1])


def grow(store: Store, key: str) -> None:
    store.write(key, store.read(key) + b"\0")


def empty(store: Store, key: str) -> None:
    store.write(key, b"")


def delete(store: Store, key: str) -> None:
    store.delete(key)


def flip_table(store: Store, key: str) -> None:
    flip(store, key, -200)


def flip_trailer(store: Store, key: str) -> None:
    flip(store, key, -5)


DAMAGES: list[Callable[[Store, str], None]] = [flip, cut, grow, empty, delete]


def test_where_nothing_is_damaged_nothing_is_written(store: Store, replica: Repository) -> None:
    before = contents(store)
    report = mend(store, replica)
    assert (report.ok, report.repaired, report.verified) == (True, [], [])
    assert contents(store) == before
    assert keys(store, "marks") == []


@pytest.mark.parametrize("how", DAMAGES)
def test_a_large_object(store: Store, replica: Repository, how: Callable[[Store, str], None]) -> None:
    before = contents(store)
    (key,) = keys(store, "objects")
    how(store, key)
    assert damage(store) == 2
    report = mend(store, replica)
    assert report.ok
    assert [(one.kind, one.file, one.bytes, one.sources) for one in report.repaired] == [
        ("object", key, len(LARGE), (replica.store.uri,))
    ]
    assert contents(store) == before
    assert [one.level for one in report.verified] == ["full", "full"]
    assert all(each.verified_ok for each in Repository.open(store).manifests())


@pytest.mark.parametrize("how", [*DAMAGES, flip_table, flip_trailer])
def test_a_pack_gets_its_very_bytes_back(
    store: Store, replica: Repository, how: Callable[[Store, str], None]
) -> None:
    before = contents(store)
    key = pack_of(store, FILES["state/0/0/4.delta"])
    how(store, key)
    report = mend(store, replica)
    assert report.ok, report.to_dict()
    assert [(one.kind, one.file) for one in report.repaired] == [("pack", key)]
    assert contents(store) == before


def test_objects_are_taken_from_the_repository_itself_where_they_are_whole(
    store: Store, replica: Repository
) -> None:
    key = pack_of(store, FILES["state/0/0/4.delta"])
    flip_table(store, key)
    (one,) = mend(store, replica).repaired
    assert (one.objects, one.sources) == (0, ())


def test_a_pack_of_which_a_part_is_lost_everywhere(store: Store, replica: Repository) -> None:
    """Its length is right: what can be had is put in place, and the rest stays as it is."""
    key = pack_of(store, FILES["state/0/0/4.delta"])
    repository = Repository.open(store)
    lost, found = FILES["metadata"], FILES["state/0/0/4.delta"]
    for data in (lost, found):
        flip(store, key, repository.object_location(digest_of("blake3", data)).offset)
    flip_table(store, key)
    there = replica.object_location(digest_of("blake3", lost))
    flip(replica.store, there.key, there.offset)
    bad = repository.store.read(key)[: len(lost)]

    report = mend(store, Repository.open(replica.store))

    assert not report.ok
    ((missing,),) = [report.not_repaired]
    assert missing.file == key and missing.needed_by == (f"flights/{FIRST}", f"flights/{SECOND}")
    assert replica.store.uri in missing.reason
    fresh = Repository.open(store)
    assert fresh.read_object(digest_of("blake3", found)) == found
    fresh.check_pack(key.rpartition("/")[2])
    assert store.read(key)[: len(lost)] == bad


@pytest.mark.parametrize("how", [cut, delete])
def test_a_pack_that_is_cut_or_gone_and_a_part_is_lost_everywhere(
    store: Store, replica: Repository, how: Callable[[Store, str], None]
) -> None:
    """What can be had is stored in a new pack; the remains stay."""
    key = pack_of(store, FILES["state/0/0/4.delta"])
    lost = FILES["metadata"]
    flip(store, key, Repository.open(store).object_location(digest_of("blake3", lost)).offset)
    how(store, key)
    remains = store.read(key) if store.exists(key) else None
    there = replica.object_location(digest_of("blake3", lost))
    flip(replica.store, there.key, there.offset)

    report = mend(store, Repository.open(replica.store))

    assert [one.cause for one in report.not_repaired] and not report.ok
    assert (store.read(key) if store.exists(key) else None) == remains
    fresh = Repository.open(store)
    for path, data in FILES.items():
        if data != lost and len(data) <= SMALL_BYTES:
            assert fresh.read_object(digest_of("blake3", data)) == data, path


@pytest.mark.parametrize("how", [flip, delete])
def test_the_index(store: Store, replica: Repository, how: Callable[[Store, str], None]) -> None:
    for key in keys(store, "index"):
        how(store, key)
    report = mend(store, replica)
    assert report.ok
    assert {one.kind for one in report.repaired} == {"index"}
    assert Repository.open(store).check_index() == []
    assert damage(store) == 0


def test_the_index_and_a_pack_whose_table_nobody_knows_any_more(store: Store, replica: Repository) -> None:
    key = pack_of(store, FILES["state/0/0/4.delta"])
    flip_table(store, key)
    for index in keys(store, "index"):
        store.delete(index)
    report = mend(store, replica)
    assert report.ok, report.to_dict()
    assert damage(store) == 0


@pytest.mark.parametrize("how", [flip, cut, empty])
def test_a_manifest(store: Store, replica: Repository, how: Callable[[Store, str], None]) -> None:
    before = contents(store)
    key = f"savepoints/flights/{FIRST}.json"
    how(store, key)
    Repository.open(store).pin("flights", FIRST)
    report = mend(store, replica)
    assert report.ok
    assert [(one.kind, one.file) for one in report.repaired] == [("manifest", key)]
    assert contents(store) == before
    assert Repository.open(store).pinned("flights", FIRST)


def test_a_manifest_comes_back_only_with_all_that_it_names(store: Store, replica: Repository) -> None:
    key = f"savepoints/flights/{FIRST}.json"
    flip(store, key, 99)
    bad = store.read(key)
    for place in (store, replica.store):
        place.delete(keys(place, "objects")[0])
    report = mend(store, Repository.open(replica.store))
    assert not report.ok
    assert key in [one.file for one in report.not_repaired]
    assert store.read(key) == bad


@pytest.mark.parametrize("how", [flip, delete, empty])
def test_the_header(store: Store, replica: Repository, how: Callable[[Store, str], None]) -> None:
    how(store, "repository.json")
    assert mend(store, replica, dry_run=True).repaired[0].kind == "header"
    with pytest.raises(IntegrityError):
        Repository.open(store)
    report = mend(store, replica)
    assert [one.kind for one in report.repaired] == ["header"]
    assert Repository.open(store).digest_name == "blake3"
    assert Repository.open(store).id != replica.id
    assert_whole(store)


def test_a_header_is_not_guessed(store: Store, replica: Repository) -> None:
    flip(store, "repository.json", 60)
    for key in keys(store, "savepoints"):
        empty(store, key)
    open_for_repair(store, dry_run=True)  # the packs say it, too
    for key in keys(store, "packs"):
        flip_trailer(store, key)
    with pytest.raises(IntegrityError):
        open_for_repair(store, dry_run=False)
    with pytest.raises(NotFoundError):
        open_for_repair(MemoryStore(), dry_run=False)


def test_marks_are_each_repositorys_own(store: Store, replica: Repository) -> None:
    Repository.open(store).pin("flights", FIRST)
    (key,) = keys(store, "marks")
    flip(store, key, 50)
    report = mend(store, replica)
    assert [(one.file, one.needed_by) for one in report.not_repaired] == [(key, (f"flights/{FIRST}",))]


def test_everything_at_once(store: Store, replica: Repository) -> None:
    for prefix in ("objects", "packs", "index", "savepoints"):
        for number, key in enumerate(keys(store, prefix)):
            flip(store, key, 40 + number)
    flip(store, "repository.json", 9)
    report = mend(store, replica)
    assert report.ok, report.to_dict()
    assert {one.kind for one in report.repaired} >= {"header", "index", "object", "manifest"}
    assert_whole(store)
    assert mend(store, replica).repaired == []


def test_nothing_whole_is_left_of_the_objects(store: Store, replica: Repository) -> None:
    for prefix in ("objects", "packs", "index"):
        for key in keys(store, prefix):
            store.delete(key)
    assert mend(store, replica).ok
    assert_whole(store)


def test_a_dry_run_writes_nothing_and_says_the_same(store: Store, replica: Repository) -> None:
    for key in [*keys(store, "objects"), *keys(store, "packs"), *keys(store, "savepoints")]:
        flip(store, key, 55)
    before = contents(store)
    plan = mend(store, replica, dry_run=True)
    assert contents(store) == before and plan.dry_run and plan.ok and plan.verified == []
    done = mend(store, replica)
    assert [one.file for one in plan.repaired] == [one.file for one in done.repaired]


def test_a_replica_that_is_damaged_in_the_same_place_gives_nothing(store: Store, replica: Repository) -> None:
    (key,) = keys(store, "objects")
    flip(store, key, 10)
    before = contents(store)
    flip(replica.store, keys(replica.store, "objects")[0], 999)
    report = mend(store, replica)
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
    report = mend(store, Repository.open(replica.store), Repository.open(second.store))
    assert report.ok
    assert {one.sources for one in report.repaired if one.kind == "object"} == {(second.store.uri,)}


def test_one_savepoint_of_several(store: Store, replica: Repository) -> None:
    first = f"savepoints/flights/{FIRST}.json"
    for key in keys(store, "savepoints"):
        flip(store, key, 60)
    repository, _ = open_for_repair(store, dry_run=False)
    report = repair(repository, [replica], [("flights", FIRST)])
    assert [one.file for one in report.repaired] == [first]
    assert damage(store) == 1


def test_a_bad_place_of_the_disk_is_repaired_too(replica: Repository) -> None:
    store = MemoryStore()
    list(replicate(replica, open_replica(replica, store), newest_first(replica)))
    key = keys(store, "objects")[0]
    faulty = FaultyStore(store, Fault("error", operations=frozenset({"held.open"}), key=key))
    report = repair(Repository.open(faulty), [replica], listed(store))
    faulty.assert_fired()
    assert [one.file for one in report.repaired] == [key]
    assert report.ok


def test_a_place_that_cannot_be_reached_is_an_error(store: Store, replica: Repository) -> None:
    flip(store, keys(store, "objects")[0])

    class Away(MemoryStore):
        @contextmanager
        def open(self, key: str) -> Iterator[BinaryIO]:
            raise StorageError("The service does not answer.", code="not-reachable")
            yield

    away = Away(holds=False)
    for key in keys(replica.store):
        away.write(key, replica.store.read(key))
    gone = Repository.open(away)
    with pytest.raises(StorageError, match="does not answer"):
        repair(Repository.open(store), [gone], listed(store))


def salted(store: Store) -> str:
    """Give the first pack a table that says more than its objects, so that the index cannot make it again."""
    key = pack_of(store, FILES["state/0/0/4.delta"])
    pack = read_pack(store, key.rpartition("/")[2])
    data = store.read(key)
    body_bytes = sum(entry.length for entry in pack.entries)
    table = data[body_bytes:-TRAILER_BYTES].replace(b'{"pack": 1, ', b'{"pack": 1, "salt": "x", ', 1)
    digest = digest_of("blake3", table)
    trailer = f"streambank-pack 01 {len(table):016d} {digest}\n".encode()
    store.delete(key)
    new = pack_key(digest.partition(":")[2])
    store.write(new, data[:body_bytes] + table + trailer)
    Repository.open(store).rebuild_index()
    return new


def test_a_pack_whose_table_says_more_than_the_index(store: Store, replica: Repository) -> None:
    key = salted(store)
    before = contents(store)
    flip(store, key, Repository.open(store).object_location(digest_of("blake3", FILES["metadata"])).offset)
    report = mend(store, replica)
    assert report.ok and [one.file for one in report.repaired] == [key]
    assert contents(store) == before

    flip_table(store, key)
    report = mend(store, replica)
    assert not report.ok and report.repaired == []
    assert {each.file for each in report.not_repaired} == {key}
    assert all("cannot be made again" in each.reason for each in report.not_repaired)
    fresh = Repository.open(store)
    assert fresh.read_object(digest_of("blake3", FILES["metadata"])) == FILES["metadata"]

    store.delete(key)
    report = mend(store, replica)
    assert report.ok and [one.file for one in report.repaired] == ["packs/"]
    assert_whole(store)


def test_what_is_no_replica_is_refused(store: Store, replica: Repository) -> None:
    other = Repository.open(MemoryStore(), create=True, digest="sha256")
    with pytest.raises(InputError) as raised:
        mend(store, other)
    assert raised.value.code == "other-digest"
    with pytest.raises(InputError) as raised:
        mend(store, Repository.open(store))
    assert raised.value.code == "same-repository"
