"""Damage in a live checkpoint is found, and nothing that Spark itself may do is taken for it."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.checkpoint.closure import ClosurePlanner
from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.listing import list_checkpoint
from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.state.lz4 import MAGIC
from streambank.core.errors import NotFoundError
from streambank.repository.catalog import newest_good
from streambank.repository.repository import Repository
from streambank.savepoint.live_damage import CheckpointDamage, find_damage
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank.storage.store import Features, FileInfo, Store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import PLANNED, unpack
from tests.support.refuses import refuses

pytestmark = pytest.mark.storm

DAMAGED = (
    "3.5.9/hdfs-window",
    "3.5.9/rocksdb-changelog-window",
    "4.0.5/rocksdb-transform",
    "4.3.0/file-sink",
    "4.3.0/hdfs-join",
    "4.3.0/ids-changelog-zstd",
    "4.3.0/ids-window",
    "4.3.0/rocksdb-changelog-transform",
    "4.3.0/rocksdb-window",
    "4.3.0/stateless",
)
END_MARK = MAGIC + b"\x15" + bytes(12)


class Live:
    """A recorded checkpoint with a repository beside it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = unpack(name, folder) / "checkpoint"
        self.store: Store = open_store(str(self.path))
        self.repository = Repository.open(open_store(str(folder / "repository")), create=True)

    def take(self, batch: int | None = None) -> Live:
        take(TakeRequest(self.store, self.repository, "orders", batch=batch))
        return self

    def planner(self) -> ClosurePlanner:
        return ClosurePlanner(CheckpointIndex.build(list_checkpoint(self.store)), self.store.read)

    def needed(self) -> list[str]:
        """What Spark cannot do without."""
        return [file.path for file in self.planner().plan(None, "minimal").files if file.required]

    def damage(self) -> tuple[CheckpointDamage, ...]:
        saved = newest_good(self.repository.store, "orders", 5)
        return find_damage(self.store, self.planner(), saved, self.repository)

    def write(self, path: str, data: bytes, *, keep_time: bool = False) -> None:
        """Write a file as another program would, with the time of now or the one that it had."""
        stat = (self.path / path).stat()
        (self.path / path).write_bytes(data)
        if keep_time:
            os.utime(self.path / path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("name", PLANNED)
def test_nothing_is_damaged_in_a_healthy_checkpoint(tmp_path: Path, name: str) -> None:
    live = Live(tmp_path, name)
    assert live.damage() == ()
    for batch in CheckpointReader(live.store).retained_batches()[-3::2]:
        assert live.take(batch).damage() == (), f"with a savepoint of batch {batch}"


@pytest.mark.parametrize("name", DAMAGED)
def test_each_file_that_spark_needs_and_that_is_cut_off_is_found(tmp_path: Path, name: str) -> None:
    live = Live(tmp_path, name).take()
    for path in live.needed():
        data = (live.path / path).read_bytes()
        for half, keep_time in ((len(data) // 2, False), (len(data) // 2, True), (0, False)):
            live.write(path, data[:half], keep_time=keep_time)
            found = {one.path: one for one in live.damage()}
            if not found:  # an older snapshot is at hand, and a plan says so
                assert path.endswith((".snapshot", ".zip", ".sst"))
                assert path in "".join(live.planner().plan(None, "minimal").notes)
            else:
                assert found[path].size_bytes == half, f"{path} cut to {half} of {len(data)} bytes"
        live.write(path, data)
        assert live.damage() == ()


@pytest.mark.parametrize("name", ["3.5.9/hdfs-window", "4.3.0/rocksdb-changelog-window"])
def test_a_state_file_without_its_end_needs_no_savepoint(tmp_path: Path, name: str) -> None:
    live = Live(tmp_path, name)
    streams = [path for path in live.needed() if path.endswith((".delta", ".changelog"))]
    for path in streams:
        data = (live.path / path).read_bytes()
        for damaged in (data[:-1], bytes(len(data))):
            live.write(path, damaged)
            (found,) = live.damage()
            assert (found.path, found.size_bytes, found.fatal) == (path, len(damaged), True)
        live.write(path, data)
    assert streams and live.damage() == ()


def test_the_words_name_the_file_and_both_sizes(tmp_path: Path) -> None:
    live = Live(tmp_path, "4.3.0/hdfs-window").take()
    path = next(path for path in live.needed() if path.endswith(".delta"))
    size = (live.path / path).stat().st_size
    live.write(path, (live.path / path).read_bytes()[: size // 2])

    (found,) = live.damage()

    (saved,) = newest_good(live.repository.store, "orders", 5)
    assert (found.size_bytes, found.saved_bytes) == (size // 2, size)
    assert found.cause == (
        f"{path} has {size // 2} bytes, and had {size} when savepoint {saved.savepoint} was taken."
    )


def test_what_a_late_task_or_maintenance_has_written_again_is_no_damage(tmp_path: Path) -> None:
    """Other bytes of the same meaning under the same name: a delta, a snapshot, a changelog, a zip."""
    for name in ("3.5.9/hdfs-window", "4.3.0/rocksdb-changelog-window", "4.3.0/rocksdb-window"):
        live = Live(tmp_path / name.replace("/", "-"), name).take()
        rewritten: set[Kind] = set()
        for path in live.needed():
            kind = classify(path).kind
            data = (live.path / path).read_bytes()
            if kind in (Kind.DELTA, Kind.SNAPSHOT, Kind.CHANGELOG):
                for other in (data[:-40] + END_MARK, data[:-21] + b"\x00" * 9 + END_MARK):
                    live.write(path, other)
                    assert live.damage() == (), path
                rewritten.add(kind)
            elif kind is Kind.ZIP:
                with zipfile.ZipFile(live.path / path, "a") as archive:
                    archive.comment = b"uploaded again"
                assert live.damage() == (), path
                rewritten.add(kind)
        assert rewritten


def test_a_batch_that_ran_again_in_another_run_is_not_compared(tmp_path: Path) -> None:
    """Somebody took the checkpoint back by hand: the same numbers, other batches."""
    live = Live(tmp_path, "4.3.0/hdfs-window").take()
    batch = max(live.planner().index.commits)
    offsets = (live.path / f"offsets/{batch}").read_bytes()
    live.write(f"offsets/{batch}", offsets.replace(b'"batchTimestampMs":1', b'"batchTimestampMs":2'))
    for path in live.needed():
        if path.endswith((".delta", ".snapshot")):
            live.write(path, (live.path / path).read_bytes()[:-30] + END_MARK, keep_time=True)
    assert live.damage() == ()


def test_a_snapshot_that_spark_repairs_does_not_keep_a_query_from_starting(tmp_path: Path) -> None:
    live = Live(tmp_path, "3.5.9/hdfs-window")
    snapshots = [path for path in live.needed() if path.endswith(".snapshot")]
    live.write(snapshots[0], (live.path / snapshots[0]).read_bytes()[:-5])
    (found,) = live.damage()
    assert (found.path, found.fatal) == (snapshots[0], False)
    for delta in (live.path / snapshots[0]).parent.glob("*.delta"):
        delta.unlink()
    assert any(one.fatal for one in live.damage())


def test_a_planned_batch_whose_log_is_cut_off_is_found(tmp_path: Path) -> None:
    live = Live(tmp_path, "4.3.0/stateless")
    batch = max(live.planner().index.commits)
    (live.path / f"commits/{batch}").unlink()
    assert live.damage() == (), "a batch that is planned and not committed is no damage"
    live.write(f"offsets/{batch}", b"v1\n{")
    (found,) = live.damage()
    assert (found.path, found.fatal) == (f"offsets/{batch}", True)


def test_a_query_that_goes_on_while_it_is_looked_at_is_not_damaged(tmp_path: Path) -> None:
    """Few batches are retained, and what the newest one needed is deleted between two listings."""
    store = open_store(str(tmp_path / "checkpoint"))
    query = LiveCheckpoint(store, retain=2).run(7)

    class Running(type(store)):  # type: ignore[misc]  # the class of the store at hand
        features = Features()

        def list(self, prefix: str = "") -> Iterator[FileInfo]:
            if prefix == "offsets":
                query.run(10)
            yield from super().list(prefix)

    running = Running(tmp_path / "checkpoint")
    planner = ClosurePlanner(CheckpointIndex.build(list_checkpoint(running)), running.read)
    assert query.last == 16
    with pytest.raises(NotFoundError):
        planner.plan(None, "minimal")
    assert find_damage(running, planner) == ()
    (tmp_path / f"checkpoint/offsets/{query.last}").unlink()
    planner = ClosurePlanner(CheckpointIndex.build(list_checkpoint(store)), store.read)
    assert find_damage(store, planner), "this one stands still"


def test_a_file_that_is_written_again_while_it_is_looked_at_is_not_damaged(tmp_path: Path) -> None:
    """A late task renames another delta into place: its end is not where the listed size says."""
    live = Live(tmp_path, "3.5.9/hdfs-window")
    path = next(path for path in live.needed() if path.endswith(".delta"))
    data = (live.path / path).read_bytes() + bytes(20_000)
    live.write(path, data + END_MARK)
    planner = live.planner()
    live.write(path, data + bytes(99) + END_MARK)
    assert find_damage(live.store, planner) == ()
    live.write(path, data)
    assert live.damage()


def test_a_stateless_query_may_log_a_few_of_its_batches_and_retain_one(tmp_path: Path) -> None:
    """Asynchronous progress tracking with minBatchesToRetain=1: Spark 4.3.0 goes on from [24] and [24]."""
    live = Live(tmp_path, "4.3.0/stateless")
    for log in ("offsets", "commits"):
        for path in (live.path / log).glob("[0-9]*"):
            if int(path.name) != max(live.planner().index.commits):
                path.unlink()
    assert live.damage() == ()


def test_savepoints_of_another_directory_or_query_say_nothing(tmp_path: Path) -> None:
    live = Live(tmp_path / "one", "4.3.0/hdfs-window").take()
    saved = newest_good(live.repository.store, "orders", 5)
    other = Live(tmp_path / "two", "4.3.0/hdfs-window")
    path = next(path for path in other.needed() if path.endswith(".delta"))
    other.write(path, (other.path / path).read_bytes()[:-30] + END_MARK, keep_time=True)
    assert find_damage(other.store, other.planner(), saved, live.repository) == ()


def test_what_is_compared_costs_two_reads_of_a_log_and_none_of_the_state(tmp_path: Path) -> None:
    live = Live(tmp_path, "3.5.9/hdfs-window").take()
    planner = live.planner()
    planner.plan(None, "minimal")
    saved = newest_good(live.repository.store, "orders", 5)
    reads: list[str] = []

    class Counting(type(live.store)):  # type: ignore[misc]  # the class of the store at hand
        def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
            reads.append(key)
            data: bytes = super().read(key, offset, length)
            return data

    live.store.__class__ = Counting
    assert find_damage(live.store, planner, saved, live.repository) == ()
    batch = saved[0].batch
    assert sorted(reads) == [f"commits/{batch}", f"offsets/{batch}"]


@pytest.mark.parametrize("name", [name for name in DAMAGED if "stateless" not in name and "file" not in name])
def test_a_checkpoint_without_its_state_is_damaged_though_a_query_without_state_looks_the_same(
    tmp_path: Path, name: str
) -> None:
    live = Live(tmp_path, name)
    live.take(CheckpointReader(live.store).retained_batches()[-2])
    shutil.rmtree(live.path / "state")
    assert "state/0" in {one.path for one in live.damage() if one.fatal}
    with refuses(NotFoundError, "missing-state-file") as raised:
        live.take()
    assert raised.value.hint


@pytest.mark.parametrize(("place", "is_found"), [("hdfs://nn:8020/ck", True), ("hdfs://nn/other", False)])
def test_state_that_is_missing_is_seen_by_another_name_of_the_checkpoint_s_service(
    tmp_path: Path, place: str, is_found: bool
) -> None:
    live = Live(tmp_path, "4.3.0/rocksdb-transform").take()

    class Named(type(live.store)):  # type: ignore[misc]  # the class of the store at hand
        uri = "hdfs://nn/ck"

    saved = [replace(head, checkpoint=place) for head in newest_good(live.repository.store, "orders", 5)]
    shutil.rmtree(live.path / "state")
    live.store.__class__ = Named
    found = find_damage(live.store, live.planner(), saved, live.repository)
    assert ("state/0" in {one.path for one in found}) is is_found
