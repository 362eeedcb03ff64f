"""The reader over stores: live, damaged and hostile directories."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.checkpoint.inspection import MAX_THOROUGH_READS
from streambank.checkpoint.listing import LISTING_ORDER, list_checkpoint
from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import ConflictError, NotFoundError, StorageError
from streambank.storage import FileInfo, Store, open_store
from streambank.storage.store import Features
from tests.support.checkpoint.recorded import NAMES, PLANNED, Checkpoint, checkpoint, unpack
from tests.support.refuses import refuses
from tests.support.waiting import at_most_of_a_processor

UUID = "8de4d609-c3fd-4163-8503-b3ec704096a9"


class FakeStore:
    """A checkpoint in memory with what the reader needs of a store; writing is not possible."""

    uri = "memory://checkpoint"
    features = Features()

    def __init__(self, found: Checkpoint) -> None:
        self.found = found
        self.calls: list[str] = []

    def names(self, prefix: str = "") -> list[str]:
        start = f"{prefix}/" if prefix else ""
        return sorted(
            {path[len(start) :].split("/")[0] for path in self.found.files if path.startswith(start)}
        )

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        self.calls.append(prefix)
        for path, info in self.found.listing().items():
            if path.startswith(f"{prefix}/"):
                yield info

    def stat(self, key: str) -> FileInfo:
        if key not in self.found.files:
            raise NotFoundError(f"{key} is not there.")
        return self.found.listing()[key]

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        return self.found.read(key, offset, length)


def reader(found: Checkpoint) -> CheckpointReader:
    return CheckpointReader(FakeStore(found))  # type: ignore[arg-type]  # the reading half of a store


@pytest.mark.parametrize("name", ["4.3.0/rocksdb-changelog-window", "3.5.9/hdfs-join", "4.3.0/stateless"])
def test_a_real_directory_reads_as_the_same_bytes_in_memory(name: str, tmp_path: Path) -> None:
    store = open_store(str(unpack(name, tmp_path) / "checkpoint"))
    on_disk, in_memory = CheckpointReader(store), reader(checkpoint(name))
    assert set(on_disk.listing()) == set(in_memory.listing()) == set(checkpoint(name).files)
    assert on_disk.closure().paths == in_memory.closure().paths
    assert on_disk.retained_batches() == checkpoint(name).batches()
    assert on_disk.last_committed() == on_disk.last_planned() == max(checkpoint(name).batches())
    assert on_disk.query_id() == in_memory.closure().query_id
    before = snapshot(tmp_path)
    on_disk.inspect()
    assert snapshot(tmp_path) == before


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_the_inspection_as_json() -> None:
    answer = reader(checkpoint("4.3.0/rocksdb-window")).inspect().to_dict()
    json.dumps(answer)
    assert answer["last_committed_batch"] == answer["last_planned_batch"] == answer["batch"] == 7
    assert answer["retained_batches"] == list(range(8))
    assert answer["watermark"] == "2024-01-01T00:50:00.000Z"
    assert answer["operators"][0]["stores"][0]["rows"] == 13
    assert answer["sources"] == [{"source": "0", "kind": "file", "offset": '{"logOffset":6}', "log_files": 7}]
    assert answer["findings"] == []
    assert reader(checkpoint("4.3.0/rocksdb-window")).inspect(3).to_dict()["batch"] == 3


def test_a_batch_that_is_not_there_is_a_finding() -> None:
    inspection = reader(checkpoint("4.3.0/rocksdb-window")).inspect(99)
    assert inspection.closure is None
    assert [finding.code for finding in inspection.findings] == ["batch-not-committed"]
    assert inspection.retained_batches == tuple(range(8))


def test_what_is_odd_is_said() -> None:
    found = checkpoint("4.3.0/rocksdb-window").having(
        {
            f"state/0/1/.9.zip.{UUID}.TID12.tmp": b"half",
            "notes.txt": b"mine",
            "commits/8": b"",
            "offsets/8": b"v1\n",
        }
    )
    inspection = reader(found.but("state/0/0/_metadata/schema")).inspect()
    assert {finding.code for finding in inspection.findings} == {
        "half-written",
        "temporary-files",
        "unknown-files",
    }
    assert inspection.retained_batches == tuple(range(8))
    whole = reader(found.but("state/0/0/_metadata/schema", "commits/8", "offsets/8")).inspect()
    assert {finding.code for finding in whole.findings} == {
        "schema-missing",
        "temporary-files",
        "unknown-files",
    }


def test_a_lost_sst_costs_only_the_batches_that_need_it() -> None:
    found = checkpoint("4.3.0/rocksdb-window")
    [first] = [path for path in found.plan(0).paths if path.startswith("state/0/0/SSTs/")]
    inspection = reader(found.but(first)).inspect()
    assert 0 not in inspection.retained_batches
    assert {finding.file for finding in inspection.findings if finding.code == "missing-state-file"} == {
        first
    }


class Moving(FakeStore):
    """A query that plans a batch while its state is listed, which comes last."""

    def __init__(self, found: Checkpoint, later: Checkpoint) -> None:
        super().__init__(found)
        self.later = later

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        if prefix == "state":
            self.found = self.later
        yield from super().list(prefix)


def test_batches_that_are_planned_while_state_is_listed_are_not_lost() -> None:
    whole = checkpoint("4.3.0/hdfs-window")
    newest = whole.batches()[-1]
    before = whole.but(
        *(f"{log}/{batch}" for log in ("offsets", "commits") for batch in (newest, newest - 1))
    )
    moving = CheckpointReader(Moving(before, whole)).inspect()  # type: ignore[arg-type]  # the reading half
    assert "logs-behind" not in {finding.code for finding in moving.findings}
    assert "logs-behind" in {finding.code for finding in reader(before).inspect().findings}


def test_nothing_at_all_is_no_checkpoint(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        empty = CheckpointReader(open_store(str(folder)))
        for call in (empty.inspect, empty.closure, empty.query_id):
            with refuses(NotFoundError, "not-a-checkpoint"):
                call()
        assert empty.last_committed() is None
        assert empty.retained_batches() == []


@pytest.mark.parametrize("name", NAMES)
def test_inspect_answers_whatever_was_deleted_cut_off_or_scribbled(name: str) -> None:
    found = checkpoint(name)
    chance = random.Random(name)
    paths = sorted(path for path in found.files if not path.rpartition("/")[2].startswith("."))
    for _ in range(12):
        files = dict(found.files)
        for path in chance.sample(paths, chance.randint(1, max(2, len(paths) // 3))):
            data = files[path]
            match chance.randrange(6):
                case 0 | 1:
                    del files[path]
                case 2:
                    files[path] = data[: chance.randrange(len(data) + 1)]
                case 3:
                    files[path] = bytes(len(data))
                case 4:
                    at = chance.randrange(len(data))
                    files[path] = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
                case _:
                    files[path] = files[chance.choice(sorted(files))]
        if not any(path == "metadata" or path.startswith(("offsets/", "commits/")) for path in files):
            continue
        inspection = reader(Checkpoint(files)).inspect()
        json.dumps(inspection.to_dict())
        assert inspection.closure is not None or inspection.findings
        for batch in inspection.retained_batches:
            assert set(Checkpoint(files).plan(batch).paths) <= set(files)


@pytest.mark.parametrize(
    "files",
    [
        {"metadata": b"[" * 10**5},
        {"metadata": b'{"id":"' + b"x" * 100 + b'"}', "commits/0": b"v1\n{}", "offsets/0": b"v1\n{}\n-"},
        {"commits/999999999999999999": b"v1\n{}", "offsets/999999999999999998": b"v1\n{}\n0"},
        {
            "metadata": b'{"id":"a"}',
            "commits/0": b"v1\n{}",
            "offsets/0": b'v1\n{"conf":{"spark.sql.shuffle.partitions":"1000000000"}}\n0',
            "state/0/0/1.delta": b"x",
        },
        {
            "metadata": b'{"id":"a"}',
            "commits/0": b'v1\n{"nextBatchWatermarkMs":' + b"9" * 300 + b"}",
            "offsets/0": b"v1\n{}\n0",
        },
        {"commits/0": b"v1\n" + b"9" * 5000, "offsets/0": b"v1\n{}\n" + b'{"logOffset":' + b"9" * 30 + b"}"},
    ],
)
def test_inspect_answers_hostile_directories_quickly(files: dict[str, bytes]) -> None:
    with at_most_of_a_processor(5):
        json.dumps(reader(Checkpoint(files)).inspect().to_dict())


def test_links_and_directories_in_the_place_of_files(tmp_path: Path) -> None:
    folder = unpack("4.3.0/hdfs-global", tmp_path) / "checkpoint"
    (folder / "commits" / "3").unlink()
    (folder / "commits" / "3").mkdir()
    (folder / "offsets" / "2").unlink()
    (folder / "offsets" / "2").symlink_to("/etc/hostname")
    (folder / "state" / "0" / "0" / "1.delta").unlink()
    (folder / "state" / "0" / "0" / "1.delta").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "commits" / "1000")
    inspection = CheckpointReader(open_store(str(folder))).inspect()
    json.dumps(inspection.to_dict())
    assert inspection.findings


class ForbiddenStore(FakeStore):
    """A directory that may be listed, and files in it that may not be read."""

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        raise StorageError(f"{key} may not be read.", code="permission")


def test_files_that_may_not_be_read_are_a_finding() -> None:
    forbidden = CheckpointReader(ForbiddenStore(checkpoint("4.3.0/hdfs-window")))  # type: ignore[arg-type]
    with pytest.raises(StorageError):
        forbidden.closure()
    inspection = forbidden.inspect()
    assert {finding.code for finding in inspection.findings} == {"permission"}
    assert (inspection.query_id, inspection.retained_batches) == (None, ())


def test_the_listing_begins_with_the_commits() -> None:
    store = FakeStore(checkpoint("4.3.0/rocksdb-window").having({"extra/file": b"1", ".metadata.crc": b"x"}))
    listing = list_checkpoint(store)  # type: ignore[arg-type]  # the reading half of a store
    assert tuple(store.calls[: len(LISTING_ORDER)]) == LISTING_ORDER
    assert LISTING_ORDER.index("commits") < LISTING_ORDER.index("sources") < LISTING_ORDER.index("offsets")
    assert set(listing) == set(store.found.files)


class GrowingStore(FakeStore):
    """A query that commits its next batch each time its state is about to be listed."""

    def __init__(self, found: Checkpoint, upto: int) -> None:
        super().__init__(found)
        self.whole = found
        self.batch = upto
        self.grow()

    def grow(self) -> None:
        closures = [self.whole.plan(batch, "safe").paths for batch in range(self.batch + 1)]
        self.found = Checkpoint({path: self.whole.files[path] for paths in closures for path in paths})
        self.batch += 1

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        if prefix in ("sources", "state"):
            self.grow()
        yield from super().list(prefix)


@pytest.mark.parametrize("name", ["4.3.0/hdfs-window", "4.3.0/ids-changelog-window", "4.3.0/stateless"])
def test_batches_that_are_committed_while_listing_do_no_harm(name: str) -> None:
    store = GrowingStore(checkpoint(name), 3)
    closure = CheckpointReader(store).closure()  # type: ignore[arg-type]  # the reading half of a store
    assert closure.batch == 3
    assert set(closure.paths) == set(checkpoint(name).plan(3, "safe").paths)


class ShrinkingStore(FakeStore):
    """A query that deletes what is listed before it is read, and has a newer commit by then."""

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        if key.startswith("offsets/"):
            raise NotFoundError(f"{key} is not there.")
        return super().read(key, offset, length)


def test_a_checkpoint_that_moves_all_the_time() -> None:
    moving = CheckpointReader(ShrinkingStore(checkpoint("4.3.0/hdfs-window")))  # type: ignore[arg-type]
    with refuses(ConflictError, "checkpoint-moved"):
        moving.closure()
    inspection = moving.inspect()
    assert [finding.code for finding in inspection.findings] == ["checkpoint-moved"]
    assert inspection.last_committed_batch == 13


def big_checkpoint(partitions: int, batches: int) -> Checkpoint:
    """A checkpoint of very many files: RocksDB with changelogs, a snapshot every 10 versions of 20 SSTs."""
    one = checkpoint("4.3.0/rocksdb-changelog-window")
    zip_path = next(path for path in one.plan().paths if path.endswith(".zip"))
    ssts = {path.rpartition("/")[2]: data for path, data in one.files.items() if path.endswith(".sst")}
    files = {
        "metadata": one.files["metadata"],
        "state/0/_metadata/metadata": one.files["state/0/_metadata/metadata"],
    }
    offsets = one.files["offsets/13"].replace(
        b'"spark.sql.shuffle.partitions":"2"', b'"spark.sql.shuffle.partitions":"%d"' % partitions
    )
    head = offsets.rpartition(b"\n")[0]
    for batch in range(batches):
        files[f"offsets/{batch}"] = head + b'\n{"logOffset":%d}' % batch
        files[f"commits/{batch}"] = one.files["commits/13"]
        files[f"sources/0/{batch}"] = b"v1\n"
    for partition in range(partitions):
        folder = f"state/0/{partition}"
        for version in range(1, batches + 1):
            files[f"{folder}/{version}.changelog"] = b"x"
            if version % 10 == 0:
                files[f"{folder}/{version}.zip"] = one.files[zip_path]
        for number in range(40):
            files[f"{folder}/SSTs/{number:06}-{UUID}.sst"] = b"x"
        for name, data in ssts.items():
            files[f"{folder}/SSTs/{name}"] = data
    return Checkpoint(files)


@pytest.fixture(scope="module")
def big() -> Checkpoint:
    return big_checkpoint(partitions=800, batches=105)


def test_a_hundred_thousand_files_are_planned_in_seconds(big: Checkpoint) -> None:
    assert len(big.files) > 120_000
    listing = big.listing()
    big.reads.clear()
    began = time.process_time()
    planner_closure = big.plan(None, "safe")
    seconds = time.process_time() - began
    assert seconds < 15, seconds  # about 2 s on an idle core; the listing above is not counted apart
    assert len(planner_closure.paths) > 800 * 17
    read_bytes = sum(len(big.files[path]) for path in set(big.reads))
    assert len(big.reads) < 2 * 800 + 10
    assert read_bytes < 20_000_000
    assert not any(path.endswith((".sst", ".changelog")) for path in big.reads)
    assert len(listing) == len(big.files)


def test_inspect_of_very_many_files_goes_by_names(big: Checkpoint) -> None:
    assert MAX_THOROUGH_READS < 800 * 115
    smaller = Checkpoint({path: data for path, data in big.files.items() if not path.startswith("state/0/")})
    smaller.files.update(
        {path: data for path, data in big.files.items() if path.startswith("state/0/") and small(path)}
    )
    for path in [path for path in smaller.files if path.startswith("offsets/")]:
        smaller.files[path] = smaller.files[path].replace(b'"800"', b'"50"')
    inspection = reader(smaller).inspect()
    assert inspection.retained_by == "names"
    assert inspection.retained_batches == tuple(range(105))


def small(path: str) -> bool:
    part = path.split("/")[2]
    return not part.isdigit() or int(part) < 50


def test_every_planned_checkpoint_is_clean() -> None:
    for name in PLANNED:
        assert reader(checkpoint(name)).inspect().findings == (), name


def test_the_fake_is_like_a_store() -> None:
    assert set(dir(Store)) >= {"names", "list", "stat", "read", "uri"}
