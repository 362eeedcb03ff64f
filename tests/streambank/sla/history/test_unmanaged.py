"""What a checkpoint tells alone, of each layout that Spark writes."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from streambank.checkpoint.closure import ClosurePlanner
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import NotFoundError, StorageError
from streambank.sla.history.unmanaged import CheckpointMeasurement, StateGrowth, measure_checkpoint
from streambank.storage import FileInfo, Store, open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import PLANNED, Checkpoint, checkpoint, unpack
from tests.support.refuses import refuses
from tests.support.sla.progress_records import BEGIN, at, batches


class Stamped(Checkpoint):
    """A checkpoint in memory whose batch N was planned at 60 N s and committed 5 s later."""

    def listing(self) -> dict[str, FileInfo]:
        return {path: self._info(path, data) for path, data in self.files.items()}

    def _info(self, path: str, data: bytes) -> FileInfo:
        log, _, batch = path.partition("/")
        second = 0.0
        if log in ("offsets", "commits") and batch.isdecimal():
            second = int(batch) * 60 + (5 if log == "commits" else 0)
        return FileInfo(path, len(data), int((BEGIN.timestamp() + second) * 1e9), str(hash(data)))


def measured(found: Checkpoint, **options: int) -> CheckpointMeasurement:
    store = open_store("memory://unused")
    stamped = Stamped(found.files)
    planner = ClosurePlanner(CheckpointIndex.build(stamped.listing()), stamped.read)
    return measure_checkpoint(store, planner=planner, **options)


@pytest.mark.parametrize("name", PLANNED)
def test_every_layout_is_measured_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    store = open_store(unpack(name, tmp_path) / "checkpoint")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    found = measure_checkpoint(store)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert batches(found.history.points) == checkpoint(name).batches()
    assert [note for note in found.history.notes if "incomplete" in note] == []
    closure = CheckpointReader(store).closure(kind="minimal")
    newest = list(found.history.points)[-1]
    assert set(newest.operators) == {operator.operator for operator in closure.operators}
    assert newest.values["checkpoint_files"] == len(list(store.list()))
    assert newest.values["checkpoint_bytes"] == sum(info.size_bytes for info in store.list())
    for operator in closure.operators:
        parts = [one for one in found.partitions if one.operator == operator.operator]
        assert len(parts) == sum(one.partitions for one in operator.stores)
        assert newest.operators[operator.operator]["state_bytes"] == sum(one.bytes for one in parts)
        if all(one.rows is not None for one in operator.stores):
            assert newest.operators[operator.operator]["state_rows"] == sum(
                one.rows or 0 for one in operator.stores
            )


def told(found: CheckpointMeasurement) -> list[tuple[int, int, int | None, int, int]]:
    """Of each partition its number, its newest snapshot's version and rows, its size, and changes since."""
    return [
        (
            one.state.partition,
            one.state.base_version,
            one.state.base_rows,
            one.bytes,
            one.state.change_files,
        )
        for one in found.partitions
    ]


def test_rocksdb_counts_rows_and_names_its_files() -> None:
    found = measured(checkpoint("4.3.0/rocksdb-window"))
    assert told(found) == [(0, 8, 5, 5251, 0), (1, 8, 8, 5350, 0)]
    assert found.growth == StateGrowth(0, 7, 420.0, 7, 7984)
    newest = list(found.history.points)[-1]
    assert (newest.values["state_rows"], newest.values["state_bytes"]) == (13, 10_601)
    assert (newest.values["snapshot_age_batches"], newest.values["oldest_snapshot_age_batches"]) == (0, 7)
    assert newest.watermark is not None
    assert newest.values["watermark_lag_s"] == (newest.at - newest.watermark).total_seconds()


def test_between_snapshots_the_newest_one_stands_for_the_state() -> None:
    found = measured(checkpoint("4.3.0/rocksdb-changelog-window"))
    newest = list(found.history.points)[-1]
    assert [(base, rows, changes) for _, base, rows, _, changes in told(found)] == [(12, 7, 2)] * 2
    assert newest.values["state_rows"] == 14
    assert newest.values["snapshot_age_batches"] == 2


def test_the_hdfs_backed_store_tells_bytes_only_and_before_its_first_snapshot_those_of_changes() -> None:
    found = measured(checkpoint("4.3.0/hdfs-window"))
    assert [(base, rows, size) for _, base, rows, size, _ in told(found)] == [
        (10, None, 232),
        (10, None, 241),
    ]
    assert all("state_rows" not in point.values for point in found.history.points)
    first = next(iter(found.history.points))
    whole = checkpoint("4.3.0/hdfs-window").files
    assert first.values["state_bytes"] == sum(len(whole[f"state/0/{n}/1.delta"]) for n in (0, 1))
    assert found.growth is not None and found.growth.from_batch == 4, "from the first one that has snapshots"


def test_times_are_those_of_the_log_files() -> None:
    points = list(measured(checkpoint("4.3.0/stateless")).history.points)
    assert [point.at for point in points] == [at(point.batch * 60 + 5) for point in points]
    assert {point.values["batch_s"] for point in points} == {5.0}
    assert {point.values.get("gap_s") for point in points} == {None, 55.0}
    assert "gap_s" not in points[0].values
    assert all(point.operators == {} and "state_bytes" not in point.values for point in points)


def test_a_copy_has_the_times_of_the_copying_and_that_is_told(tmp_path: Path) -> None:
    folder = unpack("4.3.0/stateless", tmp_path) / "checkpoint"
    names = sorted((folder / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for number, path in enumerate(names):
        os.utime(path, (BEGIN.timestamp() - number, BEGIN.timestamp() - number))
    found = measure_checkpoint(open_store(folder))
    times = [point.at for point in found.history.points]
    assert times == sorted(times)
    assert found.history.notes[0].startswith(f"{len(names) - 1} clock jumps")


def test_a_storage_without_times_has_those_of_planning() -> None:
    """As a filesystem of fsspec may be; `Checkpoint` in memory has none either."""
    found = checkpoint("4.3.0/hdfs-window")
    planner = ClosurePlanner(CheckpointIndex.build(found.listing()), found.read)
    measured_without = measure_checkpoint(open_store("memory://unused"), planner=planner)
    points = list(measured_without.history.points)
    assert measured_without.history.notes[0].startswith("Times are those of planning")
    assert [point.at for point in points] == sorted(point.at for point in points)
    assert points[0].at.year == 2026 and points[0].at < points[-1].at
    assert not any({"batch_s", "gap_s"} & set(point.values) for point in points)


def test_of_many_stores_not_every_batch_is_looked_into() -> None:
    everything = checkpoint("4.3.0/rocksdb-window")
    found = measured(everything, most_stores=6)
    with_state = [point.batch for point in found.history.points if "state_rows" in point.values]
    assert with_state == [0, 3, 7]
    assert batches(found.history.points) == list(range(8))
    assert found.growth == measured(everything).growth
    assert [p.batch for p in measured(everything, most_stores=0).history.points if p.operators] == [0, 7]


def test_damage_costs_only_the_batches_that_it_is_in() -> None:
    found = checkpoint("4.3.0/rocksdb-window")
    [first] = [path for path in found.plan(0).paths if path.startswith("state/0/0/SSTs/")]
    history = measured(found.but(first)).history
    assert next(point.batch for point in history.points if "state_rows" not in point.values) == 0
    assert batches(history.points) == list(range(8))
    assert any("missing-state-file" in note for note in history.notes)
    spoilt = found.having({"commits/7": b"v1\n{", "state/0/0/8.zip": lambda data: data[:50]})
    history = measured(spoilt).history
    assert any("half-written" in note for note in history.notes)
    assert batches(history.points) == list(range(8))


def test_a_storage_that_fails_is_no_silence() -> None:
    found = Stamped(checkpoint("4.3.0/rocksdb-window").files)

    def failing(*paths: str) -> ClosurePlanner:
        def read(path: str, offset: int = 0, length: int | None = None) -> bytes:
            if path.startswith(paths):
                raise StorageError(f"{path} cannot be read.", code="io-error", hint="Look at the disk.")
            return found.read(path, offset, length)

        return ClosurePlanner(CheckpointIndex.build(found.listing()), read)

    store = open_store("memory://unused")
    history = measure_checkpoint(store, planner=failing("state/0/1/3.zip")).history
    assert history.notes == ("1 incomplete: batches whose state could not be read (io-error).",)
    with refuses(StorageError, "io-error"):
        measure_checkpoint(store, planner=failing("state/", "offsets/"))


def test_what_spark_has_deleted_is_no_damage(tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(tmp_path), retain=4).run(12)
    found = measure_checkpoint(live.store)
    assert found.history.notes == ()
    assert batches(found.history.points)[-1] == 11
    live.plan()
    assert batches(measure_checkpoint(live.store).history.points)[-1] == 11, "planned is not committed"


def test_batches_without_a_commit_between_others_are_told() -> None:
    history = measured(checkpoint("4.3.0/stateless").but("commits/4", "commits/5")).history
    assert history.notes[0] == "2 lost: batches without a commit, between others that have one."
    after = next(point for point in history.points if point.batch == 6)
    assert "gap_s" not in after.values


@pytest.mark.parametrize("name", ["4.3.0/hdfs-join", "4.3.0/ids-changelog-window", "4.3.0/rocksdb-transform"])
def test_whatever_was_deleted_or_scribbled_it_answers(name: str) -> None:
    chance = random.Random(name)
    found = checkpoint(name)
    paths = sorted(found.files)
    for _ in range(15):
        gone = chance.sample(paths, chance.randint(1, len(paths) // 3))
        spoilt = {path: os.urandom(9) for path in chance.sample(paths, 3)}
        left = found.having(spoilt).but(*gone)
        if left.batches():
            assert batches(measured(left).history.points) == left.batches()


def test_before_the_first_commit_there_is_nothing_to_measure(tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "checkpoint"))
    live.plan()
    for store in (live.store, open_store(tmp_path / "nothing")):
        with refuses(NotFoundError, "no-committed-batch"):
            measure_checkpoint(store)


def test_nothing_is_read_again_after_an_inspection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(unpack("4.3.0/rocksdb-changelog-window", tmp_path) / "checkpoint")
    reader = CheckpointReader(store)
    reader.inspect()

    def refuse(self: Store, *args: object) -> bytes:
        raise AssertionError(args)

    for name in ("read", "list", "scan"):
        monkeypatch.setattr(type(store), name, refuse)
    assert reader.planner is not None
    assert len(list(measure_checkpoint(store, planner=reader.planner).history.points)) == 14
