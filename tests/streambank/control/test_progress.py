from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streambank.control.progress import (
    ProgressWriter,
    SegmentHead,
    last_progress,
    progress_keys,
    segment_head,
)
from streambank.core.errors import FormatError, StorageError
from streambank.storage import open_store
from streambank.storage.segments import MOST_AT_ONCE, WHOLE_WRITE_BYTES, segment_numbers
from streambank.storage.store import Store
from tests.support.refuses import refuses
from tests.support.sla.progress_scan import ProgressScan


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
    assert list(scan) and scan.lost == 4, "a second look counts again"


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
        with refuses(FormatError, "bad-progress"):
            writer.add(text)


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
    monkeypatch.setattr("streambank.storage.segments.os.write", full)
    with refuses(StorageError, "progress-not-written"):
        writer.flush()
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


def test_such_a_store_keeps_as_many_bytes_as_a_disk_does(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path.name}")
    writer = ProgressWriter(store, None, epoch=1, max_bytes=10 * WHOLE_WRITE_BYTES, max_files=2)
    for batch in range(60):
        writer.add(progress(batch, size=WHOLE_WRITE_BYTES // 2))
        writer.flush()
    assert len(segment_numbers(store, "progress/main")) == 20


DAY_S = 86_400


def aged(folder: Path, number: int, days: float) -> Path:
    """A file of records that was written to so many days ago."""
    path = folder / f"progress/main/{number:010d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    written_s = time.time() - days * DAY_S
    os.utime(path, (written_s, written_s))
    return path


def test_files_go_with_age_when_one_is_begun_and_when_asked(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number, days in ((1, 9), (2, 8), (3, 6), (4, 0.1)):
        aged(tmp_path, number, days)
    writer = ProgressWriter(store, None, epoch=1, max_age_s=7 * DAY_S)
    writer.prune()
    assert segment_numbers(store, "progress/main") == [1, 2, 3, 4], "who has not begun deletes nothing"
    writer.add(progress(0))
    writer.flush()
    assert segment_numbers(store, "progress/main") == [3, 4, 5]
    aged(tmp_path, 3, 8)
    aged(tmp_path, 5, 8)
    writer.prune()
    assert segment_numbers(store, "progress/main") == [4, 5], "never the one that is being written"


def test_without_a_bound_in_days_age_counts_for_nothing(tmp_path: Path) -> None:
    aged(tmp_path, 1, 9000)
    writer = ProgressWriter(open_store(tmp_path), None, epoch=1)
    writer.add(progress(0))
    writer.flush()
    writer.prune()
    assert segment_numbers(open_store(tmp_path), "progress/main") == [1, 2]


def test_a_clock_that_jumps_ahead_does_not_cost_a_whole_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 101):
        aged(tmp_path, number, 0.5)
    now_ns = time.time_ns()
    monkeypatch.setattr("streambank.storage.segments.time.time_ns", lambda: 2 * now_ns)
    writer = ProgressWriter(open_store(tmp_path), None, epoch=1, max_files=1000, max_age_s=7 * DAY_S)
    writer.add(progress(0))
    writer.flush()
    assert len(segment_numbers(open_store(tmp_path), "progress/main")) == 101 - MOST_AT_ONCE


def test_a_store_that_tells_no_times_loses_nothing_by_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"memory://{tmp_path.name}")
    for number in (1, 2):
        store.write(f"progress/main/{number:010d}.jsonl", b"")
    from dataclasses import replace

    real = type(store).stat
    monkeypatch.setattr(type(store), "stat", lambda self, key: replace(real(self, key), mtime_ns=0))
    writer = ProgressWriter(store, None, epoch=1, max_age_s=1)
    writer.add(progress(0))
    writer.flush()
    assert segment_numbers(store, "progress/main") == [1, 2, 3]


def test_the_head_of_a_file_is_read_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = ProgressWriter(store, None, epoch=7)
    for batch in (41, 42):
        writer.add(progress(batch, size=50_000))
    writer.flush()
    (key,) = progress_keys(store)
    asked: list[int | None] = []
    real = type(store).read

    def read(self: Store, path: str, offset: int = 0, length: int | None = None) -> bytes:
        asked.append(length)
        return real(self, path, offset, length)

    monkeypatch.setattr(type(store), "read", read)
    head = segment_head(store, key)
    assert head is not None and (head.epoch, head.batch) == (7, 41)
    assert head.at == next(iter(ProgressScan(store))).at
    assert asked == [1024]


@pytest.mark.parametrize("first", [b"nonsense\n", b"\n", b'{"at": "yesterday"}\n', b"\0" * 2000 + b"\n"])
def test_a_damaged_first_line_does_not_hide_how_a_file_goes_on(store: Store, first: bytes) -> None:
    written(store, 3, 4, epoch=2)
    (key,) = progress_keys(store)
    store.write(key, first + store.read(key))
    head = segment_head(store, key)
    assert head is not None and (head.epoch, head.batch) == (2, 3)


def test_a_file_without_records_has_no_head(store: Store) -> None:
    store.write("progress/main/0000000001.jsonl", b"half a li")
    store.write("progress/main/0000000002.jsonl", b"")
    for key in (*progress_keys(store), "progress/main/0000000003.jsonl"):
        assert segment_head(store, key) is None


def test_a_head_is_that_of_the_documented_line(store: Store) -> None:
    line = (
        b'{"at":"2026-11-21T10:20:01.966Z","epoch":1,"query":"left","run_id":"d9f9fec6","batch":12,'
        b'"progress":{"id":"bec09ad5"'
    )
    store.write("progress/left/0000000001.jsonl", line)
    head = segment_head(store, "progress/left/0000000001.jsonl")
    assert head == SegmentHead(datetime(2026, 11, 21, 10, 20, 1, 966_000, tzinfo=UTC), 1, 12, "d9f9fec6")
