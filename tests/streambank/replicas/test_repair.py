"""A repair of a whole repository: all at once, nothing, only said, or one savepoint."""

from __future__ import annotations

from streambank.replicas.header_repair import open_for_repair
from streambank.replicas.repair import repair
from streambank.repository.repository import Repository
from streambank.storage.store import Store
from tests.support.repository.damaged_savepoints import FIRST, contents, damage, repair_all
from tests.support.repository.repositories import assert_whole, flip
from tests.support.storage.contents import keys


def test_where_nothing_is_damaged_nothing_is_written(store: Store, replica: Repository) -> None:
    before = contents(store)
    report = repair_all(store, replica)
    assert (report.ok, report.repaired, report.verified) == (True, [], [])
    assert contents(store) == before
    assert keys(store, "marks") == []


def test_everything_at_once(store: Store, replica: Repository) -> None:
    for prefix in ("objects", "packs", "index", "savepoints"):
        for number, key in enumerate(keys(store, prefix)):
            flip(store, key, 40 + number)
    flip(store, "repository.json", 9)
    report = repair_all(store, replica)
    assert report.ok, report.to_dict()
    assert {one.kind for one in report.repaired} >= {"header", "index", "object", "manifest"}
    assert_whole(store)
    assert repair_all(store, replica).repaired == []


def test_nothing_whole_is_left_of_the_objects(store: Store, replica: Repository) -> None:
    for prefix in ("objects", "packs", "index"):
        for key in keys(store, prefix):
            store.delete(key)
    assert repair_all(store, replica).ok
    assert_whole(store)


def test_a_dry_run_writes_nothing_and_says_the_same(store: Store, replica: Repository) -> None:
    for key in [*keys(store, "objects"), *keys(store, "packs"), *keys(store, "savepoints")]:
        flip(store, key, 55)
    before = contents(store)
    plan = repair_all(store, replica, dry_run=True)
    assert contents(store) == before and plan.dry_run and plan.ok and plan.verified == []
    done = repair_all(store, replica)
    assert [one.file for one in plan.repaired] == [one.file for one in done.repaired]


def test_one_savepoint_of_several(store: Store, replica: Repository) -> None:
    first = f"savepoints/flights/{FIRST}.json"
    for key in keys(store, "savepoints"):
        flip(store, key, 60)
    repository, _ = open_for_repair(store, dry_run=False)
    report = repair(repository, [replica], [("flights", FIRST)])
    assert [one.file for one in report.repaired] == [first]
    assert damage(store) == 1
