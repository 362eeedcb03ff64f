"""Histories as drivers leave them: restarted, killed, frozen and replaced, with clocks that jump."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import BinaryIO

import pytest

from streambank.control.progress import ProgressWriter
from streambank.core.errors import NotFoundError
from streambank.sla.history.history import HistoryScan, Records, StreamedHistory
from streambank.sla.history.hour import HourOfRun
from streambank.sla.history.point import Point
from streambank.storage import open_store
from streambank.storage.store import Store
from tests.support.refuses import refuses
from tests.support.sla.progress_records import (
    FOLDER,
    at,
    batches,
    held,
    line,
    operator,
    recorded,
    seen,
    written,
)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path if request.param == "local" else f"memory://{tmp_path.name}")


def in_hours(records: Records, before: datetime) -> list[Point]:
    """Points, those before a time as one an hour and run."""
    hour, found = HourOfRun(), list[Point]()
    for point in HistoryScan(records):
        if point.at < before:
            found += hour.take(point)
        else:
            found += [*hour.close(), point]
    return [*found, *hour.close()]


def steady(first: int, last: int, *, epoch: int = 1, every_s: float = 10, shift_s: float = 0) -> list[bytes]:
    """Batches `first` to `last`, batch N after N times `every_s`, by a clock that is off by `shift_s`."""
    return [line(batch, batch * every_s + shift_s, epoch=epoch) for batch in range(first, last + 1)]


def test_a_history_is_its_batches_oldest_first(store: Store) -> None:
    history = held(written(store, steady(0, 3), steady(4, 6)))
    assert history.query == "main"
    assert batches(history.points) == batches(history.points) == [0, 1, 2, 3, 4, 5, 6]
    assert (history.runs, history.notes) == (1, ())


def test_a_query_by_name_and_no_records_at_all(store: Store) -> None:
    writer = ProgressWriter(store, "left", epoch=1)
    writer.add({"runId": "r", "batchId": 0})
    writer.flush()
    assert batches(held(Records.of_query(store, "left")).points) == [0]
    nothing = held(Records.of_query(store))
    assert (list(nothing.points), nothing.runs, nothing.notes) == ([], 0, ())
    assert Records.of_query(store).newest() is None


class Counted:
    """What is read whole of a store."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: list[str] = []
        real = type(store).open

        def opening(inner: Store, key: str) -> AbstractContextManager[BinaryIO]:
            self.keys.append(key)
            return real(inner, key)

        monkeypatch.setattr(type(store), "open", opening)


def test_only_the_files_of_the_window_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [steady(begin, begin + 9) for begin in range(0, 1000, 10)]
    records = written(store, *files)
    counted = Counted(store, monkeypatch)
    found, scan = seen(records, since=at(9850), until=at(9960))
    assert [batch for batch, _ in found] == list(range(985, 997))
    assert (scan.runs, scan.lost, scan.jumps) == (1, 0, 0), "what lies before the window is not lost"
    assert set(counted.keys) == {f"progress/main/{number:010d}.jsonl" for number in range(98, 101)}
    first = next(iter(HistoryScan(records, since=at(9850))))
    assert first.values["gap_s"] == 9, "the batch before the window is known"


def test_a_service_is_asked_for_some_files_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"memory://{tmp_path.name}")
    remote = replace(store.features, remote=True, at_once=4)
    monkeypatch.setattr(type(store), "features", property(lambda self: remote))
    records = written(store, *[steady(begin, begin + 9) for begin in range(0, 300, 10)])
    together, real = threading.Barrier(4), type(store).open
    opened: list[str] = []

    def opening(inner: Store, key: str) -> AbstractContextManager[BinaryIO]:
        together.wait(60)
        opened.append(key)
        return real(inner, key)

    assert [batch for batch, _ in seen(records, since=at(2500))[0]] == list(range(250, 300))
    monkeypatch.setattr(type(store), "open", opening)
    found, scan = seen(records, since=at(2400))  # files 23 to 30: two times four, or the barrier breaks
    assert [batch for batch, _ in found] == list(range(240, 300)) and len(opened) == 8
    assert scan.notes() == ()


def test_the_window_is_found_although_one_file_begins_with_a_wrong_time(store: Store) -> None:
    odd = [line(20, -9e6), *steady(21, 29)]
    records = written(store, steady(0, 9), steady(10, 19), odd, steady(30, 39))
    found, scan = seen(records, since=at(120))
    assert [batch for batch, _ in found] == list(range(12, 40))
    assert scan.jumps == 1
    assert dict(found)[20] == 190, "it counts as of the batch before"


def test_a_restart_is_another_run(store: Store) -> None:
    found, scan = seen(written(store, steady(0, 3), steady(4, 5, epoch=2), steady(6, 6, epoch=3)))
    assert [batch for batch, _ in found] == [0, 1, 2, 3, 4, 5, 6]
    assert (scan.runs, scan.notes()) == (3, ())


def test_a_restore_goes_back_and_nothing_is_lost(store: Store) -> None:
    again = [line(batch, 1000 + batch * 10, epoch=2) for batch in range(3, 6)]
    found, scan = seen(written(store, steady(0, 8), again))
    assert [batch for batch, _ in found] == [*range(9), 3, 4, 5]
    assert (scan.runs, scan.notes()) == (2, ())


def test_a_real_driver_that_was_killed() -> None:
    history = held(recorded("driver-killed"))
    assert batches(history.points) == [0, 1, 2, 3, 5, 6, 7]
    assert history.runs == 2
    assert history.notes == ("1 lost: batches without a progress record, between others that have one.",)


def test_half_a_line_and_damaged_ones_are_told_and_the_rest_is_read(store: Store) -> None:
    torn = b"\n".join([*steady(0, 2), line(3, 30)[:300]])
    damaged = [
        *steady(3, 4, epoch=2),
        b'{"at": 1}',
        b"\xff\xfe",
        *steady(5, 6, epoch=2),
        line(6, 61, epoch=2),
    ]
    found, scan = seen(written(store, torn, damaged))
    assert [batch for batch, _ in found] == list(range(7))
    assert (scan.torn, scan.damaged, scan.duplicates, scan.lost) == (1, 2, 1, 0)
    assert [note.partition(" ")[2].partition(":")[0] for note in scan.notes()] == [
        "damaged",
        "torn",
        "duplicates",
    ]
    assert list(scan) and scan.damaged == 2, "a second look counts again"


def test_a_history_cut_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path.name}")
    whole = b"".join(one + b"\n" for one in steady(0, 2))
    for cut in range(len(whole) + 1):
        found, scan = seen(written(store, whole[:cut]))
        assert [batch for batch, _ in found] == list(range(whole[:cut].count(b"\n")))
        assert scan.torn == (cut > 0 and whole[cut - 1 : cut] != b"\n")


def test_a_clock_that_was_ahead_for_a_while(store: Store) -> None:
    first = [*steady(0, 4), *steady(5, 9, shift_s=86_400)]
    found, scan = seen(written(store, first, steady(10, 19)))
    assert [batch for batch, _ in found] == list(range(20))
    assert [second for _, second in found] == [0, 10, 20, 30, 40, *[40] * 5, *range(100, 200, 10)]
    assert scan.jumps == 1


def test_a_clock_that_was_put_back_for_good(store: Store) -> None:
    found, scan = seen(written(store, steady(0, 9), steady(10, 29, shift_s=-50)))
    seconds = [second for _, second in found]
    assert seconds == sorted(seconds) and seconds[-1] == 240
    assert [batch for batch, _ in found] == list(range(30))
    assert scan.jumps == 1
    assert scan.notes() == ("1 clock jumps: times that went back, and were put in order.",)


def test_a_host_whose_clock_is_behind_takes_over(store: Store) -> None:
    """Not a stale driver: what it left is of earlier batches than what the new one began with."""
    files = (steady(0, 99), steady(100, 120, epoch=2, shift_s=-500))
    found, scan = seen(written(store, *files))
    assert [batch for batch, _ in found] == list(range(121))
    assert (scan.stale, scan.lost) == (0, 0)
    seconds = [second for _, second in found]
    assert seconds == sorted(seconds)


def test_a_driver_that_was_frozen_and_goes_on_does_not_count(store: Store) -> None:
    """Epoch 1 stood still after batch 4, and then wrote on in its file, and began another one."""
    files = (
        [*steady(0, 4), *(line(batch, 100 + batch, epoch=1) for batch in (5, 6))],
        [line(batch, batch * 10, epoch=2) for batch in range(5, 30)],
        [line(batch, 100 + batch, epoch=1) for batch in (7, 8)],
    )
    found, scan = seen(written(store, *files))
    assert found == [(batch, batch * 10) for batch in range(30)]
    assert (scan.stale, scan.lost, scan.duplicates, scan.runs) == (4, 0, 0, 2)
    assert scan.notes() == ("4 stale: records of a driver that had lost its lease to another, left out.",)


def test_the_same_where_the_other_writes_on_in_its_first_file_alone(store: Store) -> None:
    files = ([line(5, 50, epoch=2), line(6, 60, epoch=2), line(7, 70, epoch=2)], [line(5, 61, epoch=1)])
    found, scan = seen(written(store, steady(0, 4), *files))
    assert [batch for batch, _ in found] == list(range(8))
    assert scan.stale == 1


def test_epochs_that_were_counted_anew_hide_nothing(store: Store) -> None:
    """Somebody removed the lease's records: epoch 1 again, and nobody of epoch 7 is seen any more."""
    files = (steady(0, 4, epoch=7), steady(5, 9, epoch=1), steady(10, 14, epoch=1))
    found, scan = seen(written(store, *files))
    assert [batch for batch, _ in found] == list(range(15))
    assert scan.stale == 0


def test_files_that_go_away_while_they_are_read(store: Store) -> None:
    records = written(store, steady(0, 4), steady(5, 9), steady(10, 14))
    found = []
    for point in HistoryScan(records):
        found.append(point.batch)
        if point.batch == 0:
            store.delete("progress/main/0000000002.jsonl")
    assert found == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    store.delete("progress/main/0000000003.jsonl")
    newest = records.newest()
    assert newest is not None and newest.batch == 4


def test_it_is_read_while_a_driver_writes(store: Store) -> None:
    writer = ProgressWriter(store, None, epoch=1, max_bytes=2000)
    for batch in range(30):
        writer.add({"runId": "r", "batchId": batch, "padding": "x" * 150})
        writer.flush()
        history = held(Records.of_query(store))
        assert (batches(history.points), history.notes) == (list(range(batch + 1)), ())


def sawtooth(hours: int) -> list[list[bytes]]:
    """A batch a minute, a file an hour: rows climb from 0 to 59 within each."""
    return [
        [
            line(
                hour * 60 + minute,
                hour * 3600 + minute * 60,
                epoch=1 + hour // 3,
                stateOperators=[operator(numRowsTotal=hour * 1000 + minute)],
            )
            for minute in range(60)
        ]
        for hour in range(hours)
    ]


def test_what_is_old_may_be_held_as_medians_of_hours(store: Store) -> None:
    records = written(store, *sawtooth(7))
    whole = list(held(records).points)
    points = in_hours(records, before=at(5 * 3600))
    assert len(points) == 5 + 120
    assert points[5:] == whole[300:]
    for hour, point in enumerate(points[:5]):
        of_hour = [one.values["state_rows"] for one in whole[hour * 60 : hour * 60 + 60]]
        assert point.values["state_rows"] == median(of_hour) == hour * 1000 + 29.5
        assert point.operators[0]["state_rows"] == hour * 1000 + 29.5
        assert (point.batch, point.at) == (hour * 60 + 59, at(hour * 3600 + 59 * 60))
        assert point.run_id == f"run-{1 + hour // 3}"


def test_an_hour_with_a_restart_in_it_gives_a_point_for_each_run(store: Store) -> None:
    files = [line(n, n * 60, epoch=1) for n in range(30)], [line(n, n * 60, epoch=2) for n in range(30, 59)]
    points = in_hours(written(store, *files), before=at(9999))
    assert [(point.run_id, point.batch) for point in points] == [("run-1", 29), ("run-2", 58)]


def test_memory_does_not_grow_with_the_history(tmp_path: Path) -> None:
    def peak(files: int) -> int:
        store = open_store(tmp_path / str(files))
        hours = [steady(begin, begin + 39, every_s=90) for begin in range(0, files * 40, 40)]
        records = written(store, *hours)
        gc.collect()
        gc.freeze()  # in a large process full collections are rare, and what waits for one would count
        tracemalloc.start()
        try:
            in_hours(records, before=at(files * 3600 - 1800))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            gc.unfreeze()

    assert peak(24) < 1.5 * peak(6)


@pytest.mark.parametrize("where", ["folder", "slash", "file"])
def test_a_history_by_its_location(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    place = {
        "folder": "hourly-delays",
        "slash": f"{FOLDER}/hourly-delays/",
        "file": "hourly-delays/0000000001.jsonl",
    }
    records = Records.at(place[where])
    assert batches(held(records).points) == [0, 1, 2, 3, 4]
    assert records.query == ("0000000001" if where == "file" else "hourly-delays")


@pytest.mark.parametrize("location", ["nowhere", "nowhere/0000000001.jsonl", "."])
def test_a_location_without_records_is_said(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").touch()
    monkeypatch.chdir(tmp_path)
    with refuses(NotFoundError, "no-history") as caught:
        Records.at(location)
    assert "progress/<query>" in caught.value.hint


@pytest.mark.parametrize("spoil", [lambda data: b"", lambda data: b"\0" * len(data), lambda data: data[:1]])
def test_a_history_that_is_nothing_but_damage_has_no_points_and_says_why(
    store: Store, spoil: Callable[[bytes], bytes]
) -> None:
    data = b"".join(one + b"\n" for one in steady(0, 3))
    history = held(written(store, spoil(data), spoil(data)))
    assert list(history.points) == []
    assert bool(history.notes) == bool(spoil(data))


def test_a_history_may_be_judged_while_it_is_read(store: Store) -> None:
    records = written(store, steady(0, 4), b"nonsense\n", steady(5, 9, epoch=2))
    history = StreamedHistory(records.query, HistoryScan(records, since=at(20)))
    assert history.query == "main"
    for _ in range(2):
        assert batches(history.points) == [2, 3, 4, 5, 6, 7, 8, 9]
        assert (history.runs, history.notes) == (2, ("1 damaged: lines that cannot be read.",))
    assert list(history.points) == list(held(records, since=at(20)).points)
