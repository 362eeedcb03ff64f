from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError
from streambank.storage import open_store
from streambank_airflow.triggers.watermark import WatermarkTrigger
from streambank_airflow.watch.job import JobView
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint

MOMENT = "1970-01-01T00:00:05+00:00"


def trigger(**how: Any) -> WatermarkTrigger:
    return WatermarkTrigger(job="flights", moment=MOMENT, poll_interval_s=0.001, **how)


def view(state: str = "running", **facts: Any) -> JobView:
    return JobView(job="flights", state=state, **facts)


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (view(), None),
        (view(watermark_ms=4999), None),
        (view(watermark_ms=5000), "done"),
        (view(watermark_ms=10**17), "done"),
        (view("failed", watermark_ms=5000), "done"),
        (view("failed", watermark_ms=4999), "failed"),
        (view("failed", watermark_ms=4999, operation="restore"), None),
        (view("stopped", watermark_ms=4999), None),
        (view(without_watermark="main"), "never"),
    ],
)
def test_a_moment_has_passed_when_the_watermark_is_there(seen: JobView, status: str | None) -> None:
    event = trigger(failed_states=["failed"]).judge(seen)

    assert (event and event["status"]) == status


def test_parts_of_a_millisecond_are_waited_for() -> None:
    exact = WatermarkTrigger(job="flights", moment="1970-01-01T00:00:05.000001+00:00")

    assert exact.judge(view(watermark_ms=5000)) is None
    assert exact.judge(view(watermark_ms=5001)) is not None


@pytest.mark.parametrize("moment", ["1970-01-01T00:00:05", "soon", ""])
def test_a_moment_has_a_zone(moment: str) -> None:
    with pytest.raises(InputError, match=r"moment (must be a time|is .*, without a time zone)"):
        WatermarkTrigger(job="flights", moment=moment)


def test_it_waits_by_the_checkpoint_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = LiveCheckpoint(open_store(str(tmp_path))).run(5)
    waiting = trigger(checkpoint=str(tmp_path))
    looks = 0
    judge = waiting.judge

    def judged(seen: JobView) -> Any:
        nonlocal looks
        looks += 1
        if looks == 3:
            query.run(1)
        return judge(seen)

    monkeypatch.setattr(waiting, "judge", judged)

    async def first() -> dict[str, Any]:
        async for event in waiting.run():
            payload: dict[str, Any] = event.payload
            return payload
        raise AssertionError("it ended without an event")

    event = asyncio.run(asyncio.wait_for(first(), 10))

    assert looks == 4
    assert (event["status"], event["batch"], event["state"]) == ("done", 5, "unmanaged")
    assert event["watermark"] == "1970-01-01T00:00:05.000Z"
