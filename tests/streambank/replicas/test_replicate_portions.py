"""Replicating and repairing on machines elsewhere: the replica is the same, however often it is done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, RefusedError, StorageError
from streambank.replicas.header_repair import open_for_repair
from streambank.replicas.repair import repair
from streambank.replicas.replicate import newest_first, open_replica, replicate, replicate_to
from streambank.repository.catalog import listed
from streambank.repository.repository import Repository
from streambank.repository.trash import condemn
from streambank.savepoint.verify import verify
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Features, Store
from streambank.work import check, plan_lines, same_location
from streambank.work.executor import Pace
from streambank.work.plan_lines import run_portion
from tests.support.jobs.simulated_job import quick_store
from tests.support.portion_executor import Attempt, PortionExecutor
from tests.support.refuses import refuses
from tests.support.repository.repositories import FILES, LARGE, assert_whole, flip, save
from tests.support.storage.contents import keys

SMALL = {f"offsets/{number}": b"v1\n{%d}" % number for number in range(40)}
MANY = {**FILES, **SMALL, **{f"state/0/{number}/4.zip": LARGE + b"%d" % number for number in range(2, 7)}}
LATER = {**MANY, "offsets/41": b"v1\n{later}"}


@pytest.fixture(autouse=True)
def other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines elsewhere know no repository yet; durability is not what these tests are about."""
    same_location.same_repository.cache_clear()
    monkeypatch.setattr(same_location, "open_store", quick_store)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks and portions, though there is little."""
    monkeypatch.setattr(check, "GROUP_FILES", 8)
    monkeypatch.setattr(plan_lines, "MIN_PORTION_BYTES", 1 << 20)
    monkeypatch.setattr(plan_lines, "MIN_PORTION_FILES", 16)


@pytest.fixture
def source(tmp_path: Path) -> Repository:
    repository = Repository.open(quick_store(tmp_path / "source"), create=True)
    save(repository, MANY)
    save(repository, LATER, batch=4)
    return repository


def bring(source: Repository, place: Store, machines: PortionExecutor | None = None) -> list[dict[str, Any]]:
    """What became of each savepoint, without times."""
    found = replicate(source, open_replica(source, place), newest_first(source), pace=Pace(executor=machines))
    return [{**each.to_dict(), "seconds": 0} for each in found]


def tasks_of(plan: list[str]) -> list[dict[str, int]]:
    return [task["objects"] for line in plan[1:] for _, task in json.loads(line)["tasks"]]


def names(store: Store) -> dict[str, bytes]:
    """Everything of a replica that has one content: packs may be cut otherwise elsewhere."""
    return {key: store.read(key) for folder in ("objects", "savepoints") for key in keys(store, folder)}


@pytest.mark.parametrize(("times", "at_once"), [(1, 1), (2, 1), (3, 4)])
def test_the_replica_is_the_same(source: Repository, tmp_path: Path, times: int, at_once: int) -> None:
    here, there = quick_store(tmp_path / "here"), quick_store(tmp_path / "there")
    expected = bring(source, here)
    machines = PortionExecutor(tmp_path, times=times, at_once=at_once)
    assert bring(source, there, machines) == expected
    assert len(machines.plans[0]) > 3, "a plan of one portion shows little"
    assert names(there) == names(here)
    for key in keys(source.store):
        source.store.delete(key)
    replica = Repository.open(there)
    for job, savepoint in listed(there):
        report = verify(replica, job, savepoint, "full")
        assert report.ok, report.findings


def test_only_what_is_missing_goes_there(source: Repository, tmp_path: Path) -> None:
    machines = PortionExecutor(tmp_path)
    there = quick_store(tmp_path / "there")
    bring(source, there, machines)
    (first,) = machines.plans
    assert len(set().union(*tasks_of(first))) == len({*LATER.values()})
    again = bring(source, there, machines)
    assert len(machines.plans) == 1 and {each["state"] for each in again} == {"there"}
    save(source, {**LATER, "commits/9": b"new"}, batch=9)
    assert bring(source, there, machines)[0]["moved_objects"] == 1
    assert [list(task.values()) for task in tasks_of(machines.plans[1])] == [[3]]


@pytest.mark.parametrize("folder", ["objects", "packs"])
def test_what_is_damaged_is_named_as_it_is_here(source: Repository, tmp_path: Path, folder: str) -> None:
    for key in keys(source.store, folder)[:1]:
        flip(source.store, key, 7)
    here, there = quick_store(tmp_path / "here"), quick_store(tmp_path / "there")
    expected = bring(source, here)
    assert [each["state"] for each in expected] == ["failed", "failed"]
    assert bring(source, there, PortionExecutor(tmp_path, times=2)) == expected
    assert keys(there, "savepoints") == []


class KilledError(BaseException):
    """The machine is gone."""


def test_what_an_attempt_left_that_was_killed_is_no_part_of_anything(
    source: Repository, tmp_path: Path
) -> None:
    there = quick_store(tmp_path / "there")
    killed: list[str] = []
    orphans: list[set[str]] = []

    def die(*_: object) -> None:
        raise KilledError

    def first_dies(header: str, portion: str) -> list[str]:
        if portion not in killed:
            killed.append(portion)
            before = Repository.open(there).objects.index.unindexed_packs()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("streambank.repository.objects.write.ObjectWriter._index", die)
                with pytest.raises(KilledError):
                    run_portion(header, portion)
            orphans.append(Repository.open(there).objects.index.unindexed_packs() - before)
        return run_portion(header, portion)

    states = [each["state"] for each in bring(source, there, PortionExecutor(tmp_path, attempt=first_dies))]
    assert states == ["copied", "copied"]
    assert killed and any(orphans)
    assert_whole(there)


def test_a_replicate_that_is_killed_is_gone_on_with(source: Repository, tmp_path: Path) -> None:
    """What arrived elsewhere before is not moved again."""
    there = quick_store(tmp_path / "there")
    done: list[str] = []

    def once(header: str, portion: str) -> list[str]:
        if done:
            raise KilledError
        done.append(portion)
        return run_portion(header, portion)

    with pytest.raises(KilledError):
        bring(source, there, PortionExecutor(tmp_path, attempt=once))
    assert keys(there, "savepoints") == []
    arrived = sum(len(task) for task in tasks_of(["", *done]))
    first, _ = bring(source, there, PortionExecutor(tmp_path))
    assert arrived and first["moved_objects"] == len({*LATER.values()}) - arrived
    assert_whole(there)


def test_what_a_sweep_of_the_replica_condemns_meanwhile_is_stored_again(
    source: Repository, tmp_path: Path
) -> None:
    there = quick_store(tmp_path / "there")
    condemned: set[str] = set()

    def swept_meanwhile(header: str, portion: str) -> list[str]:
        lines = run_portion(header, portion)
        if not condemned:
            found = {info.path for folder in ("objects", "packs") for info in there.list(folder)}
            condemn(there, "blake3", sorted(found), {})
            condemned.update(found)
        return lines

    states = [
        each["state"] for each in bring(source, there, PortionExecutor(tmp_path, attempt=swept_meanwhile))
    ]
    assert condemned and states == ["copied", "copied"]
    for key in condemned:
        there.delete(key)
    replica = Repository.open(there)
    assert all(verify(replica, *each, "full").restorable for each in listed(there))


@pytest.mark.parametrize("field", ["source", "target"])
@pytest.mark.parametrize("what", ["none", "another"])
def test_a_machine_that_sees_something_else_there_refuses(
    source: Repository, tmp_path: Path, field: str, what: str
) -> None:
    place = tmp_path / what
    if what == "another":
        Repository.open(quick_store(place), create=True)

    def elsewhere(header: str, portion: str) -> list[str]:
        return run_portion(json.dumps({**json.loads(header), field: place.as_uri()}), portion)

    there = quick_store(tmp_path / "there")
    with refuses(RefusedError, "paths-not-shared"):
        bring(source, there, PortionExecutor(tmp_path, attempt=elsewhere))
    assert keys(there, "savepoints") == []


def test_what_is_in_the_memory_of_this_process_stays_here(source: Repository, tmp_path: Path) -> None:
    with refuses(InputError, "not-elsewhere"):
        bring(source, MemoryStore(), PortionExecutor(tmp_path))


def test_one_replica_that_fails_there_is_a_report(source: Repository, tmp_path: Path) -> None:
    def down(header: str, portion: str) -> list[str]:
        raise StorageError("It is down.", code="spark-failed")

    machines = PortionExecutor(tmp_path, attempt=down)
    report = replicate_to(
        source, quick_store, str(tmp_path / "x"), newest_first(source), pace=Pace(executor=machines)
    )
    assert not report.ok and report.error is not None and report.error.code == "spark-failed"


class Service(LocalStore):
    """Two places of one service, which copies between them."""

    copies = 0

    @property
    def features(self) -> Features:
        return Features(links=False)

    def copy_from(self, source: Store, source_key: str, key: str) -> bool:
        Service.copies += 1
        self.write(key, source.read(source_key))
        return True


def service(location: object) -> Store:
    return Service(str(location).removeprefix("file://"), fsync=False)


def test_the_service_copies_there_too(
    source: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_location, "open_store", service)
    monkeypatch.setattr(Service, "copies", 0)
    there = service(tmp_path / "there")
    machines = PortionExecutor(tmp_path)
    first, second = bring(source, there, machines)
    large = {data for data in LATER.values() if len(data) >= len(LARGE)}
    assert first["service_bytes"] == sum(map(len, large)) and second["service_bytes"] == 0
    assert Service.copies == len(large)
    # The smallest one is copied here, which tells that the service does it at all.
    elsewhere = [size for task in tasks_of(machines.plans[0]) for size in task.values() if size >= len(LARGE)]
    assert len(elsewhere) == len(large) - 1 and json.loads(machines.plans[0][0])["by_service"] is True
    assert_whole(there)


def test_what_the_service_copies_there_is_hashed_before(
    source: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_location, "open_store", service)
    sizes = {key: source.store.stat(key).size_bytes for key in keys(source.store, "objects")}
    victim = max(sizes, key=lambda key: sizes[key])
    flip(source.store, victim, 5000)
    there = service(tmp_path / "there")
    first, _ = bring(source, there, PortionExecutor(tmp_path))
    assert first["state"] == "failed" and victim in first["errors"][0]["message"]
    assert victim not in keys(there, "objects")


class TestRepairing:
    @pytest.fixture
    def replica(self, source: Repository, tmp_path: Path) -> Repository:
        bring(source, quick_store(tmp_path / "replica"))
        return Repository.open(quick_store(tmp_path / "replica"))

    def test_damage_that_is_found_there_is_mended_here(
        self, source: Repository, replica: Repository, tmp_path: Path
    ) -> None:
        before = names(source.store)
        for folder in ("objects", "packs"):
            flip(source.store, keys(source.store, folder)[0], 9)
        machines = PortionExecutor(tmp_path)
        opened = Repository.open(source.store)
        report = repair(opened, [replica], listed(source.store), pace=Pace(executor=machines))
        assert report.ok and {each.kind for each in report.repaired} == {"object", "pack"}
        assert len(report.verified) == 2 and machines.plans
        assert names(source.store) == before
        assert_whole(source.store)

    def test_what_only_the_other_machine_may_not_read_is_not_damaged(
        self, source: Repository, replica: Repository, tmp_path: Path
    ) -> None:
        refused: list[str] = []
        machines = PortionExecutor(tmp_path, attempt=self._without_permission(refused))
        report = repair(
            Repository.open(source.store), [replica], listed(source.store), pace=Pace(executor=machines)
        )
        assert refused
        assert report.ok and report.repaired == []

    def _without_permission(self, refused: list[str]) -> Attempt:
        def attempt(header: str, portion: str) -> list[str]:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(LocalStore, "hold", deny)
                return run_portion(header, portion)

        def deny(store: LocalStore, key: str) -> Any:
            refused.append(key)
            raise StorageError(f"{key} may not be read.", code="no-permission")

        return attempt

    def test_a_look_at_a_repository_without_its_header_stays_here(
        self, source: Repository, replica: Repository, tmp_path: Path
    ) -> None:
        source.store.delete("repository.json")
        opened, error = open_for_repair(source.store, dry_run=True)
        machines = PortionExecutor(tmp_path)
        which = listed(source.store)
        report = repair(
            opened, [replica], which, header_error=error, dry_run=True, pace=Pace(executor=machines)
        )
        assert [each.kind for each in report.repaired] == ["header"] and machines.plans == []


def test_the_plan_holds_places_and_digests_only(source: Repository, tmp_path: Path) -> None:
    machines = PortionExecutor(tmp_path)
    bring(source, quick_store(tmp_path / "there"), machines)
    header: Mapping[str, Any] = json.loads(machines.plans[0][0])
    assert set(header) == {
        *("plan", "kind", "parallel", "by_service"),
        *("source", "source_id", "target", "target_id"),
    }
