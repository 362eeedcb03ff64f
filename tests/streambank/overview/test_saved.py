from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.core.units import utc_now
from streambank.declaration.load import load_jobs
from streambank.overview.saved import LEAST, MOST, newest_saved
from streambank.overview.snapshot import snapshot
from streambank.repository.holds import Holds
from streambank.repository.manifest import Manifest
from streambank.repository.marks import REHEARSAL, add_mark
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage.local.store import LocalStore
from tests.support.jobs.declared import BY, declare, write_jobs
from tests.support.jobs.left_behind import repository_of, save

NOW = utc_now()


def list_many(repository: Repository, job: str, count: int) -> None:
    """So many savepoints of nothing, one an hour."""
    for number in range(count):
        at = NOW - timedelta(hours=count - number)
        savepoint = f"b{number:06d}-{number:012x}"
        repository.commit(Manifest(savepoint=savepoint, job=job, query_id="q", batch=number, taken_at=at))
        place = Path(repository.store.uri.removeprefix("file://"))
        manifest = place / f"savepoints/{job}/{savepoint}.json"
        os.utime(manifest, (at.timestamp(), at.timestamp()))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many files of each folder were read."""
    counted: Counter[str] = Counter()
    whole, opened = LocalStore.read, LocalStore.open

    def read(self: LocalStore, key: str, *args: Any) -> bytes:
        counted[key.partition("/")[0]] += 1
        return whole(self, key, *args)

    def open_it(self: LocalStore, key: str) -> Any:
        counted[key.partition("/")[0]] += 1
        return opened(self, key)

    monkeypatch.setattr(LocalStore, "read", read)
    monkeypatch.setattr(LocalStore, "open", open_it)
    return counted


def test_of_many_savepoints_the_newest_are_read(folder: Path, reads: Counter[str]) -> None:
    job = declare(folder, more="[jobs.flights.retention]\nkeep_last = 10")
    list_many(repository_of(job), job.name, 250)
    reads.clear()
    saved = newest_saved(job, repository_of(job), NOW)
    assert saved.count == 250 and len(saved.newest) == MOST and not saved.is_whole
    assert [one.summary.batch for one in saved.newest] == list(range(249, 49, -1))
    assert reads["savepoints"] == MOST
    found = snapshot(job, parts={"savepoints", "repository"})
    part, place = found.parts["savepoints"], found.parts["repository"]
    assert part["more"] == 50 and len(part["manifests"]) == 20
    assert [bool(one["kept"]) for one in part["savepoints"]] == [True] * 10 + [False] * 190
    assert place["next_expiry"] == {"at": None, "count": 190, "bytes": 0, "at_least": True}
    assert place["savepoints"] == 250


def test_of_several_queries_each_has_its_newest(folder: Path) -> None:
    queries = [f"q{number}" for number in range(20)]
    job = load_jobs(write_jobs(folder, more=f"queries = {queries!r}")).job("flights")
    repository = repository_of(job)
    for query in queries[:3]:
        list_many(repository, f"flights/{query}", 25)
    saved = newest_saved(job, repository, NOW)
    assert Counter(one.query for one in saved.newest) == dict.fromkeys(queries[:3], LEAST)
    assert saved.count == 75


def test_a_savepoint_that_is_read_just_now_is_held(folder: Path) -> None:
    job = declare(folder, batches=2)
    savepoint = save(job)
    repository = repository_of(job)
    with Holds(repository, "restore", BY).held(job.name, savepoint):
        (one,) = newest_saved(job, repository, utc_now()).newest
        assert one.is_held
    (one,) = newest_saved(job, repository, utc_now()).newest
    assert not one.is_held and one.head is not None and one.head.files == ()


def test_a_savepoint_whose_rehearsal_did_not_pass_is_not_the_newest_verified(folder: Path) -> None:
    job = declare(folder)
    repository = repository_of(job)
    ids = ["b000041-00000000002a", "b000041-d0000000002a"]
    for number, savepoint in enumerate(ids):
        manifest = Manifest(
            savepoint=savepoint, job=job.name, query_id="q", batch=41, taken_at=NOW + timedelta(number),
            checkpoint="file:/c", derived_from=ids[0] if number else None,
        )  # fmt: skip
        repository.commit(manifest)
        verify(repository, job.name, savepoint)
    assert snapshot(job, parts={"savepoints"}).line["savepoint"]["id"] == ids[1]
    not_passed = {"passed": False}
    add_mark(repository.store, repository.digest_name, job.name, ids[1], REHEARSAL, by={}, fields=not_passed)
    found = snapshot(job, parts={"savepoints"})
    assert found.line["savepoint"]["id"] == ids[0]
    rows = found.parts["savepoints"]["savepoints"]
    assert [(row["id"], row["rejected"]) for row in rows] == [(ids[1], True), (ids[0], False)]
