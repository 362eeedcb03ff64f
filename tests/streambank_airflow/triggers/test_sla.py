"""The asset watcher that tells what breaks and heals, and the wait for it, as the triggerer runs them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from airflow.sdk import DAG

from streambank.core.errors import FormatError, InputError
from streambank.sla.verdict import Level
from streambank_airflow.assets import sanitize_uri, sla_asset
from streambank_airflow.triggers.sla import SlaEventTrigger, SlaTrigger
from tests.support.airflow_face.moved import DagSerialization
from tests.support.airflow_face.trigger_memory import EndOfTestError, TriggerMemory
from tests.support.jobs.declared import write_jobs
from tests.support.sla.fake_assessments import Assessor, assessor

__all__ = ["assessor"]


@pytest.mark.parametrize(
    "wrong", [{"until": "well"}, {"least": "ok"}, {"objectives": ["pauses"]}, {"objectives": [""]}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        SlaTrigger(job="flights", **wrong)


@pytest.fixture
def jobs_file(tmp_path: Path) -> str:
    return str(write_jobs(tmp_path))


@pytest.fixture
def events(assessor: Assessor, jobs_file: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a trigger tells while one level after the other is found; then its run ends."""

    def watch(
        *levels: Level, store: TriggerMemory | None = None, least: str = "breach"
    ) -> list[dict[str, Any]]:
        sights = list(levels)

        def assess(job: Any, **how: Any) -> Any:
            if not sights:
                raise EndOfTestError
            assessor.says(state_bytes=sights.pop(0))
            return assessor.assess_job(job, **how)

        monkeypatch.setattr("streambank_airflow.watch.sla.assess_job", assess)
        trigger = SlaEventTrigger(job="flights", jobs_file=jobs_file, least=least, poll_interval_s=0.001)
        trigger.asset_state_store = store  # type: ignore[assignment]  # what is used of Airflow's

        async def run() -> list[dict[str, Any]]:
            found = []
            with pytest.raises(EndOfTestError):
                async for event in trigger.run():
                    found.append(event.payload)
            return found

        return asyncio.run(asyncio.wait_for(run(), 30))

    return watch


def test_an_event_tells_what_broke_and_what_has_healed(events: Any) -> None:
    told = events("ok", "warn", "breach", "breach", "unknown", "ok", "ok")

    assert told[0] == {
        "job": "flights",
        "query": "main",
        "objective": "state_bytes",
        "level": "breach",
        "value": 1.5,
        "limit": None,
        "unit": None,
        "subject": "",
        "why": "It is breach.",
        "advice": "",
        "kind": "broke",
        "was": None,
        "since": "2026-11-21T12:00:00.000Z",
        "at": "2026-11-21T12:00:00.000Z",
    }
    assert [(one["kind"], one["level"], one["was"]) for one in told[1:]] == [("healed", "ok", "breach")]


def test_warnings_are_told_where_that_is_wanted(events: Any) -> None:
    assert [one["kind"] for one in events("warn", "breach", "warn", "ok", least="warn")] == [
        "broke",
        "worse",
        "healed",
    ]


def test_a_triggerer_that_comes_back_tells_no_breach_twice_and_its_healing_once(
    events: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank_airflow.notify.cursor.SETTLE_S", 0.0)
    store = TriggerMemory()

    first = events("breach", "breach", store=store)
    second = events("breach", "ok", "ok", store=store)
    third = events("ok", "breach", store=store)

    assert [[one["kind"] for one in each] for each in (first, second, third)] == [
        ["broke"],
        ["healed"],
        ["broke"],
    ]


def test_a_memory_that_was_changed_by_hand_is_said(events: Any) -> None:
    store = TriggerMemory()
    key = SlaEventTrigger(job="flights").memory_key
    store.values[key] = {"format": 1, "open": "?"}

    async def recall() -> None:
        trigger = SlaEventTrigger(job="flights")
        trigger.asset_state_store = store  # type: ignore[assignment]  # what is used of Airflow's
        await trigger.open_memory().recall()

    with pytest.raises(FormatError, match="does not say which events were sent"):
        asyncio.run(recall())


def test_each_level_has_an_asset_of_its_own() -> None:
    asset = sla_asset("orders/left", "warn", jobs_file="/dags/jobs.toml")
    with DAG("on_call", schedule=[asset]) as dag:
        pass

    stored: Any = DagSerialization.to_dict(dag)
    (watcher,) = stored["dag"]["timetable"]["__var"]["asset_condition"]["objects"][0]["watchers"]

    assert (asset.name, asset.uri) == (
        "streambank/orders/left/sla/warn",
        "streambank://slas/orders/left/warn",
    )
    assert SlaEventTrigger(**watcher["trigger"]["kwargs"]).least == "warn"
    assert sla_asset("orders/left").uri != asset.uri
    with pytest.raises(ValueError, match="streambank://slas/JOB/LEVEL"):
        sanitize_uri(urlsplit("streambank://slas/orders"))
