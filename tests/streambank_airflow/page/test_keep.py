"""What keeps a job's page: tasks that end, and the watch of its run; and what of it breaks neither."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task

from streambank.core.errors import StorageError
from streambank.core.units import to_json_time, utc_now
from streambank.overview import snapshot as snapshots
from streambank.overview.snapshot import DEFAULT_PARTS, Snapshot
from streambank_airflow.airflow_versions import keeps_in_assets
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.doctor import DiagnoseStreamingJobOperator
from streambank_airflow.operators.job import StopStreamingJobOperator
from streambank_airflow.operators.savepoint import VerifySavepointOperator
from streambank_airflow.operators.sla import CheckSlaOperator
from streambank_airflow.page import keep
from streambank_airflow.page.keep import (
    WatchedPage,
    keep_after_task,
    keep_page,
    page_of_watch,
)
from streambank_airflow.page.names import job_of
from streambank_airflow.page.pace import LINE_EVERY_S, LINES_TO_ALL, THREADS, WatchPace
from streambank_airflow.page.store import LINE, NoPageError, PageValues, part_key, values_of
from streambank_airflow.sensors.job import StreamingJobStatusSensor
from streambank_airflow.triggers.job import JobEndTrigger
from streambank_airflow.watch.job import JobView
from tests.support.airflow_face.metadata_db import run_dag, task_states, write_dags
from tests.support.airflow_face.page_api import PageApi, page_api, page_on
from tests.support.airflow_face.page_values import DatabaseValues, MemoryValues
from tests.support.jobs.declared import write_jobs

__all__ = ["page_api", "page_on"]

MOMENT = "2026-11-27T22:00:00.000Z"
ALL_EVERY_S = LINES_TO_ALL * LINE_EVERY_S


def declared(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return write_jobs(folder, name=name)


def own_dag(dag_id: str, *make: Callable[[], Any]) -> DAG:
    with DAG(dag_id, schedule=None) as dag:
        for one in make:
            one()
    return dag


def check_dag(folder: Path, name: str, only: tuple[str, ...] | None = None) -> DAG:
    """Write the DAGs of a job; another DAG of its, whose task succeeds."""
    file = declared(folder, name)
    write_dags(*build_dags(file, only=only).values())
    return own_dag(
        f"{name}.own",
        lambda: CheckSlaOperator(
            task_id="check", job=name, jobs_file=str(file), on_breach="report", tell=False
        ),
    )


def keeps(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said of pages."""
    return [one.getMessage() for one in caplog.records if one.name == keep.__name__]


@pytest.mark.parametrize("only", [None, ("run", "stop"), ("stop",)], ids=["all", "run and stop", "stop"])
def test_a_task_leaves_a_snapshot_that_the_page_shows(
    tmp_path: Path, page_on: None, page_api: PageApi, only: tuple[str, ...] | None
) -> None:
    name = f"kept-{'-'.join(only or ('all',))}"

    run = run_dag(check_dag(tmp_path, name, only))

    assert task_states(run) == {"check": "success"}
    shown = page_api.get(f"jobs/{name}").json()
    assert shown["line"]["job"] == name and shown["line"]["state"] == "never-started"
    assert set(shown["line"]["parts"]) == DEFAULT_PARTS
    for part in DEFAULT_PARTS:
        assert page_api.get(f"jobs/{name}/{part}").status_code == 200
    assert page_api.get(f"jobs/{name}/status").json()["job"] == name
    assert page_api.get(f"jobs/{name}/findings").status_code == 404


def test_a_sensor_that_fails_leaves_the_line_of_what_it_has_seen(
    airflow_database: None, tmp_path: Path, page_on: None
) -> None:
    file = declared(tmp_path, "seen")
    dags = build_dags(file)
    write_dags(*dags.values())

    def wait() -> StreamingJobStatusSensor:
        states = ["never-started"]
        return StreamingJobStatusSensor(task_id="wait", failed_states=states, job="seen", jobs_file=str(file))

    run_dag(dags["seen.stop"])
    before = DatabaseValues("seen").get(LINE)
    run = run_dag(own_dag("seen.own", wait))

    assert task_states(run) == {"wait": "failed"}
    line = DatabaseValues("seen").get(LINE)
    assert before["at"] < line["at"] and line["state"] == "never-started"


def test_a_task_that_fails_leaves_one_too(tmp_path: Path, page_on: None) -> None:
    file = declared(tmp_path, "failing")
    write_dags(*build_dags(file).values())

    run = run_dag(
        own_dag(
            "failing.own",
            lambda: VerifySavepointOperator(task_id="verify", job="failing", jobs_file=str(file)),
            lambda: DiagnoseStreamingJobOperator(
                task_id="doctor", job="failing", jobs_file=str(file), fail_on="never"
            ),
        )
    )

    assert task_states(run) == {"verify": "failed", "doctor": "success"}
    keys = DatabaseValues("failing").keys()
    assert {LINE, part_key("events"), part_key("findings")} <= {*keys}


def test_a_dag_of_another_name_keeps_the_page_of_a_job_too(tmp_path: Path, page_on: None) -> None:
    file = declared(tmp_path, "guest")
    dags = build_dags(file)
    write_dags(*dags.values())
    dag = own_dag(
        "nightly", lambda: StopStreamingJobOperator(task_id="stop", job="guest", jobs_file=str(file))
    )

    run_dag(dag)
    first = DatabaseValues("guest").get(LINE)["at"]
    run_dag(dags["guest.stop"])
    second = DatabaseValues("guest").get(LINE)["at"]
    run_dag(dag)

    assert first < second < DatabaseValues("guest").get(LINE)["at"]


def test_tasks_keep_nothing_where_the_page_is_off(tmp_path: Path, airflow_database: None) -> None:
    dags = build_dags(declared(tmp_path, "silent"))
    assert all(not task.inlets for dag in dags.values() for task in dag.tasks)
    write_dags(*dags.values())

    run_dag(dags["silent.stop"])

    if not keeps_in_assets():
        assert DatabaseValues("silent").keys() == []


def test_the_page_asset_is_the_inlet_of_one_task_and_has_no_events(tmp_path: Path, page_on: None) -> None:
    dags = build_dags(declared(tmp_path, "asset"))

    named = [(dag.dag_id, task.task_id) for dag in dags.values() for task in dag.tasks if task.inlets]
    assert named == [("asset.sla", "check")]


def test_a_page_that_cannot_be_made_is_one_warning(
    tmp_path: Path, page_on: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dag = check_dag(tmp_path, "broken")

    def fail(*_: Any, **__: Any) -> Snapshot:
        raise StorageError("The storage is not reached.", code="unreachable", hint="Look at its network.")

    monkeypatch.setattr(snapshots, "snapshot", fail)
    with caplog.at_level(logging.WARNING, keep.__name__):
        run = run_dag(dag)

    assert task_states(run) == {"check": "success"}
    (said,) = keeps(caplog)
    assert said.startswith(
        "The page of job broken could not be kept: The storage is not reached. [unreachable]"
    )


def test_a_storage_that_hangs_holds_up_no_task(
    tmp_path: Path, page_on: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dag = check_dag(tmp_path, "hanging")
    go_on = threading.Event()

    def hang(*_: Any, **__: Any) -> Snapshot:
        go_on.wait(60)
        raise StorageError("It was over.", code="unreachable", hint="")

    monkeypatch.setattr(snapshots, "snapshot", hang)
    monkeypatch.setattr(keep, "PATIENCE_S", 0.2)
    monkeypatch.setattr(keep, "LINE_PATIENCE_S", 0.1)
    with caplog.at_level(logging.WARNING, keep.__name__):
        run = run_dag(dag)
    go_on.set()

    assert task_states(run) == {"check": "success"}
    assert keeps(caplog) == [
        "The page of job hanging could not be kept: TimeoutError: it was not made within 0.2 s"
    ]


def test_a_page_that_takes_too_long_says_at_least_whether_the_job_runs(
    tmp_path: Path, page_on: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a machine with too much to do, where it showed for minutes what had long changed."""
    dag = check_dag(tmp_path, "slow-page")
    go_on = threading.Event()
    make = snapshots.snapshot

    def slow(*args: Any, parts: Any = None, **how: Any) -> Snapshot:
        if parts != ():
            go_on.wait(60)
        return make(*args, parts=parts, **how)

    monkeypatch.setattr(snapshots, "snapshot", slow)
    monkeypatch.setattr(keep, "PATIENCE_S", 0.2)
    monkeypatch.setattr(keep, "LINE_PATIENCE_S", 30.0)
    with caplog.at_level(logging.WARNING, keep.__name__):
        run_dag(dag)
    go_on.set()

    assert DatabaseValues("slow-page").get(LINE)["state"] == "never-started"
    assert keeps(caplog) == [
        "Of the page of job slow-page only the line could be kept: it was not made within 0.2 s"
    ]


@pytest.mark.parametrize(
    ("task", "job"),
    [
        ({"job": "flights"}, "flights"),
        ({"job": "flights/hourly"}, "flights"),
        ({"job": "flights@eu"}, None),
        ({"job": "{{ params.job }}"}, None),
        ({"job": None}, None),
        ({"job": "flights", "checkpoint": "file:///c"}, None),
        ({}, None),
    ],
)
def test_only_a_task_on_a_declared_job_has_a_page(task: dict[str, Any], job: str | None) -> None:
    assert job_of(SimpleNamespace(**task)) == job


def test_a_callback_outside_the_process_of_its_task_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Airflow's DAG processor calls it for a task that was killed: without `exception` in the context."""
    asked: list[str] = []

    def of(hook: Any, job: str, *_: Any, **__: Any) -> bool:
        asked.append(job)
        return True

    monkeypatch.setattr(keep, "keep_page", of)
    monkeypatch.setattr(keep, "page_is_on", lambda: True)
    task = SimpleNamespace(job="flights", hook=None, page_parts=None)
    context = {"ti": SimpleNamespace(dag_id="flights.run", task=task)}

    keep_after_task(context)
    assert asked == []
    keep_after_task({**context, "exception": None})
    assert asked == ["flights"]


def test_another_job_of_the_name_does_not_take_the_page_over(
    tmp_path: Path, made: list[Any], values: MemoryValues
) -> None:
    ours, other = (StreambankHook(jobs_file=str(declared(tmp_path / one, "flights"))) for one in ("a", "b"))

    assert keep_page(ours, "flights")
    kept = {**values.get(LINE), "at": to_json_time(utc_now())}
    values.set(LINE, kept)
    assert not keep_page(other, "flights", takes_over=False)
    assert values.get(LINE) == kept
    assert keep_page(ours, "flights", takes_over=False)
    assert keep_page(other, "flights"), "its own DAGs say what the job is now"
    assert values.get(LINE)["identity"] != kept["identity"]


def test_a_page_is_kept_where_the_records_of_the_job_cannot_be_reached(
    tmp_path: Path, values: MemoryValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = StreambankHook(jobs_file=str(declared(tmp_path, "flights")))

    def fail(*_: Any) -> Any:
        raise StorageError("The storage is not reached.", code="unreachable", hint="")

    monkeypatch.setattr(keep, "values_of", lambda job: values)
    monkeypatch.setattr("streambank.declaration.declaration.Job.records", fail)

    assert keep_page(hook, "flights", (LINE,))
    assert values.get(LINE)["error"]["code"] == "unreachable"


def test_the_page_says_what_to_do_in_the_words_of_airflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = StreambankHook(jobs_file=str(declared(tmp_path, "flights")))

    def fail(*_: Any) -> Any:
        raise StorageError("They are gone.", code="repository-lost", hint="Or `streambank restore latest`.")

    monkeypatch.setattr("streambank.declaration.declaration.Job.records", fail)
    made = keep._snapshot(hook, "flights", None, ("findings",), True)

    assert made is not None
    for said in (made.line, made.parts["findings"]):
        assert "trigger flights.restore" in said["error"]["hint"]


def test_what_another_process_has_kept_meanwhile_is_begun_with(
    tmp_path: Path, made: list[Any], values: MemoryValues
) -> None:
    hook = StreambankHook(jobs_file=str(declared(tmp_path, "flights")))
    keep_page(hook, "flights")
    asked: list[Any] = []

    def make(job: Any, *, before: Snapshot | None, parts: Any) -> Snapshot:
        asked.append(before and before.line.get("savepoint"))
        if len(asked) == 1:  # a task has taken one
            values.set(LINE, {**values.get(LINE), "savepoint": "new"})
        line = {"format": 1, "job": job.name, "at": MOMENT, "parts": {}}
        return Snapshot({**line, "savepoint": asked[-1]}, {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "snapshot", make)
        keep_page(hook, "flights", (LINE,))

    assert asked == [None, "new"]
    assert values.get(LINE)["savepoint"] == "new"


@pytest.mark.parametrize("with_log", [True, False])
def test_the_log_is_left_out_where_it_must_not_be_kept(
    tmp_path: Path, made: list[Any], values: MemoryValues, monkeypatch: pytest.MonkeyPatch, with_log: bool
) -> None:
    monkeypatch.setenv("AIRFLOW__STREAMBANK__PAGE_LOG", str(with_log))
    hook = StreambankHook(jobs_file=str(declared(tmp_path, "flights")))
    values.set(LINE, {"format": 1, "job": "flights", "parts": {"log": {"at": MOMENT, "digest": "1"}}})
    values.set(part_key("log"), {"format": 1})

    keep_page(hook, "flights")

    assert made == [None if with_log else [one for one in DEFAULT_PARTS if one != "log"]]
    if not with_log:
        assert values.get(part_key("log")) is None


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def values() -> MemoryValues:
    return MemoryValues()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, values: MemoryValues) -> list[Any]:
    """What of a page was made, in order: the parts that were asked for."""
    asked: list[Any] = []

    def of(job: str) -> PageValues:
        return values

    def make(job: Any, *, before: Snapshot | None, parts: Any) -> Snapshot:
        asked.append(parts)
        watched = {"watch": {"watched": True}}
        return Snapshot({"format": 1, "job": job.name, "at": MOMENT, "parts": {}, **watched}, {})

    monkeypatch.setattr(keep, "values_of", of)
    monkeypatch.setattr(snapshots, "snapshot", make)
    return asked


async def watch(page: WatchedPage, driver: str = "one", state: str = "running") -> None:
    page.after_look(driver, state)
    if page._work is not None:
        await page._work


def page_of(folder: Path, clock: Clock) -> WatchedPage:
    return WatchedPage(
        StreambankHook(jobs_file=str(declared(folder, "flights"))), "flights", clock, WatchPace()
    )


@pytest.mark.parametrize("takes_over", [False, True])
def test_the_watch_of_an_own_dag_leaves_the_page_of_another_job_of_the_name(
    tmp_path: Path, made: list[Any], values: MemoryValues, takes_over: bool
) -> None:
    other = StreambankHook(jobs_file=str(declared(tmp_path / "a", "flights")))
    assert keep_page(other, "flights")
    values.set(LINE, kept := {**values.get(LINE), "at": to_json_time(utc_now())})
    clock = Clock()
    hook = StreambankHook(jobs_file=str(declared(tmp_path / "b", "flights")))
    page = WatchedPage(hook, "flights", clock, WatchPace(), takes_over=takes_over)
    clock.now += LINE_EVERY_S

    asyncio.run(watch(page))

    assert (values.get(LINE) != kept) is takes_over


def test_a_watch_keeps_the_line_each_minute_and_all_parts_each_ten(tmp_path: Path, made: list[Any]) -> None:
    clock = Clock()
    page = page_of(tmp_path, clock)

    async def look() -> None:
        for _ in range(2 * int(ALL_EVERY_S)):
            await watch(page)
            clock.now += 1

    asyncio.run(look())

    everything = [at for at, parts in enumerate(made) if parts is None]
    assert made[0] == (LINE,) or everything[0] == 0
    assert len(everything) == 2
    assert 17 <= len(made) <= 24, "an interval is a tenth shorter or longer"


def test_another_driver_is_kept_at_once(tmp_path: Path, made: list[Any]) -> None:
    clock = Clock()
    page = page_of(tmp_path, clock)

    async def look() -> None:
        clock.now += LINE_EVERY_S
        await watch(page)
        assert made == [None]
        clock.now += 1
        await watch(page)
        assert made == [None]
        await watch(page, "two")
        assert made == [None, (LINE,)]
        await watch(page, "two")
        assert made == [None, (LINE,), None], "all parts follow"

    asyncio.run(look())


def test_what_could_not_be_kept_is_tried_again_soon(tmp_path: Path, made: list[Any]) -> None:
    clock, tries = Clock(), list[float]()
    page = page_of(tmp_path, clock)

    def fail(job: str) -> PageValues:
        tries.append(clock.now)
        raise StorageError("The API server is away.", code="unreachable", hint="")

    async def look() -> None:
        clock.now += LINE_EVERY_S
        await watch(page)
        began = clock.now
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keep, "values_of", fail)
            for _ in range(50):
                await watch(page, state="failed")
                clock.now += 1
        assert [one - began for one in tries] == [0, keep.AGAIN_S, 3 * keep.AGAIN_S]
        clock.now += LINE_EVERY_S
        await watch(page, state="failed")

    asyncio.run(look())

    assert made == [None, (LINE,)]


def test_a_watch_of_a_job_that_no_dag_names_says_so_once(
    tmp_path: Path, made: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """As for a job that a template names: there is no asset with which its page could be kept."""
    clock, tries = Clock(), list[float]()
    page = page_of(tmp_path, clock)
    page._job = "nameless"

    def fail(job: str) -> PageValues:
        tries.append(clock.now)
        raise NoPageError("Asset with name='streambank/nameless/page' not found")

    async def look() -> None:
        clock.now += LINE_EVERY_S
        with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO, keep.__name__):
            patch.setattr(keep, "values_of", fail)
            for state in range(100):
                await watch(page, state=str(state))
                clock.now += 60
        assert [one - tries[0] for one in tries] == [0, keep.UNNAMED_S]

    asyncio.run(look())
    (said,) = keeps(caplog)
    assert said.startswith("The page in Airflow does not show job nameless: no DAG file names it.")
    assert {one.levelno for one in caplog.records if one.name == keep.__name__} == {logging.INFO}


def test_a_value_of_a_page_without_an_asset_is_refused_by_name(airflow_database: None) -> None:
    refused: list[BaseException] = []

    @task(task_id="keep")
    def write() -> None:
        assert values_of("nobody").get(LINE) is None
        try:
            values_of("nobody").set(LINE, {})
        except NoPageError as error:
            refused.append(error)

    run_dag(own_dag("writes-a-page", write))
    assert bool(refused) == keeps_in_assets()


def test_a_change_of_state_is_kept_at_once(tmp_path: Path, made: list[Any]) -> None:
    clock = Clock()
    page = page_of(tmp_path, clock)

    async def look() -> None:
        clock.now += LINE_EVERY_S
        await watch(page)
        for state in ("running", "failed", "failed", "running"):
            clock.now += 1
            await watch(page, state=state)

    asyncio.run(look())

    assert made == [None, (LINE,), (LINE,)]


def test_what_changes_before_the_first_line_is_kept_at_once(tmp_path: Path, made: list[Any]) -> None:
    clock, pace = Clock(), WatchPace()
    others = [Clock() for _ in range(1000)]
    for one in others:
        pace.join(one, clock())
    hook = StreambankHook(jobs_file=str(declared(tmp_path, "flights")))
    page = WatchedPage(hook, "flights", clock, pace)

    async def look() -> None:
        await watch(page)
        assert made == []
        await watch(page, state="failed")

    asyncio.run(look())

    assert made == [(LINE,)]


def test_what_is_urgent_overtakes_what_waits_for_its_turn(
    tmp_path: Path, made: list[Any], values: MemoryValues
) -> None:
    clock = Clock()
    page = page_of(tmp_path, clock)
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        go_on.wait(60)

    async def look() -> None:
        await watch(page)
        made.clear()
        busy = [keep._threads(False).submit(hang) for _ in range(THREADS)]
        for _ in busy:
            assert await asyncio.to_thread(begun.acquire, timeout=60)
        clock.now += ALL_EVERY_S
        page.after_look("one", "running")
        waiting = page._work
        assert waiting is not None
        await watch(page, state="failed")
        assert made == [(LINE,)]
        go_on.set()
        await waiting
        await watch(page, state="failed")

    asyncio.run(look())

    assert made == [(LINE,), None], "all parts were due, and follow"


def test_a_line_says_when_the_next_one_is_due(tmp_path: Path, made: list[Any], values: MemoryValues) -> None:
    clock, pace = Clock(), WatchPace(lambda low, high: high)
    hook = StreambankHook(jobs_file=str(declared(tmp_path, "flights")))
    page = WatchedPage(hook, "flights", clock, pace)

    asyncio.run(watch(page))
    assert values.get(LINE)["next_s"] == 66
    keep_page(hook, "flights")
    assert values.get(LINE)["next_s"] == 66, "a task does not change what the watch does"
    pace.line.processor_s = 300.0
    clock.now += 66
    asyncio.run(watch(page))
    assert values.get(LINE)["next_s"] == round(1.1 * pace.every_s()) > 1000


def test_a_line_that_only_the_watch_keeps_is_read_and_written_once(
    tmp_path: Path, made: list[Any], values: MemoryValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    page = page_of(tmp_path, clock)
    asked: list[str] = []
    kept = values.get

    def get(key: str) -> Any:
        asked.append(f"get {key}")
        return kept(key)

    values.before_write = lambda key: asked.append(f"set {key}")
    monkeypatch.setattr(values, "get", get)

    async def look() -> None:
        for _ in range(2):
            clock.now += 2 * LINE_EVERY_S
            await watch(page)

    asyncio.run(look())
    asked.clear()
    made.clear()
    clock.now += 2 * LINE_EVERY_S
    asyncio.run(watch(page))
    assert (made, asked) == ([(LINE,)], ["get line", "set line"])

    # A task has kept one since: that is what the next one begins with.
    values.set(LINE, {**values.get(LINE), "savepoint": "new"})
    made.clear()
    clock.now += 2 * LINE_EVERY_S
    asyncio.run(watch(page))
    assert made == [(LINE,), (LINE,)]


def test_a_watch_never_waits_for_its_page_and_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def hang(*_: Any) -> None:
        begun.release()
        go_on.wait(60)
        raise StorageError("The storage is not reached.", code="unreachable", hint="")

    monkeypatch.setattr(keep, "values_of", lambda job: MemoryValues())
    monkeypatch.setattr(keep, "_snapshot", hang)
    clock = Clock()
    page = page_of(tmp_path, clock)

    async def look() -> None:
        for _ in range(100):
            page.after_look("one", "running")
            clock.now += LINE_EVERY_S
            await asyncio.sleep(0)
        assert await asyncio.to_thread(begun.acquire, timeout=60)
        assert not begun.acquire(blocking=False)
        go_on.set()
        for _ in range(3):
            await watch(page)
            clock.now += 2 * LINE_EVERY_S

    with caplog.at_level(logging.WARNING, keep.__name__):
        asyncio.run(look())

    assert keeps(caplog) == [
        "The page of job flights has been under way for 360 s.",
        "The page of job flights could not be kept: The storage is not reached. [unreachable]",
    ]


def test_the_watch_of_a_run_keeps_its_page(tmp_path: Path, made: list[Any], page_on: None) -> None:
    hook = StreambankHook(jobs_file=str(declared(tmp_path, "flights")))
    trigger = JobEndTrigger(job="flights", watch=1)
    trigger.open_watcher(hook)
    seen = JobView(job="flights", state="running", launch_id="one")

    async def look() -> None:
        assert trigger.noted(seen) is seen
        assert trigger._page is not None and trigger._page._work is not None
        await trigger._page._work

    asyncio.run(look())

    assert len(made) == 1
    for other in (JobEndTrigger(job="flights"), JobEndTrigger(job="flights", watch=1)):
        other.noted(seen)
        assert other._page is None


def test_a_watch_of_a_copy_has_no_page(tmp_path: Path, page_on: None) -> None:
    hook = StreambankHook(jobs_file=str(declared(tmp_path, "flights")))

    assert page_of_watch(hook, "flights@eu") is None
    assert page_of_watch(hook, "flights") is not None


def test_a_watch_keeps_nothing_where_the_page_is_off(tmp_path: Path) -> None:
    assert page_of_watch(StreambankHook(jobs_file=str(declared(tmp_path, "flights"))), "flights") is None
