"""The whole way over a real S3 server: save a checkpoint of Spark's, verify it, restore it here and there."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import IntegrityError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import Store, open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.jobs.simulated_job import SimulatedJob
from tests.support.refuses import refuses
from tests.support.storage.killed_s3_client import dying
from tests.support.storage.s3_servers import S3Server, moto_server, seaweedfs, versitygw

__all__ = ["moto_server", "seaweedfs", "versitygw"]  # fixtures

CELLS = ("4.3.0/rocksdb-transform", "4.0.5/hdfs-window")
"""One with large files and schema files that name paths, one with many small files."""


def contents(store: Store) -> dict[str, bytes]:
    """Every file, but Hadoop's checksums of local disks."""
    return {info.path: store.read(info.path) for info in store.list() if not info.path.endswith(".crc")}


def differing(store: Store, other: Store) -> set[str]:
    one, two = contents(store), contents(other)
    assert one.keys() == two.keys()
    return {path for path in one if one[path] != two[path]}


@pytest.mark.parametrize(
    "fixture",
    [
        "seaweedfs",
        pytest.param("moto_server", marks=pytest.mark.storm),
        pytest.param("versitygw", marks=pytest.mark.storm),
    ],
)
@pytest.mark.parametrize("cell", CELLS)
def test_a_savepoint_on_s3_comes_back_local_and_on_s3(
    cell: str,
    fixture: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    server: S3Server = request.getfixturevalue(fixture)
    server.use(monkeypatch)
    checkpoint = open_store(unpack(cell, tmp_path / "was") / "checkpoint")
    repository = Repository.open(open_store(server.location()), create=True)

    taken = take(TakeRequest(checkpoint, repository, "orders"))

    assert verify(repository, "orders", taken.savepoint, level="full").ok
    again = take(TakeRequest(checkpoint, repository, "orders"))
    assert (again.already_there, again.new_bytes) == (True, 0)
    here, there = open_store(tmp_path / "here"), open_store(server.location("s3a"))
    for into in (here, there):
        restore(RestoreRequest(repository, "latest-good", job="orders", into=into))

    # Files that name the checkpoint's place say where they are now, and nothing else differs.
    moved = differing(here, there)
    assert bool(moved) == ("transform" in cell)
    assert all(here.uri.removeprefix("file://").encode() in here.read(path) for path in moved)
    assert all(there.uri.encode() in there.read(path) for path in moved)
    for into in (here, there):
        assert CheckpointReader(into).inspect().last_committed_batch == taken.batch

    # From S3 to S3: what was restored there is a checkpoint like any other.
    elsewhere = Repository.open(open_store(server.location()), create=True)
    copy = take(TakeRequest(there, elsewhere, "orders"))
    assert copy.batch == taken.batch
    assert verify(elsewhere, "orders", copy.savepoint, level="full").ok
    back = open_store(tmp_path / "back")
    restore(RestoreRequest(elsewhere, copy.savepoint, job="orders", into=back))
    assert contents(back).keys() == contents(here).keys()
    assert differing(back, here) == moved


def test_large_files_are_copied_by_the_service_and_hashed_all_the_same(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    seaweedfs.use(monkeypatch)
    shop = SimulatedJob(seaweedfs.location(), sink=False, state_bytes=1_100_000).run(2)
    taken = shop.take()
    with dying("before", request=0) as life:
        repository = Repository.open(open_store(shop.repository_store.uri))
        restore(RestoreRequest(repository, taken.savepoint, into=open_store(f"{shop.base}/restored")))
    large = [info for info in shop.open("restored").list() if info.size_bytes > 1 << 20]
    assert life.requests.count("copy_object") == len(large) == 4
    assert all(shop.checkpoint.read(info.path) == shop.open("restored").read(info.path) for info in large)

    (some, *_) = shop.repository_store.list("objects")
    data = shop.repository_store.read(some.path)
    shop.repository_store.write(some.path, bytes([data[0] ^ 1]) + data[1:])
    with refuses(IntegrityError, "object-damaged"):
        shop.restore(taken.savepoint, "again")
    assert list(shop.open("again").list()) == []


def test_damage_on_s3_is_found_and_passed_over(
    seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seaweedfs.use(monkeypatch)
    checkpoint = open_store(unpack(CELLS[1], tmp_path / "was") / "checkpoint")
    store = open_store(seaweedfs.location())
    repository = Repository.open(store, create=True)
    older, newer = sorted(CheckpointReader(checkpoint).inspect().retained_batches)[-2:]
    good = take(TakeRequest(checkpoint, repository, "orders", batch=older))
    packs = {info.path for info in store.list("packs")}
    bad = take(TakeRequest(checkpoint, repository, "orders", batch=newer))
    (pack,) = {info.path for info in store.list("packs")} - packs
    data = store.read(pack)
    store.write(pack, bytes([data[0] ^ 1]) + data[1:])

    assert not verify(repository, "orders", bad.savepoint, level="full").ok
    here = open_store(tmp_path / "here")
    report = restore(RestoreRequest(repository, "latest-good", job="orders", into=here, sink="accept"))
    assert report.plan.savepoint == good.savepoint
