"""A pack whose table of contents is damaged at its right length: written again where the index proves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.repository.damaged_job import flip, heals, is_whole, keys, reopen


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(f"memory://{tmp_path.name}")


@pytest.fixture(params=["trailer", "digest", "entry"])
def bit(request: pytest.FixtureRequest) -> int:
    """Where to damage the end of a pack, counted from there: its length stays what it was."""
    return {"trailer": -3, "digest": -40, "entry": -150}[request.param]


def test_a_damaged_table_is_written_again_by_a_take_of_the_same_batch(shop: SimulatedJob, bit: int) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    before = shop.repository_store.read(key)
    flip(shop, key, bit)
    assert heals(shop, first.savepoint) == 0
    assert shop.repository_store.read(key) == before


def test_a_damaged_table_is_written_again_by_the_next_take(shop: SimulatedJob, bit: int) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    flip(shop, key, bit)
    reopen(shop)
    second = shop.run(1).take()
    assert is_whole(shop, first.savepoint)
    assert is_whole(shop, second.savepoint)
    assert second.new_bytes < first.new_bytes


def test_a_damaged_table_is_written_again_by_reindex(shop: SimulatedJob, bit: int) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    flip(shop, key, bit)
    found = verify(Repository.open(shop.repository_store), JOB, first.savepoint).findings
    assert {(finding.code, "streambank reindex" in finding.hint) for finding in found} == {
        ("pack-damaged", True)
    }
    reopen(shop)
    report = shop.repository.objects.index.rebuild()
    assert (report.repaired, report.damaged, report.changed) == ((key,), (), False)
    assert is_whole(shop, first.savepoint)


def test_an_object_beside_a_damaged_table_is_not_passed_off_as_whole(shop: SimulatedJob) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    flip(shop, key, -3)
    flip(shop, key, 100)
    reopen(shop)
    assert shop.repository.objects.index.rebuild().repaired == (key,)
    assert not verify(shop.repository, JOB, first.savepoint, "full").ok
    assert heals(shop, first.savepoint) == 0  # patched in its place


def test_without_an_index_a_table_is_not_invented_and_a_take_of_the_batch_brings_all_back(
    shop: SimulatedJob, bit: int
) -> None:
    first = shop.run(4).take()
    (key,) = keys(shop, "packs")
    flip(shop, key, bit)
    for index in keys(shop, "index"):
        shop.repository_store.delete(index)
    reopen(shop)
    before = shop.repository_store.read(key)
    report = shop.repository.objects.index.rebuild()
    assert [damage.key for damage in report.damaged] == [key]
    assert report.repaired == ()
    assert shop.repository_store.read(key) == before
    assert heals(shop, first.savepoint) > 0
