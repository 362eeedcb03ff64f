"""A take of a batch whose savepoint has lost bytes puts them back, where the checkpoint still has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import IntegrityError
from streambank.repository.objects.large import object_key
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.trash import condemn, forget
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses
from tests.support.repository.damaged_job import flip, heals, keys, reopen


@pytest.fixture
def large(tmp_path: Path) -> SimulatedJob:
    """A job whose state files are separate objects."""
    return SimulatedJob(tmp_path, state_bytes=SMALL_BYTES + 100)


def test_a_deleted_pack(shop: SimulatedJob) -> None:
    first = shop.run(4).take()
    for key in keys(shop, "packs"):
        shop.repository_store.delete(key)
    assert heals(shop, first.savepoint) == first.new_bytes
    shop.restore(first.savepoint)


def test_a_pack_that_is_cut_off(shop: SimulatedJob) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    shop.repository_store.write(key, shop.repository_store.read(key)[:-1])
    assert heals(shop, first.savepoint) == first.new_bytes


def test_one_deleted_pack_of_two(shop: SimulatedJob) -> None:
    shop.run(3).take()
    (old,) = keys(shop, "packs")
    second = shop.run(1).take()
    shop.repository_store.delete(old)
    assert 0 < heals(shop, second.savepoint) < second.bytes


def test_a_deleted_object(large: SimulatedJob) -> None:
    first = large.run(1).take()
    large.repository_store.delete(keys(large, "objects")[0])
    assert heals(large, first.savepoint) > SMALL_BYTES


@pytest.mark.parametrize("folder", ["objects", "packs"])
def test_flipped_bytes_that_a_verification_found(large: SimulatedJob, folder: str) -> None:
    first = large.run(1).take()
    for key in keys(large, folder):
        flip(large, key)
    assert not verify(large.repository, JOB, first.savepoint, "full").ok
    assert heals(large, first.savepoint) >= 0


def test_a_large_object_that_was_stored_under_another_name(large: SimulatedJob) -> None:
    large.run(1)
    data = large.checkpoint.read("state/0/0/1.delta")
    with large.repository.objects.writer() as writer:
        digest = writer.add(data, len(data))
    record = condemn(large.repository_store, "blake3", [object_key(digest)], {})
    first = large.take()
    pack = large.repository.objects.locate(digest)
    assert (pack.kind, pack.length) == ("pack", len(data))
    large.repository_store.delete(object_key(digest))  # what the sweep does in the end
    forget(large.repository_store, record)

    flip(large, pack.key)
    reopen(large)
    assert not verify(large.repository, JOB, first.savepoint, "full").ok
    assert heals(large, first.savepoint) > SMALL_BYTES


@pytest.mark.parametrize("change", ["gone", "other bytes", "other size"])
def test_a_file_that_is_not_the_saved_one_any_more(shop: SimulatedJob, change: str) -> None:
    """Of a savepoint with more files than the second take asks for, one of those is not there any more."""
    first = shop.run(12).take(closure="safe")
    only_safe = {entry.path for entry in shop.repository.load(JOB, first.savepoint).files} - set(
        CheckpointReader(shop.checkpoint).closure(first.batch, "minimal").paths
    )
    path = max(path for path in only_safe if path.startswith("state/"))
    data = shop.checkpoint.read(path)
    for key in keys(shop, "packs"):
        shop.repository_store.delete(key)
    if change == "gone":
        shop.checkpoint.delete(path)
    else:
        shop.checkpoint.write(path, bytes(reversed(data)) if change == "other bytes" else data + b"x")
    reopen(shop)
    with refuses(IntegrityError, "savepoint-damaged"):
        shop.take(closure="minimal")
    assert keys(shop, "packs") == []


def test_a_take_that_knows_nothing_of_the_sink(shop: SimulatedJob) -> None:
    shop.run(4).take()
    for key in keys(shop, "packs"):
        shop.repository_store.delete(key)
    reopen(shop)
    with refuses(IntegrityError, "savepoint-damaged"):
        take(TakeRequest(shop.checkpoint, shop.repository, JOB))
