from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.core.errors import InputError, IntegrityError, NotFoundError
from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.repository.names import check_savepoint_name, listed_names, records_of_name
from streambank.repository.references import check_name_free
from streambank.repository.repository import Repository
from streambank.retention.expire import expire
from streambank.retention.policy import Policy
from streambank.savepoint import take as take_module
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses
from tests.support.repository.repositories import TAKEN_AT, manifest_of, save


@pytest.fixture
def repository() -> Repository:
    repository = Repository.open(MemoryStore(), create=True)
    for batch in (3, 4):
        save(repository, batch=batch, taken_at=TAKEN_AT + timedelta(hours=batch))
    return repository


def id_of(batch: int) -> str:
    return manifest_of(batch=batch).savepoint


@pytest.mark.parametrize(
    "name",
    [
        *("latest", "latest-good", "random", "each", "b", "b41", "b000041-5d0a", "41", "2026-11-26"),
        *("a:b", "a/b", "", "a b", "x" * 101),
    ],
)
def test_what_means_something_else_is_no_name(repository: Repository, name: str) -> None:
    with pytest.raises(InputError) as caught:
        repository.give_name("flights", id_of(3), name)
    assert (caught.value.code, bool(caught.value.hint)) == ("bad-savepoint-name", True)
    assert list(listed_names(repository.store)) == []


@pytest.mark.parametrize("name", ["before-upgrade", "v2.1", "B4", "beta", "b-day", "x" * 100])
def test_what_may_be_a_name(name: str) -> None:
    assert check_savepoint_name(name) == name


def test_the_first_one_has_it(repository: Repository) -> None:
    assert repository.give_name("flights", id_of(3), "x") == id_of(3)
    assert repository.give_name("flights", id_of(4), "x") == id_of(3)
    assert repository.give_name("flights", id_of(3), "x") == id_of(3)
    assert len(records_of_name(repository.store, "flights", "x")) == 1, "asking again writes nothing"
    assert {one.batch: one.names for one in repository.manifests()} == {3: ("x",), 4: ()}
    (summary,) = [one for one in repository.manifests() if one.batch == 3]
    assert summary.to_dict()["names"] == ["x"]


def test_a_savepoint_may_have_several(repository: Repository) -> None:
    repository.give_name("flights", id_of(3), "y")
    repository.give_name("flights", id_of(3), "x")
    assert [one.names for one in repository.manifests() if one.batch == 3] == [("x", "y")]
    assert repository.names(repository.load("flights", id_of(3))) == ("x", "y")


def test_is_free_when_its_savepoint_has_expired_and_comes_back_with_it(repository: Repository) -> None:
    repository.give_name("flights", id_of(3), "x")
    key = f"savepoints/flights/{id_of(3)}.json"
    manifest = repository.store.read(key)
    repository.store.delete(key)
    with pytest.raises(NotFoundError):
        repository.find("x", "flights")
    repository.store.write(key, manifest)
    assert repository.find("x", "flights") == ("flights", id_of(3))
    repository.store.delete(key)
    assert repository.give_name("flights", id_of(4), "x") == id_of(4)
    repository.store.write(key, manifest)
    assert repository.find("x", "flights") == ("flights", id_of(4)), "the last one that was given it has it"


def test_of_many_that_ask_at_once_one_gets_it(tmp_path: Path) -> None:
    repository = Repository.open(LocalStore(tmp_path, fsync=False), create=True)
    for batch in range(8):
        save(repository, batch=batch)
    got: list[str] = []
    gate = threading.Barrier(8)

    def ask(batch: int) -> None:
        gate.wait()
        got.append(repository.give_name("flights", id_of(batch), "x"))

    threads = [threading.Thread(target=ask, args=(batch,)) for batch in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(got) == 8
    assert set(got) == {repository.find("x", "flights")[1]}


def test_a_damaged_record_is_said_where_the_name_is_asked_for(repository: Repository) -> None:
    repository.give_name("flights", id_of(3), "x")
    (record,) = records_of_name(repository.store, "flights", "x")
    repository.store.write(record.key, repository.store.read(record.key).replace(b"b000003", b"b000004"))
    with refuses(IntegrityError, "record-damaged"):
        repository.find("x", "flights")
    assert [one.names for one in repository.manifests()] == [(), ()]


def test_a_record_under_another_name_is_refused(repository: Repository) -> None:
    repository.give_name("flights", id_of(3), "x")
    (record,) = records_of_name(repository.store, "flights", "x")
    repository.store.write("names/flights/y-0000000001.json", repository.store.read(record.key))
    with pytest.raises(IntegrityError):
        repository.find("y", "flights")


def test_what_is_no_record_is_not_looked_at(repository: Repository) -> None:
    repository.store.write("names/flights/notes.txt", b"")
    repository.store.write("names/a/b/c/x-0000000001.json", b"{}")
    assert list(listed_names(repository.store)) == []


class TestOfATake:
    def test_gives_the_name_and_writes_it_down(self, shop: SimulatedJob) -> None:
        taken = shop.run(3).take(name="before-upgrade", taken_by={"user": "ann"})
        assert (taken.name, taken.to_dict()["name"]) == ("before-upgrade", "before-upgrade")
        assert shop.repository.find("before-upgrade") == (JOB, taken.savepoint)
        assert shop.repository.load(JOB, taken.savepoint).name == "before-upgrade"
        assert shop.restore("before-upgrade").plan.savepoint == taken.savepoint

    def test_of_what_is_there_already_gives_it_the_name(self, shop: SimulatedJob) -> None:
        first = shop.run(3).take()
        again = shop.take(name="before-upgrade")
        assert (again.already_there, again.savepoint) == (True, first.savepoint)
        assert shop.repository.find("before-upgrade") == (JOB, first.savepoint)
        assert shop.take(name="before-upgrade").savepoint == first.savepoint, "a retry is no clash"

    def test_that_is_taken_copies_nothing(self, shop: SimulatedJob) -> None:
        first = shop.run(3).take(name="x")
        shop.run(1)
        before = {info.path for info in shop.repository_store.list()}
        with refuses(InputError, "name-taken") as caught:
            shop.take(name="x")
        assert first.savepoint in caught.value.message
        assert {info.path for info in shop.repository_store.list()} == before

    def test_that_loses_a_race_says_so_and_the_savepoint_is_there(
        self, shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = shop.run(3).take()
        shop.run(1)
        seen: list[str] = []

        def slow(store: Store, job: str, name: str, savepoint: str) -> None:
            check_name_free(store, job, name, savepoint)
            shop.repository.give_name(job, first.savepoint, name)  # another take, right after the look
            seen.append(savepoint)

        monkeypatch.setattr(take_module, "check_name_free", slow)
        with refuses(InputError, "name-taken") as caught:
            shop.take(name="x", batch=3)
        assert seen, "the other take was there"
        assert seen[-1] in caught.value.message
        assert shop.repository.find("x") == (JOB, first.savepoint)
        assert [one.names for one in shop.repository.manifests(JOB)] == [("x",), ()]

    @pytest.mark.parametrize("name", ["latest", "b41", "a/b"])
    def test_of_a_name_that_is_none_takes_nothing(self, shop: SimulatedJob, name: str) -> None:
        shop.run(3)
        with refuses(InputError, "bad-savepoint-name"):
            shop.take(name=name)
        assert list(shop.repository.manifests()) == []


def test_a_replica_knows_the_names_and_gives_them_to_the_last_one(repository: Repository) -> None:
    replica = open_replica(repository, MemoryStore())
    repository.give_name("flights", id_of(3), "x")
    for _ in range(2):
        list(replicate(repository, replica, newest_first(repository)))
        assert replica.find("x") == ("flights", id_of(3))
    assert len(records_of_name(replica.store, "flights", "x")) == 1
    repository.store.delete(f"savepoints/flights/{id_of(3)}.json")
    repository.give_name("flights", id_of(4), "x")
    list(replicate(repository, replica, newest_first(repository)))
    assert replica.find("x") == ("flights", id_of(4)), "the replica keeps the older one, too"


def test_expiry_frees_a_name_whatever_it_is_called_and_a_pin_keeps_it(repository: Repository) -> None:
    repository.give_name("flights", id_of(3), "x")
    report = expire(repository, Policy(keep_last=1), dry_run=True)
    assert [one.summary.savepoint for one in report.dropped] == [id_of(3)]
    repository.pin("flights", id_of(3))
    expire(repository, Policy(keep_last=1))
    assert repository.find("x") == ("flights", id_of(3))
    repository.unpin("flights", id_of(3))
    expire(repository, Policy(keep_last=1, min_verified=0))
    with pytest.raises(NotFoundError):
        repository.find("x")
    assert repository.give_name("flights", id_of(4), "x") == id_of(4)
