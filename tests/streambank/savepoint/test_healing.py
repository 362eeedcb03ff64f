"""A take of a batch whose savepoint has lost bytes puts them back, where the checkpoint still has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.errors import IntegrityError
from streambank.savepoint.packs import SMALL_BYTES
from streambank.savepoint.repository import Repository
from streambank.savepoint.take import take
from streambank.savepoint.verify import verify
from tests.support.workshop import JOB, Workshop


@pytest.fixture
def large(tmp_path: Path) -> Workshop:
    """A workshop whose state files are objects of their own."""
    return Workshop(tmp_path, state_bytes=SMALL_BYTES + 100)


def keys(shop: Workshop, folder: str) -> list[str]:
    return sorted(info.path for info in shop.repository_store.list(folder))


def flip(shop: Workshop, key: str, where: int = 100) -> None:
    data = bytearray(shop.repository_store.read(key))
    data[where] ^= 4
    shop.repository_store.write(key, bytes(data))


def anew(shop: Workshop) -> None:
    """Another process, which remembers nothing."""
    shop.repository = Repository.open(shop.repository_store)


def is_whole(shop: Workshop, savepoint: str) -> bool:
    return verify(Repository.open(shop.repository_store), JOB, savepoint, "full", record=False).ok


def heals(shop: Workshop, savepoint: str) -> int:
    """Take the same batch again; how many bytes came back."""
    assert not is_whole(shop, savepoint)
    anew(shop)
    again = shop.take()
    assert (again.savepoint, again.already_there) == (savepoint, True)
    assert is_whole(shop, savepoint)
    return again.new_bytes


def test_a_deleted_pack(shop: Workshop) -> None:
    first = shop.run(4).take()
    for key in keys(shop, "packs"):
        shop.repository_store.delete(key)
    assert heals(shop, first.savepoint) == first.new_bytes
    shop.restore(first.savepoint)


def test_a_pack_that_is_cut_off(shop: Workshop) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    shop.repository_store.write(key, shop.repository_store.read(key)[:-1])
    assert heals(shop, first.savepoint) == first.new_bytes


def test_one_deleted_pack_of_two(shop: Workshop) -> None:
    shop.run(3).take()
    (old,) = keys(shop, "packs")
    second = shop.run(1).take()
    shop.repository_store.delete(old)
    assert 0 < heals(shop, second.savepoint) < second.bytes


def test_a_deleted_object(large: Workshop) -> None:
    first = large.run(1).take()
    large.repository_store.delete(keys(large, "objects")[0])
    assert heals(large, first.savepoint) > SMALL_BYTES


@pytest.mark.parametrize("folder", ["objects", "packs"])
def test_flipped_bytes_that_a_verification_found(large: Workshop, folder: str) -> None:
    first = large.run(1).take()
    for key in keys(large, folder):
        flip(large, key)
    assert not verify(large.repository, JOB, first.savepoint, "full").ok
    assert heals(large, first.savepoint) >= 0


@pytest.fixture(params=["trailer", "digest", "entry"])
def bit(request: pytest.FixtureRequest) -> int:
    """Where to damage the end of a pack, counted from there: its length stays what it was."""
    return {"trailer": -3, "digest": -40, "entry": -150}[request.param]


def test_a_damaged_table_is_written_again_by_a_take_of_the_same_batch(shop: Workshop, bit: int) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    before = shop.repository_store.read(key)
    flip(shop, key, bit)
    assert heals(shop, first.savepoint) == 0
    assert shop.repository_store.read(key) == before


def test_a_damaged_table_is_written_again_by_the_next_take(shop: Workshop, bit: int) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    flip(shop, key, bit)
    anew(shop)
    second = shop.run(1).take()
    assert is_whole(shop, first.savepoint)
    assert is_whole(shop, second.savepoint)
    assert second.new_bytes < first.new_bytes


def test_a_damaged_table_is_written_again_by_reindex(shop: Workshop, bit: int) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    flip(shop, key, bit)
    found = verify(Repository.open(shop.repository_store), JOB, first.savepoint).findings
    assert {(finding.code, "streambank reindex" in finding.hint) for finding in found} == {
        ("pack-damaged", True)
    }
    anew(shop)
    report = shop.repository.rebuild_index()
    assert (report.repaired, report.damaged, report.changed) == ((key,), (), False)
    assert is_whole(shop, first.savepoint)


def test_an_object_beside_a_damaged_table_is_not_passed_off_as_whole(shop: Workshop) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    flip(shop, key, -3)
    flip(shop, key, 100)
    anew(shop)
    assert shop.repository.rebuild_index().repaired == (key,)
    assert not verify(shop.repository, JOB, first.savepoint, "full").ok
    assert heals(shop, first.savepoint) == 0  # patched in its place


def test_without_an_index_a_table_is_not_invented_and_a_take_of_the_batch_brings_all_back(
    shop: Workshop, bit: int
) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    flip(shop, key, bit)
    for index in keys(shop, "index"):
        shop.repository_store.delete(index)
    anew(shop)
    before = shop.repository_store.read(key)
    report = shop.repository.rebuild_index()
    assert [damage.key for damage in report.damaged] == [key]
    assert report.repaired == ()
    assert shop.repository_store.read(key) == before
    assert heals(shop, first.savepoint) > 0


@pytest.mark.parametrize("change", ["gone", "other bytes", "other size"])
def test_a_file_that_is_not_the_saved_one_any_more(shop: Workshop, change: str) -> None:
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
    anew(shop)
    with pytest.raises(IntegrityError) as refused:
        shop.take(closure="minimal")
    assert refused.value.code == "savepoint-damaged"
    assert keys(shop, "packs") == []


def test_a_take_that_knows_nothing_of_the_sink(shop: Workshop) -> None:
    shop.run(4).take()
    for key in keys(shop, "packs"):
        shop.repository_store.delete(key)
    anew(shop)
    with pytest.raises(IntegrityError) as refused:
        take(shop.checkpoint, shop.repository, JOB)
    assert refused.value.code == "savepoint-damaged"
