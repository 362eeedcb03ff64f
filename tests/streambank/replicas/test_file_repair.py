"""Whatever file of objects is damaged or gone gets its very bytes back, or as many as can be had."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streambank.repository.digest import digest_of
from streambank.repository.objects.packs import SMALL_BYTES, TRAILER_BYTES, pack_key, read_pack
from streambank.repository.repository import Repository
from streambank.storage.store import Store
from tests.support.repository.damaged_savepoints import (
    DAMAGES,
    FIRST,
    SECOND,
    contents,
    cut,
    damage,
    delete,
    flip_table,
    flip_trailer,
    pack_of,
    repair_all,
)
from tests.support.repository.repositories import FILES, LARGE, assert_whole, flip
from tests.support.storage.contents import keys


@pytest.mark.parametrize("how", DAMAGES)
def test_a_large_object(store: Store, replica: Repository, how: Callable[[Store, str], None]) -> None:
    before = contents(store)
    (key,) = keys(store, "objects")
    how(store, key)
    assert damage(store) == 2
    report = repair_all(store, replica)
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
    report = repair_all(store, replica)
    assert report.ok, report.to_dict()
    assert [(one.kind, one.file) for one in report.repaired] == [("pack", key)]
    assert contents(store) == before


def test_objects_are_taken_from_the_repository_itself_where_they_are_whole(
    store: Store, replica: Repository
) -> None:
    key = pack_of(store, FILES["state/0/0/4.delta"])
    flip_table(store, key)
    (one,) = repair_all(store, replica).repaired
    assert (one.objects, one.sources) == (0, ())


def test_a_pack_of_which_a_part_is_lost_everywhere(store: Store, replica: Repository) -> None:
    """Its length is right: what can be had is put in place, and the rest stays as it is."""
    key = pack_of(store, FILES["state/0/0/4.delta"])
    repository = Repository.open(store)
    lost, found = FILES["metadata"], FILES["state/0/0/4.delta"]
    for data in (lost, found):
        flip(store, key, repository.objects.locate(digest_of("blake3", data)).offset)
    flip_table(store, key)
    there = replica.objects.locate(digest_of("blake3", lost))
    flip(replica.store, there.key, there.offset)
    bad = repository.store.read(key)[: len(lost)]

    report = repair_all(store, Repository.open(replica.store))

    assert not report.ok
    ((missing,),) = [report.not_repaired]
    assert missing.file == key and missing.needed_by == (f"flights/{FIRST}", f"flights/{SECOND}")
    assert replica.store.uri in missing.reason
    fresh = Repository.open(store)
    assert fresh.objects.read(digest_of("blake3", found)) == found
    fresh.objects.check_pack(key.rpartition("/")[2])
    assert store.read(key)[: len(lost)] == bad


@pytest.mark.parametrize("how", [cut, delete])
def test_a_pack_that_is_cut_or_gone_and_a_part_is_lost_everywhere(
    store: Store, replica: Repository, how: Callable[[Store, str], None]
) -> None:
    """What can be had is stored in a new pack; the remains stay."""
    key = pack_of(store, FILES["state/0/0/4.delta"])
    lost = FILES["metadata"]
    flip(store, key, Repository.open(store).objects.locate(digest_of("blake3", lost)).offset)
    how(store, key)
    remains = store.read(key) if store.exists(key) else None
    there = replica.objects.locate(digest_of("blake3", lost))
    flip(replica.store, there.key, there.offset)

    report = repair_all(store, Repository.open(replica.store))

    assert [one.cause for one in report.not_repaired] and not report.ok
    assert (store.read(key) if store.exists(key) else None) == remains
    fresh = Repository.open(store)
    for path, data in FILES.items():
        if data != lost and len(data) <= SMALL_BYTES:
            assert fresh.objects.read(digest_of("blake3", data)) == data, path


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
    Repository.open(store).objects.index.rebuild()
    return new


def test_a_pack_whose_table_says_more_than_the_index(store: Store, replica: Repository) -> None:
    key = salted(store)
    before = contents(store)
    flip(store, key, Repository.open(store).objects.locate(digest_of("blake3", FILES["metadata"])).offset)
    report = repair_all(store, replica)
    assert report.ok and [one.file for one in report.repaired] == [key]
    assert contents(store) == before

    flip_table(store, key)
    report = repair_all(store, replica)
    assert not report.ok and report.repaired == []
    assert {each.file for each in report.not_repaired} == {key}
    assert all("cannot be rebuilt" in each.reason for each in report.not_repaired)
    fresh = Repository.open(store)
    assert fresh.objects.read(digest_of("blake3", FILES["metadata"])) == FILES["metadata"]

    store.delete(key)
    report = repair_all(store, replica)
    assert report.ok and [one.file for one in report.repaired] == ["packs/"]
    assert_whole(store)
