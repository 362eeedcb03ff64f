from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.core.errors import FormatError, InputError, IntegrityError, NotFoundError, StorageError
from streambank.repository.catalog import newest_good
from streambank.repository.repository import Repository
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import FileInfo
from tests.support.permissions import as_ordinary_user, open_folder
from tests.support.refuses import refuses
from tests.support.repository.repositories import TAKEN_AT, manifest_of, save
from tests.support.storage.faulty_store import Fault, FaultyStore


@pytest.fixture
def repository() -> Repository:
    repository = Repository.open(MemoryStore(), create=True)
    for batch in (5, 3, 4):
        save(repository, batch=batch, taken_at=TAKEN_AT + timedelta(hours=batch), note=f"batch {batch}")
    save(repository, job="orders/late", batch=3)
    save(repository, job="orders/early", batch=3)
    return repository


def test_lists_by_job_and_age(repository: Repository) -> None:
    assert [(it.job, it.batch) for it in repository.manifests()] == [
        ("flights", 3),
        ("flights", 4),
        ("flights", 5),
        ("orders/early", 3),
        ("orders/late", 3),
    ]
    assert [it.job for it in repository.manifests("orders")] == ["orders/early", "orders/late"]
    assert [it.job for it in repository.manifests("orders/late")] == ["orders/late"]
    assert list(repository.manifests("nothing")) == []
    with pytest.raises(InputError):
        list(repository.manifests("../x"))


def test_a_summary_says_what_a_list_shows(repository: Repository) -> None:
    savepoint = manifest_of(batch=4).savepoint
    repository.pin("flights", savepoint)
    repository.record_verification("flights", savepoint, level="full", ok=True)

    summary = [*repository.manifests("flights")][1]

    assert summary.note == "batch 4"
    assert (summary.pinned, summary.verified_level, summary.verified_ok) == (True, "full", True)
    shown = json.loads(json.dumps(summary.to_dict()))
    assert shown["savepoint"] == savepoint
    assert shown["taken_at"] == "2013-01-01T09:15:00.000Z"
    assert shown["verified_at"].endswith("Z")
    assert shown["bytes"] == summary.bytes == manifest_of().bytes
    assert shown["error"] is None


def test_damaged_savepoints_are_listed_with_what_is_wrong(repository: Repository) -> None:
    good = {batch: f"savepoints/flights/{manifest_of(batch=batch).savepoint}.json" for batch in (3, 4, 5)}
    three, four = repository.store.read(good[3]), repository.store.read(good[4])
    repository.store.write(good[3], three[: len(three) // 2])
    repository.store.write(good[4], four.replace(b'"format": 1', b'"format": 5'))
    repository.store.write("savepoints/flights/notes.txt", b"")
    repository.store.write("savepoints/stray.json", b"{}")
    repository.store.write("savepoints/a/b/c/d.json", b"{}")
    repository.store.write("savepoints/flights/odd name.json", b"{}")

    found = {it.savepoint: it for it in repository.manifests("flights")}

    assert isinstance(found[manifest_of(batch=3).savepoint].error, IntegrityError)
    assert isinstance(found[manifest_of(batch=4).savepoint].error, FormatError)
    assert found[manifest_of(batch=5).savepoint].error is None
    assert isinstance(found["odd name"].error, InputError)
    assert len(found) == 4
    assert found[manifest_of(batch=3).savepoint].to_dict()["error"]
    assert len(list(repository.manifests())) == 6


def test_a_manifest_in_anothers_place_is_found(repository: Repository) -> None:
    four = repository.store.read(f"savepoints/flights/{manifest_of(batch=4).savepoint}.json")
    other = repository.store.read(f"savepoints/orders/late/{manifest_of(job='orders/late').savepoint}.json")
    savepoint = manifest_of(batch=3).savepoint
    for swapped in (four, other):
        repository.store.write(f"savepoints/flights/{savepoint}.json", swapped)
        with pytest.raises(IntegrityError):
            repository.load("flights", savepoint)
        assert sum(it.error is not None for it in repository.manifests("flights")) == 1


def test_finds_by_id_beginning_and_job(repository: Repository) -> None:
    four = manifest_of(batch=4).savepoint
    late = manifest_of(job="orders/late").savepoint
    assert repository.find(four) == ("flights", four)
    assert repository.find(four[:8]) == ("flights", four)
    assert repository.find(f"flights/{four[:9]}") == ("flights", four)
    assert repository.find(f"orders/late/{late}") == ("orders/late", late)
    assert repository.find("b000003", job="flights")[0] == "flights"
    assert repository.find("b000003", job="orders/late") == ("orders/late", late)

    with refuses(InputError, "ambiguous"):
        repository.find("b000003")
    for reference, job in (("b9", None), (four, "orders"), (f"flights/{four}", "orders"), ("x", None)):
        with refuses(NotFoundError, "no-such-savepoint"):
            repository.find(reference, job=job)
    for reference in ("", "../x", "b0*", "flights/"):
        with pytest.raises(InputError):
            repository.find(reference)


def test_names_for_the_newest_stand_for_one_job(repository: Repository) -> None:
    late = manifest_of(job="orders/late").savepoint
    ids = [manifest_of(batch=batch).savepoint for batch in (3, 4, 5)]
    for reference in ("latest", "latest-good"):
        with refuses(InputError, "which-job"):
            repository.find(reference)
        assert repository.find(reference, job="flights") == ("flights", ids[2])
        assert repository.find(f"orders/late/{reference}") == ("orders/late", late)
        with refuses(NotFoundError, "no-such-savepoint"):
            repository.find(reference, job="trains")


def test_the_newest_good_one_is_one_that_no_verification_found_damaged(repository: Repository) -> None:
    ids = [manifest_of(batch=batch).savepoint for batch in (3, 4, 5)]
    repository.record_verification("flights", ids[2], level="full", ok=False, findings=1)
    repository.store.write(f"savepoints/flights/{ids[1]}.json", b"{")
    assert repository.find("latest", job="flights") == ("flights", ids[2])
    assert repository.find("latest-good", job="flights") == ("flights", ids[0])
    repository.record_verification("flights", ids[0], level="full", ok=False, findings=1)
    with pytest.raises(NotFoundError) as none:
        repository.find("latest-good", job="flights")
    assert none.value.code == "no-good-savepoint" and none.value.hint


def test_what_is_left_out_takes_no_place_from_the_newest_good_ones(repository: Repository) -> None:
    """However many there are, by time and by batch."""
    for batch in range(10, 30):
        save(repository, batch=batch, taken_at=TAKEN_AT + timedelta(hours=batch))
    found = newest_good(repository.store, "flights", 2, leave_out=lambda head: head.batch >= 10)
    assert [head.batch for head in found] == [5, 4]


def test_loads_what_is_there_and_says_what_is_not(repository: Repository) -> None:
    assert repository.load("flights", manifest_of().savepoint).note == "batch 3"
    with refuses(NotFoundError, "no-such-savepoint"):
        repository.load("flights", "b000099-000000000000")
    for job, savepoint in (("../flights", "b1"), ("flights", "../b1"), ("a/b/c", "b1")):
        with pytest.raises(InputError):
            repository.load(job, savepoint)


def test_one_savepoint_that_may_not_be_read_does_not_hide_the_others() -> None:
    with open_folder() as folder:
        repository = Repository.open(LocalStore(folder, fsync=False), create=True)
        closed, _ = (save(repository, batch=batch) for batch in (3, 4))
        (folder / f"savepoints/flights/{closed.savepoint}.json").chmod(0)
        with as_ordinary_user():
            summaries = list(Repository.open(LocalStore(folder)).manifests())
        assert [it.error is None for it in summaries] == [False, True]
        assert isinstance(summaries[0].error, StorageError)


def test_a_service_that_is_down_is_no_list_of_damaged_savepoints(repository: Repository) -> None:
    down = FaultyStore(repository.store, Fault("error", operations=frozenset({"list"})))
    with pytest.raises(StorageError):
        list(Repository.open(down).manifests())


def test_an_empty_repository_lists_nothing(tmp_path: Path) -> None:
    assert list(Repository.open(LocalStore(tmp_path / "new"), create=True).manifests()) == []


def test_a_verification_that_is_removed_while_the_list_is_made_is_none() -> None:
    """A sweep at the end of a grace removes it, while an undelete lists the savepoint again."""

    class Sweeping(MemoryStore):
        def list(self, prefix: str = "") -> Iterator[FileInfo]:
            if prefix.startswith("savepoints"):
                for info in [*super().list("marks")]:
                    self.delete(info.path)
            return super().list(prefix)

    repository = Repository.open(Sweeping(), create=True)
    manifest = save(repository)
    repository.record_verification("flights", manifest.savepoint, level="full", ok=True)
    (summary,) = repository.manifests()
    assert (summary.verified_ok, summary.error, summary.mark_errors) == (None, None, ())
