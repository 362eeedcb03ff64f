"""Objects on their way to another repository, streamed and copied by the service."""

from __future__ import annotations

import json

import pytest

from streambank.core.errors import IntegrityError
from streambank.repository.digest import digest_of
from streambank.repository.objects.large import object_key
from streambank.repository.repository import Repository
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from streambank.work.check import ObjectsTask
from streambank.work.move import Moved, Moving
from tests.support.repository.repositories import FILES, LARGE, flip, save

BIG = digest_of("blake3", LARGE)


@pytest.fixture
def source() -> Repository:
    repository = Repository.open(MemoryStore(), create=True)
    save(repository)
    return repository


@pytest.fixture
def target() -> Repository:
    return Repository.open(MemoryStore(), create=True)


def everything(source: Repository) -> ObjectsTask:
    (summary,) = source.manifests()
    return ObjectsTask(tuple(source.load(summary.job, summary.savepoint).objects().items()))


def move(source: Repository, target: Repository, *, by_service: bool) -> Moved:
    with target.objects.writer() as writer:
        return Moving(source, target, writer, by_service=by_service).run(everything(source))


@pytest.mark.parametrize("by_service", [False, True])
def test_every_byte_arrives(source: Repository, target: Repository, by_service: bool) -> None:
    moved = move(source, target, by_service=by_service)
    task = everything(source)
    assert (moved.objects, moved.bytes, moved.errors) == (task.files, task.size_bytes, {})
    assert moved.service_bytes == (len(LARGE) if by_service else 0)
    assert {target.objects.read(digest) for digest, _ in task.objects} == set(FILES.values())


@pytest.mark.parametrize("by_service", [False, True])
def test_a_damaged_object_stays_behind_and_the_rest_goes_on(
    source: Repository, target: Repository, by_service: bool
) -> None:
    flip(source.store, object_key(BIG), 1000)
    moved = move(source, target, by_service=by_service)
    assert list(moved.errors) == [BIG] and isinstance(moved.errors[BIG], IntegrityError)
    assert moved.objects == everything(source).files - 1 and moved.service_bytes == 0
    assert not target.store.exists(object_key(BIG))


class NoServiceCopy(MemoryStore):
    def copy_from(self, source: Store, source_key: str, key: str) -> bool:
        return False


def test_a_service_that_does_not_copy_is_not_asked_again(source: Repository) -> None:
    target = Repository.open(NoServiceCopy(), create=True)
    with target.objects.writer() as writer:
        moving = Moving(source, target, writer, by_service=True)
        moved = moving.run(everything(source))
    assert not moving.by_service
    assert (moved.errors, moved.service_bytes) == ({}, 0)
    assert target.objects.read(BIG) == LARGE


def test_an_outcome_comes_back_from_another_machine_as_it_was(source: Repository, target: Repository) -> None:
    flip(source.store, object_key(BIG), 1000)
    moved = move(source, target, by_service=False)
    sent = json.loads(json.dumps(Moving.write_outcome(moved)))
    back = Moving.read_outcome(everything(source), sent)
    assert (back.objects, back.bytes) == (moved.objects, moved.bytes)
    assert back.errors[BIG].to_dict() == moved.errors[BIG].to_dict()
    both = Moved()
    both.add(moved)
    both.add(back)
    assert (both.objects, both.bytes, list(both.errors)) == (2 * moved.objects, 2 * moved.bytes, [BIG])
