from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.errors import FormatError, StorageError
from streambank.job.progress import ProgressScan, ProgressWriter, last_progress
from streambank.job.segments import WHOLE_WRITE_BYTES, segment_numbers
from streambank.storage import open_store
from streambank.storage.base import Store


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path if request.param == "local" else f"memory://{tmp_path.name}")


def progress(batch: int, run_id: str = "run-1", size: int = 0) -> str:
    return json.dumps({"runId": run_id, "batchId": batch, "numInputRows": 10, "padding": "x" * size})


def written(store: Store, *batches: int, run_id: str = "run-1", epoch: int = 1) -> None:
    writer = ProgressWriter(store, None, epoch=epoch)
    for batch in batches:
        writer.add(progress(batch, run_id))
    writer.flush()


def seen(store: Store) -> tuple[list[int], ProgressScan]:
    scan = ProgressScan(store)
    return [record.batch for record in scan], scan


def change(store: Store, edit: Callable[[bytes], bytes], number: int = 1) -> None:
    key = f"progress/main/{number:010d}.jsonl"
    store.write(key, edit(store.read(key)))


def test_a_record_says_when_where_and_what(store: Store) -> None:
    writer = ProgressWriter(store, "left", epoch=4)
    assert writer.add(progress(0))
    assert [record.batch for record in ProgressScan(store, "left")] == []
    writer.flush()
    (record,) = ProgressScan(store, "left")
    assert (record.epoch, record.query, record.run_id, record.batch) == (4, "left", "run-1", 0)
    assert record.progress["numInputRows"] == 10
    assert record.at.tzinfo is not None


def test_batches_of_a_run_are_written_once(store: Store) -> None:
    writer = ProgressWriter(store, None, epoch=1)
    assert [writer.add(progress(batch)) for batch in (0, 1, 0, 1, 2)] == [True, True, False, False, True]
    assert writer.add(progress(2, "run-2")), "the same batch of another run is another record"
    writer.flush()
    assert seen(store)[0] == [0, 1, 2, 2]


def test_a_trigger_without_a_batch_does_not_take_the_place_of_the_batch_to_come(store: Store) -> None:
    writer = ProgressWriter(store, None, epoch=1)
    durations = {"latestOffset": 4, "triggerExecution": 7}
    assert not writer.add({"runId": "r", "batchId": 5, "durationMs": durations})
    assert writer.last_batch is None
    assert writer.add({"runId": "r", "batchId": 5, "durationMs": durations | {"addBatch": 80}})
    writer.flush()
    assert seen(store)[0] == [5]


def test_duplicates_in_the_files_are_dropped_and_counted(store: Store) -> None:
    written(store, 0, 1, 2)
    written(store, 1, 2, 3)  # a driver that forgot what it had written
    batches, scan = seen(store)
    assert (batches, scan.duplicates, scan.lost) == ([0, 1, 2, 3], 2, 0)


def test_lost_records_are_counted_within_a_run_and_between_runs(store: Store) -> None:
    written(store, 5, 6, 9)
    written(store, 12, 13, run_id="run-2", epoch=2)
    batches, scan = seen(store)
    assert (batches, scan.lost) == ([5, 6, 9, 12, 13], 4)
    assert list(scan) and scan.lost == 4, "a second look counts anew"


def test_a_rollback_loses_nothing(store: Store) -> None:
    written(store, 0, 1, 2, 3)
    written(store, 1, 2, run_id="after-restore", epoch=2)
    batches, scan = seen(store)
    assert (batches, scan.lost, scan.duplicates) == ([0, 1, 2, 3, 1, 2], 0, 0)


def test_half_a_last_line_is_tolerated_and_the_next_driver_does_not_append_to_it(store: Store) -> None:
    written(store, 0, 1)
    change(store, lambda data: data[:-20])
    assert seen(store)[0] == [0]
    written(store, 2, run_id="run-2", epoch=2)
    batches, scan = seen(store)
    assert (batches, scan.torn, scan.damaged, scan.lost) == ([0, 2], 1, 0, 1)


@pytest.mark.parametrize("line", [b"", b"{}", b"nonsense", b"\xff\xfe", b"[1]", b'{"at": 1}', b"\0" * 50])
def test_damaged_lines_are_counted_and_the_others_read(store: Store, line: bytes) -> None:
    written(store, 0, 1)
    change(store, lambda data: data.replace(b"\n", b"\n" + line + b"\n", 1))
    batches, scan = seen(store)
    assert (batches, scan.damaged) == ([0, 1], 1)


def test_files_roll_by_size_and_the_oldest_go(store: Store) -> None:
    writer = ProgressWriter(store, None, epoch=1, max_bytes=3000, max_files=4)
    for batch in range(60):
        writer.add(progress(batch, size=200))
        writer.flush()
    numbers = segment_numbers(store, "progress/main")
    assert len(numbers) == 4 and numbers[0] > 1
    for number in numbers:
        assert store.stat(f"progress/main/{number:010d}.jsonl").size_bytes <= 3000
    batches, scan = seen(store)
    assert batches == list(range(batches[0], 60)) and batches[0] > 0
    assert scan.lost == 0, "what has expired is not lost"


def test_one_flush_may_fill_several_files(store: Store) -> None:
    writer = ProgressWriter(store, None, epoch=1, max_bytes=1000, max_files=100)
    for batch in range(20):
        writer.add(progress(batch, size=100))
    writer.add(progress(20, size=5000))  # larger than a file may be
    writer.flush()
    assert seen(store)[0] == list(range(21))
    assert len(segment_numbers(store, "progress/main")) >= 7


def test_writers_begin_files_of_their_own(store: Store) -> None:
    one, two = (ProgressWriter(store, None, epoch=epoch) for epoch in (1, 2))
    for batch in range(3):
        one.add(progress(batch, "stale"))
        one.flush()
        two.add(progress(batch, "new"))
        two.flush()
    assert segment_numbers(store, "progress/main") == [1, 2]
    batches, scan = seen(store)
    assert (batches, scan.damaged) == ([0, 1, 2, 0, 1, 2], 0)


def test_a_file_that_another_writer_rolled_away_is_begun_anew(store: Store) -> None:
    writer = ProgressWriter(store, None, epoch=1)
    writer.add(progress(0))
    writer.flush()
    store.delete("progress/main/0000000001.jsonl")
    writer.add(progress(1))
    writer.flush()
    assert 1 in seen(store)[0]


def test_the_newest_record_is_found_from_the_end(store: Store) -> None:
    assert last_progress(store) is None
    writer = ProgressWriter(store, None, epoch=1)
    for batch in range(30):
        writer.add(progress(batch, size=8000))
    writer.flush()
    last = last_progress(store)
    assert last is not None and last.batch == 29
    ProgressWriter(store, None, epoch=2)._segments._roll()  # a driver that has begun, and written nothing yet
    last = last_progress(store)
    assert last is not None and last.batch == 29


def test_a_last_record_longer_than_the_tail_is_found(store: Store) -> None:
    writer = ProgressWriter(store, None, epoch=1)
    writer.add(progress(0))
    writer.add(progress(1, size=300_000))
    writer.flush()
    last = last_progress(store)
    assert last is not None and last.batch == 1


def test_progress_that_is_none_is_refused(store: Store) -> None:
    writer = ProgressWriter(store, None, epoch=1)
    for text in ("", "{}", "[]", '{"runId": "x", "batchId": "one"}'):
        with pytest.raises(FormatError) as caught:
            writer.add(text)
        assert caught.value.code == "bad-progress"


def test_what_could_not_be_written_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    writer = ProgressWriter(store, None, epoch=1)
    writer.add(progress(0))
    writer.flush()
    import os

    real, written_bytes = os.write, 0

    def full(descriptor: int, data: bytes) -> int:
        nonlocal written_bytes
        if written_bytes:
            raise OSError(28, "No space left on device")
        written_bytes = real(descriptor, bytes(data)[:10])
        return written_bytes

    writer.add(progress(1))
    monkeypatch.setattr("streambank.job.segments.os.write", full)
    with pytest.raises(StorageError) as caught:
        writer.flush()
    assert caught.value.code == "progress-not-written"
    monkeypatch.undo()
    writer.flush()
    batches, scan = seen(store)
    assert (batches, scan.damaged, scan.torn) == ([0, 1], 0, 0), "what was half written was taken back"


def test_a_store_that_can_only_replace_gets_small_files(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path.name}")
    writer = ProgressWriter(store, None, epoch=1)
    for batch in range(10):
        writer.add(progress(batch, size=100_000))
        writer.flush()
    numbers = segment_numbers(store, "progress/main")
    assert len(numbers) == 5
    assert all(store.stat(f"progress/main/{n:010d}.jsonl").size_bytes <= WHOLE_WRITE_BYTES for n in numbers)
