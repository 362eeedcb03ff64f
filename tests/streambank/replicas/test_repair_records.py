"""What says which objects there are: the index, manifests, the header and marks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streambank.core.errors import IntegrityError, NotFoundError
from streambank.replicas.header_repair import open_for_repair
from streambank.repository.repository import Repository
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.repository.damaged_savepoints import (
    FIRST,
    contents,
    cut,
    damage,
    delete,
    empty,
    flip_table,
    flip_trailer,
    pack_of,
    repair_all,
)
from tests.support.repository.repositories import FILES, assert_whole, flip
from tests.support.storage.contents import keys


@pytest.mark.parametrize("how", [flip, delete])
def test_the_index(store: Store, replica: Repository, how: Callable[[Store, str], None]) -> None:
    for key in keys(store, "index"):
        how(store, key)
    report = repair_all(store, replica)
    assert report.ok
    assert {one.kind for one in report.repaired} == {"index"}
    assert Repository.open(store).objects.index.check() == []
    assert damage(store) == 0


def test_the_index_and_a_pack_whose_table_nobody_knows_any_more(store: Store, replica: Repository) -> None:
    key = pack_of(store, FILES["state/0/0/4.delta"])
    flip_table(store, key)
    for index in keys(store, "index"):
        store.delete(index)
    report = repair_all(store, replica)
    assert report.ok, report.to_dict()
    assert damage(store) == 0


@pytest.mark.parametrize("how", [flip, cut, empty])
def test_a_manifest(store: Store, replica: Repository, how: Callable[[Store, str], None]) -> None:
    before = contents(store)
    key = f"savepoints/flights/{FIRST}.json"
    how(store, key)
    Repository.open(store).pin("flights", FIRST)
    report = repair_all(store, replica)
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
    report = repair_all(store, Repository.open(replica.store))
    assert not report.ok
    assert key in [one.file for one in report.not_repaired]
    assert store.read(key) == bad


@pytest.mark.parametrize("how", [flip, delete, empty])
def test_the_header(store: Store, replica: Repository, how: Callable[[Store, str], None]) -> None:
    how(store, "repository.json")
    assert repair_all(store, replica, dry_run=True).repaired[0].kind == "header"
    with pytest.raises(IntegrityError):
        Repository.open(store)
    report = repair_all(store, replica)
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
    report = repair_all(store, replica)
    assert [(one.file, one.needed_by) for one in report.not_repaired] == [(key, (f"flights/{FIRST}",))]
