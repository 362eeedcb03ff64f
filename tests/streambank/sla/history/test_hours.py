"""Long histories by hours: the same with what is kept and without, and right whatever happens to it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import pytest

from streambank.core.errors import StorageError
from streambank.declaration.sla import Declared, SlaPolicy
from streambank.sla.history.history import HistoryScan, Records, StreamedHistory
from streambank.sla.history.hour_files import HourFiles
from streambank.sla.history.hours import Windows, hourly_history
from streambank.sla.history.point import Point
from streambank.sla.judge.judge import judge
from streambank.sla.verdict import Verdict
from streambank.storage import open_store
from streambank.storage.store import Store
from tests.support.sla.progress_records import at, line, operator

HOUR, DAY = 3600.0, 86_400.0
EVERY = 600.0
POLICY = SlaPolicy({"state_bytes": Declared(warn=6e9, breach=9e9), "state_rows": Declared(breach=1e9)})

Size = Callable[[float], float]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


def leaking(second: float) -> float:
    return 5e9 + 5e8 * second / DAY + 1e8 * math.sin(second / DAY * 2 * math.pi) + random.random() * 1e6


class Stream:
    """A query's records, a file an hour, as a driver writes them."""

    def __init__(self, store: Store, size: Size = leaking) -> None:
        random.seed(7)
        self.store, self.size = store, size
        self.second, self.batch, self.file, self.epoch = 0.0, 0, 0, 1

    def run(self, hours: float, *, shift: float = 0.0) -> Stream:
        """Go on for a while, by a clock that is wrong by so many seconds."""
        for _ in range(math.ceil(hours)):
            lines = []
            for _ in range(int(min(1.0, hours) * HOUR / EVERY)):
                custom = {"rocksdbSstFileSize": int(self.size(self.second))}
                state = [operator(customMetrics=custom, numRowsTotal=1000 + self.batch)]
                lines.append(line(self.batch, self.second + shift, epoch=self.epoch, stateOperators=state))
                self.second, self.batch = self.second + EVERY, self.batch + 1
            self.write(lines)
        return self

    def write(self, lines: Sequence[bytes]) -> None:
        self.file += 1
        self.store.write(f"progress/main/{self.file:010d}.jsonl", b"".join(one + b"\n" for one in lines))

    def restart(self) -> Stream:
        self.epoch += 1
        return self

    @property
    def now(self) -> datetime:
        return at(self.second)


def windows(now: datetime) -> Windows:
    return Windows(now, HOUR, 14 * DAY)


def points(store: Store, now: datetime, files: HourFiles | None = None) -> list[Point]:
    return list(hourly_history(Records.of_query(store), windows(now), files).points)


def judged(store: Store, now: datetime, files: HourFiles | None = None) -> dict[str, Verdict]:
    history = hourly_history(Records.of_query(store), windows(now), files)
    return {one.objective: one for one in judge("flights", history, POLICY, now)}


def test_what_is_judged_is_the_same_with_what_is_kept_and_without(store: Store) -> None:
    stream, files = Stream(store).run(60), HourFiles(store)
    for _ in range(3):
        without = judged(store, stream.now)
        assert judged(store, stream.now, files) == without, "made"
        assert judged(store, stream.now, files) == without, "kept"
        assert points(store, stream.now, files) == points(store, stream.now)
        stream.restart().run(7)
    assert without["growth"].level == "warn" and without["state_bytes"].level == "warn"


def test_hours_say_nearly_what_every_batch_says(store: Store) -> None:
    stream = Stream(store).run(24 * 6)
    records = Records.of_query(store)
    whole = StreamedHistory(records.query, HistoryScan(records))
    every = {one.objective: one for one in judge("flights", whole, POLICY, stream.now)}
    hourly = judged(store, stream.now)
    assert {name: one.level for name, one in hourly.items()} == {
        name: one.level for name, one in every.items()
    }
    for name in ("growth", "time_to_limit", "state_bytes", "state_rows"):
        assert hourly[name].value == pytest.approx(every[name].value, rel=0.01)
    assert hourly["history"].why == every["history"].why == "The history has 864 batches."
    since, exact = hourly["state_bytes"].since, every["state_bytes"].since
    assert since is not None and exact is not None and abs(since - exact) <= timedelta(hours=1)


def test_records_of_hours_that_are_kept_are_not_read_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, files = Stream(store).run(24 * 3), HourFiles(store)
    points(store, stream.now, files)
    read: list[str] = []
    real = type(store).open

    def noting(self: Store, key: str) -> AbstractContextManager[BinaryIO]:
        if key.startswith("progress/"):
            read.append(key)
        return real(self, key)

    monkeypatch.setattr(type(store), "open", noting)
    points(store, stream.now, files)
    assert 0 < len(set(read)) <= 6 < stream.file


def test_hours_outlive_the_records_that_they_were_made_of(store: Store) -> None:
    stream, files = Stream(store).run(24 * 3), HourFiles(store)
    before = points(store, stream.now, files)
    for number in range(1, 60):
        store.delete(f"progress/main/{number:010d}.jsonl")
    assert points(store, stream.now, files) == before
    stream.run(5)
    assert points(store, stream.now, files)[:60] == before[:60]


def test_a_short_history_is_read_batch_by_batch_and_nothing_is_kept(store: Store) -> None:
    stream = Stream(store).run(11)
    found = points(store, stream.now, HourFiles(store))
    assert len(found) == stream.batch and all(one.stretch is None for one in found)
    assert not store.names("sla/hours/main")


@pytest.mark.parametrize(
    "harm", ["gone", "cut", "other format", "other query", "no JSON", "wrong hour", "nan"]
)
def test_hours_that_cannot_be_read_are_made_again(store: Store, harm: str) -> None:
    stream, files = Stream(store).run(24 * 3), HourFiles(store)
    right = points(store, stream.now, files)
    key = "sla/hours/main/2026-11-02.json"
    whole = store.read(key)
    data = json.loads(whole)
    if harm == "gone":
        store.delete(key)
    elif harm == "cut":
        store.write(key, whole[:-9])
    elif harm == "no JSON":
        store.write(key, b"\xff\x00")
    else:
        if harm == "other format":
            data["format"] = 99
        elif harm == "other query":
            data["query"] = "other"
        elif harm == "wrong hour":
            data["hours"]["03"] = data["hours"]["04"]
        else:
            data["hours"]["03"][0]["values"]["state_bytes"][0] = math.nan
        store.write(key, json.dumps(data).encode())
    harmed = store.read(key) if harm != "gone" else b""
    assert points(store, stream.now, files) == right
    assert store.read(key) == whole != harmed


def test_a_file_that_comes_late_with_an_earlier_time_is_taken_in(store: Store) -> None:
    stream, files = Stream(store).run(24 * 3), HourFiles(store)
    points(store, stream.now, files)
    stream.restart()
    late = [line(stream.batch + n, 40 * HOUR + n, epoch=1, run="late", stateOperators=[]) for n in range(5)]
    stream.write(late)
    stream.run(1)
    assert points(store, stream.now, files) == points(store, stream.now)


def test_a_clock_of_the_driver_that_goes_back_gives_no_growth(store: Store) -> None:
    stream, files = Stream(store, lambda _: 5e9).run(24 * 2), HourFiles(store)
    points(store, stream.now, files)
    stream.run(5, shift=6 * HOUR)
    for _ in range(12):
        stream.run(1)
        found = judged(store, stream.now, files)
        assert found["growth"].level == "ok" and found["state_bytes"].level == "ok"
        times = [one.at for one in points(store, stream.now, files)]
        assert times == sorted(times)


def test_hours_made_by_a_clock_that_was_ahead_are_thrown_away(store: Store) -> None:
    stream, files = Stream(store).run(24 * 2), HourFiles(store)
    points(store, stream.now + timedelta(hours=20), files)
    stream.run(1)
    right = points(store, stream.now)
    assert points(store, stream.now - timedelta(hours=10), files)
    assert points(store, stream.now, files) == right


def test_two_that_judge_at_once_leave_what_either_would(store: Store) -> None:
    stream = Stream(store).run(24 * 2)
    one, two = (iter(hourly_history(Records.of_query(store), windows(stream.now), HourFiles(store)).points)
                for _ in range(2))  # fmt: skip
    first, second = [next(one)], [next(two)]
    stream.run(2)
    three = points(store, stream.now, HourFiles(store))
    first, second = [*first, *one], [*second, *two]
    assert first == second
    assert points(store, stream.now, HourFiles(store)) == points(store, stream.now) == three


def test_where_nothing_can_be_kept_a_note_says_so(store: Store) -> None:
    stream = Stream(store).run(24 * 2)
    history = hourly_history(Records.of_query(store), windows(stream.now), Unwritable(store))
    found = {one.objective: one for one in judge("flights", history, POLICY, stream.now)}
    assert found["growth"].level == "warn"
    assert "could not be kept" in " ".join(found["history"].evidence)
    assert found["history"].level == "ok"


class Unwritable(HourFiles):
    def write(self, hours: Mapping[int, Sequence[Point]], files: int) -> None:
        raise StorageError("The disk is full.", code="no-space", hint="")


def test_days_that_nobody_looks_at_any_more_are_dropped(store: Store) -> None:
    stream, files = Stream(store).run(24 * 2), HourFiles(store)
    points(store, stream.now, files)
    assert store.names("sla/hours/main") == ["2026-11-01.json", "2026-11-02.json"]
    stream.second += 20 * DAY
    stream.restart().run(20)
    points(store, stream.now, files)
    assert store.names("sla/hours/main")[0] > "2026-11-02.json"


def test_a_query_that_stands_still_for_weeks_keeps_its_size(store: Store) -> None:
    stream, files = Stream(store).run(24 * 2), HourFiles(store)
    found = judged(store, stream.now + timedelta(days=30), files)
    assert found["state_bytes"].value is not None


def test_a_history_that_cannot_be_read_says_so(store: Store) -> None:
    assert points(store, at(0), HourFiles(store)) == []
    stream = Stream(store).run(24)
    records = replace(Records.of_query(store), keys=[*Records.of_query(store).keys, "progress/main/../x"])
    history = hourly_history(records, windows(stream.now), HourFiles(store))
    (verdict, *_) = judge("flights", history, POLICY, stream.now)
    assert verdict.level == "breach"
