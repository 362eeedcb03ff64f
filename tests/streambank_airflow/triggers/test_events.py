"""The triggers of asset watchers, run as the triggerer runs them: for ever, and again after it died."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import FormatError, InputError, StorageError
from streambank.job.watermarks import EventTime
from streambank.storage import open_store
from streambank_airflow.triggers.base import PATIENCE
from streambank_airflow.triggers.events import (
    BatchCommittedEventTrigger,
    JobEventTrigger,
    WatermarkEventTrigger,
)
from tests.support.airflow_face.trigger_memory import EndOfTestError, TriggerMemory
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint

HOUR_MS = 3_600_000
COMMON: dict[str, Any] = {
    "job": "flights",
    "jobs_file": "/dags/streaming_jobs.toml",
    "streambank_conn_id": "elsewhere",
    "checkpoint": "/data/checkpoints/flights",
    "poll_interval_s": 0.25,
}


def test_each_follows_its_own_stream_in_its_own_steps() -> None:
    keys = {
        kind(**{**COMMON, **own}).memory_key
        for kind, owns in (
            (WatermarkEventTrigger, [{}, {"every": "1d"}, {"job": "trains"}, {"checkpoint": "/other"}]),
            (BatchCommittedEventTrigger, [{}, {"every": 2}]),
        )
        for own in owns
    }

    assert len(keys) == 6
    slower = WatermarkEventTrigger(**{**COMMON, "poll_interval_s": 60.0})
    assert slower.memory_key in keys


@pytest.mark.parametrize("every", ["0s", "900ms", "an hour", "60"])
def test_an_interval_that_cannot_be_is_refused_when_the_dag_is_read(every: str) -> None:
    with pytest.raises(InputError):
        WatermarkEventTrigger(job="flights", every=every)


def test_batches_are_counted_in_whole_ones() -> None:
    with pytest.raises(InputError, match="at least one"):
        BatchCommittedEventTrigger(job="flights", every=0)


class Watcher:
    """Shows what it was told to, one after the other; then the watch is over."""

    def __init__(self, *sights: EventTime | Exception) -> None:
        self.sights = list(sights)
        self.opened = 0

    def look(self) -> EventTime:
        if not self.sights:
            raise EndOfTestError
        sight = self.sights.pop(0)
        if isinstance(sight, Exception):
            raise sight
        return sight


def events(
    trigger: JobEventTrigger, store: TriggerMemory | None = None, end: type[Exception] = EndOfTestError
) -> list[dict[str, Any]]:
    """What a trigger tells until its run ends with an error."""

    async def run() -> list[dict[str, Any]]:
        found = []
        trigger.asset_state_store = store  # type: ignore[assignment]  # what is used of Airflow's
        with pytest.raises(end):
            async for event in trigger.run():
                found.append(event.payload)
        return found

    return asyncio.run(asyncio.wait_for(run(), 30))


@pytest.fixture
def seeing(monkeypatch: pytest.MonkeyPatch) -> Any:
    def see(*sights: EventTime | Exception) -> Watcher:
        watcher = Watcher(*sights)

        def event_time(self: Any, ref: str, checkpoint: str | None = None) -> Watcher:
            watcher.opened += 1
            return watcher

        monkeypatch.setattr("streambank_airflow.hooks.watchers.Watchers.event_time", event_time)
        return watcher

    return see


def hours(hour: float, batch: int = 0) -> EventTime:
    return EventTime(batch, round(hour * HOUR_MS))


def by_hours(**how: Any) -> WatermarkEventTrigger:
    return WatermarkEventTrigger(job="flights", every="1h", poll_interval_s=0.001, **how)


def test_intervals_are_told_once_they_are_complete(seeing: Any) -> None:
    seeing(EventTime(), EventTime(0, None), hours(0.5, 1), hours(1, 2), hours(1.9, 3), hours(4.2, 4))

    told = events(by_hours())

    assert told == [
        {
            "job": "flights",
            "start": None,
            "end": "1970-01-01T00:00:00.000Z",
            "batch": 1,
            "watermark": "1970-01-01T00:30:00.000Z",
            "again": False,
        },
        {
            "job": "flights",
            "start": "1970-01-01T00:00:00.000Z",
            "end": "1970-01-01T01:00:00.000Z",
            "batch": 2,
            "watermark": "1970-01-01T01:00:00.000Z",
            "again": False,
        },
        {
            "job": "flights",
            "start": "1970-01-01T01:00:00.000Z",
            "end": "1970-01-01T04:00:00.000Z",
            "batch": 4,
            "watermark": "1970-01-01T04:12:00.000Z",
            "again": False,
        },
    ]


def test_a_watermark_beyond_any_calendar_completes_what_a_calendar_can_say(seeing: Any) -> None:
    seeing(EventTime(1, 10**17))

    (told,) = events(by_hours())

    assert (told["end"], told["watermark"]) == ("9999-12-31T23:00:00.000Z", None)


def test_batches_are_told_in_steps(seeing: Any) -> None:
    seeing(*(EventTime(batch) for batch in (0, 1, 2, 3, 7)))

    told = events(BatchCommittedEventTrigger(job="flights", every=3, poll_interval_s=0.001))

    assert [(each["after_batch"], each["batch"]) for each in told] == [(None, 0), (0, 3), (3, 7)]


def test_a_triggerer_that_comes_back_goes_on_where_the_one_before_was(
    seeing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank_airflow.notify.cursor.SETTLE_S", 0.0)
    store = TriggerMemory()
    seeing(hours(1), hours(2))
    events(by_hours(), store)

    seeing(hours(2), hours(5))
    (told,) = events(by_hours(), store)

    assert (told["start"], told["end"]) == ("1970-01-01T02:00:00.000Z", "1970-01-01T05:00:00.000Z")


def test_one_that_died_too_soon_after_telling_tells_the_same_again(seeing: Any) -> None:
    store = TriggerMemory()
    seeing(hours(1), hours(2))
    first = events(by_hours(), store)

    seeing(hours(2))
    (again,) = events(by_hours(), store)

    assert store.values == {}
    assert again["end"] == first[-1]["end"]


def test_storage_that_fails_for_a_while_is_looked_at_again_from_the_declaration_on(seeing: Any) -> None:
    trouble = [StorageError("The disk is away.")] * (PATIENCE - 1)
    watcher = seeing(hours(1), *trouble, hours(2), *trouble, hours(3))

    assert [each["end"][11:13] for each in events(by_hours())] == ["01", "02", "03"]
    assert watcher.opened == 1 + 2 * (PATIENCE - 1)


def test_storage_that_goes_on_failing_is_airflows_to_count(
    seeing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    seeing(*[StorageError("The disk is away.", hint="Mount it.")] * PATIENCE)

    assert events(by_hours(), end=StorageError) == []


def test_what_somebody_has_to_repair_is_said_at_once(seeing: Any) -> None:
    watcher = seeing(FormatError("A record is damaged."))

    assert events(by_hours(), end=FormatError) == []
    assert watcher.opened == 1


def test_a_query_that_no_jobs_file_declares_is_followed_by_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = LiveCheckpoint(open_store(str(tmp_path))).run(4)
    trigger = BatchCommittedEventTrigger(job="orders", checkpoint=str(tmp_path), poll_interval_s=0.001)

    async def two() -> list[dict[str, Any]]:
        found = []
        async for event in trigger.run():
            found.append(event.payload)
            if len(found) == 2:
                break
            query.run(1)
        return found

    told = asyncio.run(asyncio.wait_for(two(), 30))

    assert [(each["job"], each["batch"], each["watermark"]) for each in told] == [
        ("orders", 3, "1970-01-01T00:00:03.000Z"),
        ("orders", 4, "1970-01-01T00:00:04.000Z"),
    ]
