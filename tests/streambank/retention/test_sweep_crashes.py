"""A crash before and after every call that expire, undelete and sweep make, on a disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from streambank.core.errors import StorageError
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.retention.expire import expire
from streambank.retention.expired import expired_savepoints
from streambank.retention.policy import Policy
from streambank.retention.sweep import sweep
from streambank.retention.undelete import undelete
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from tests.support.repository.retention import HOUR_S, assert_whole, content, drop, large, store_and_list
from tests.support.storage.faulty_store import PASSING, WRITES, Fault, FaultyStore, Kind, SimulatedCrash
from tests.support.time_travel import Clock

pytestmark = pytest.mark.storm

KEEP = Policy(keep_last=1, min_verified=1)


@dataclass(frozen=True, slots=True)
class Work:
    """Something that may die, and what must be true once it was done.

    Attributes:
        listed: Batches that are listed then.
        files: How many files with objects there are then.
    """

    do: Callable[[Store], object]
    listed: tuple[int, ...]
    files: int


def files_of(batch: int) -> dict[str, bytes]:
    """A part is that of every batch, a part is shared with the next one, and a part is its own."""
    return {
        "metadata": b"q",
        f"offsets/{batch}": b"offsets %d" % batch,
        f"state/{batch}.delta": b"d%d" % batch * 400,
        f"state/{batch + 1}.delta": b"d%d" % (batch + 1) * 400,
        **({"state/own.zip": large(batch)} if batch != 1 else {}),
    }


def make(folder: Path) -> list[Manifest]:
    """Three savepoints, the second one verified."""
    repository = Repository.open(LocalStore(folder, fsync=False), create=True)
    made = [store_and_list(repository, files_of(batch), batch) for batch in range(3)]
    repository.record_verification("flights", made[1].savepoint, level="full", ok=True)
    return made


def expire_all(store: Store) -> object:
    return expire(Repository.open(store), KEEP)


def sweep_all(store: Store) -> object:
    return sweep(Repository.open(store), grace_s=HOUR_S)


def undelete_one(store: Store) -> object:
    return undelete(Repository.open(store), "b000000")


@pytest.fixture(params=["expire", "undelete", "condemn", "delete", "undelete-condemned", "forget"])
def prepared(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> tuple[Path, Work]:
    """A repository in which the work is due."""
    folder = tmp_path / "template"
    made = make(folder)
    store = LocalStore(folder, fsync=False)
    clock.advance(2 * HOUR_S, folder)
    if request.param == "expire":
        return folder, Work(expire_all, (1, 2), 5)
    if request.param == "undelete":
        drop(Repository.open(store), made[0])
        return folder, Work(undelete_one, (0, 1, 2), 5)
    expire_all(store)
    if request.param == "undelete-condemned":
        # A sweep with another grace has condemned what this copy still names.
        hidden = [copy for copy in expired_savepoints(store) if copy.savepoint.startswith("b000000")]
        data = store.read(hidden[0].key)
        store.delete(hidden[0].key)
        sweep_all(store)
        store.write(hidden[0].key, data)
        return folder, Work(undelete_one, (0, 1, 2), -1)
    clock.advance(2 * HOUR_S, folder)
    if request.param == "condemn":
        return folder, Work(sweep_all, (1, 2), 6)  # part of a pack is stored again
    sweep_all(store)
    clock.advance(2 * HOUR_S, folder)
    if request.param == "delete":
        return folder, Work(sweep_all, (1, 2), -1)
    sweep_all(store)
    clock.advance(2 * HOUR_S, folder)
    return folder, Work(sweep_all, (1, 2), -1)


@pytest.mark.parametrize("kind", ["crash-before", "crash-after", "lost-reply", "full"])
def test_a_crash_at_any_call(prepared: tuple[Path, Work], kind: Kind, tmp_path: Path, clock: Clock) -> None:
    template, work = prepared
    before = assert_whole(LocalStore(template))
    there = {copy.savepoint for copy in expired_savepoints(LocalStore(template))}
    clean = copied(template, tmp_path / "clean")
    undisturbed = FaultyStore(clean)
    work.do(undisturbed)
    assert batches(clean) == work.listed
    assert work.files in (-1, len(content(clean)))
    assert len(undisturbed.calls) > 8

    for number, call in enumerate(undisturbed.calls, start=1):
        if kind != "crash-before" and call.operation not in (PASSING if kind == "full" else WRITES):
            continue  # the same as a crash before the next call
        inner = copied(template, tmp_path / "work")
        faulty = FaultyStore(inner, Fault(kind, call=number))
        with pytest.raises((SimulatedCrash, StorageError)):
            work.do(faulty)
        faulty.assert_fired()

        listed = assert_whole(inner)
        aside = {copy.savepoint for copy in expired_savepoints(inner)}
        if work.do is not sweep_all:
            assert before | there <= listed | aside, (
                "a savepoint is neither listed nor can it be brought back"
            )
        assert before <= listed | aside

        work.do(inner)  # a second run
        assert batches(inner) == work.listed
        assert_whole(inner)
        if number % 15 == 0:
            settle(inner, clock)


def settle(store: LocalStore, clock: Clock) -> None:
    """Whatever a crash has left, some sweeps later nothing is there that no savepoint needs."""
    for _ in range(4):
        clock.advance(2 * HOUR_S, store.root)
        sweep_all(store)
        assert_whole(store)
    report = sweep(Repository.open(store), grace_s=HOUR_S, dry_run=True).to_dict()
    assert report["condemned"]["files"] == report["waiting"]["files"] == report["deleted"]["files"] == 0
    assert report["expired"] == [] and report["left"] == []
    rebuilt = Repository.open(store).objects.index.rebuild()
    assert not rebuilt.changed


def copied(template: Path, to: Path) -> LocalStore:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(template, to, copy_function=shutil.copy2)
    return LocalStore(to, fsync=False)


def batches(store: Store) -> tuple[int | None, ...]:
    return tuple(summary.batch for summary in Repository.open(store).manifests())
