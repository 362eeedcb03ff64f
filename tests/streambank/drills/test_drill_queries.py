"""A drill of several queries that fails for one of them says so of that one alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streambank.checkpoint.replay import Replay
from streambank.control.control import JobControl
from streambank.control.drills import drills_of, last_drills, outcomes, record_drill
from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.drills.drill import drill
from streambank.drills.each import drill_each
from streambank.drills.report import DrillReport
from streambank.drills.request import DrillRequest
from streambank.drills.watched import BATCH, DONE, STATE_COMPARED, STATE_READ
from streambank.overview.recoveries import recoveries_part
from streambank.repository.catalog import manifest_key
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.jobs.managed_job import BY

JOBS = """
repository = "savepoints"
[jobs.dedup]
application = "app.py"
checkpoint = "checkpoints"
queries = ["a", "b"]
master = "local[1]"
drill = {compare = "values", timeout = "20s"}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job whose drills start no driver."""
    (tmp_path / "app.py").write_text("")
    (tmp_path / "jobs.toml").write_text(JOBS)
    recorded = unpack("4.3.0/hdfs-dedup", tmp_path / "recorded") / "checkpoint"
    for name in "ab":
        shutil.copytree(recorded, tmp_path / "checkpoints" / name)
    monkeypatch.setattr("streambank.drills.drill.stop_job", lambda *args, **more: None)
    yield load_jobs(tmp_path / "jobs.toml").job("dedup")


def saved(job: Job) -> dict[str, str]:
    repository = Repository.open(open_store(job.repository), create=True)
    return {
        name: take(TakeRequest(open_store(place), repository, f"dedup/{name}")).savepoint
        for name, place in job.queries.items()
    }


def noting(monkeypatch: pytest.MonkeyPatch, note: Callable[[JobControl], None]) -> None:
    """Where a driver would start, write down what one would have written."""

    def start(copy: Job, **more: Any) -> SimpleNamespace:
        note(copy.records())
        return SimpleNamespace(launch_id="launch")

    monkeypatch.setattr("streambank.drills.drill.start_job", start)


def drilled(job: Job) -> DrillReport:
    return drill(DrillRequest(job, savepoint="latest", by=BY))


def known(job: Job) -> dict[str, bool]:
    """How the newest drill of the savepoints of each query ended."""
    return {query: one["passed"] for (query, _), one in last_drills(drills_of(job.records())).items()}


def test_a_savepoint_that_is_damaged_fails_its_query_alone(job: Job) -> None:
    taken = saved(job)
    passed: dict[str, Any] = {"passed": True, "started_at": "2026-11-27T00:00:00.000Z", "repository": "there"}
    record_drill(job.records(), {**passed, "queries": [{"query": "a", "savepoint": taken["a"]}]})
    Repository.open(open_store(job.repository)).store.write(manifest_key("dedup/b", taken["b"]), b"{}")
    report = drill_each(DrillRequest(job, savepoint="each", by=BY))
    assert (report.drills[0]["failed_step"], report.drills[0]["failed_queries"]) == ("choose", ["b"])
    assert report.failed[0]["savepoints"] == {"b": taken["b"]}
    assert known(job) == {"a": True, "b": False}, "of the other one the drill before it is the newest"


def test_a_batch_that_fails_fails_its_query_alone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(job)

    def note(control: JobControl) -> None:
        for query in "ab":
            control.record_event(STATE_READ, query=query, batch=1, parts=[], seconds=0.1)
        control.record_event(BATCH, query="b", batch=2, seconds=0.1, failure="ValueError: no")

    noting(monkeypatch, note)
    report = drilled(job)
    assert (report.code, report.failed_queries) == ("drill-died", ("b",))
    assert known(job) == {"b": False}, "whether the other one would have passed is not known"
    assert next(outcomes(job.records())).failed.startswith(
        f"failed for query b at the step {report.failed_step}: "
    )
    (shown,) = recoveries_part(job, job.records())["drills"]
    assert (shown["passed"], shown["query"], shown["step"]) == (False, "b", report.failed_step)


def test_a_difference_fails_its_query_and_the_others_have_passed(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(job)
    replay = Replay((9,), "memory://plans", "memory://live")
    monkeypatch.setattr("streambank.drills.drill._Drill._stage", lambda *args: replay)

    def note(control: JobControl) -> None:
        for query, rows in {"a": 1, "b": 2}.items():
            control.record_event(STATE_READ, query=query, batch=1, parts=[], seconds=0.1)
            control.record_event(BATCH, query=query, batch=9, seconds=0.1)
            states = {"copy": {"parts": [1]}, "live": {"parts": [rows]}}
            control.record_event(STATE_COMPARED, query=query, batch=9, **states)
            control.record_event(DONE, query=query)

    noting(monkeypatch, note)
    report = drilled(job)
    assert (report.code, report.failed_queries) == ("drill-differs", ("b",))
    assert known(job) == {"a": True, "b": False}


def test_an_application_that_does_not_start_fails_all(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(job)

    def refuse(control: JobControl) -> None:
        raise RefusedError("No driver is started here.", code="job-running", hint="Stop it.")

    noting(monkeypatch, refuse)
    report = drilled(job)
    assert report.failed_queries == ("a", "b")
    assert report.hint == "Stop it." and "hint" not in report.to_dict()
    assert known(job) == {"a": False, "b": False}
    assert next(outcomes(job.records())).failed.startswith("failed at the step launch: ")


def test_a_report_of_an_older_release_is_of_all_queries(job: Job) -> None:
    queries = [{"query": name, "savepoint": "b000001"} for name in "ab"]
    record_drill(
        job.records(), {"passed": False, "failed_step": "compare", "error": "No.", "queries": queries}
    )
    assert known(job) == {"a": False, "b": False}
    assert next(outcomes(job.records())).failed == "failed at the step compare: No."
    record_drill(job.records(), {"passed": True, "failed_queries": [], "queries": queries})
    assert [one["query"] for one in recoveries_part(job, job.records())["drills"]] == [None, None]
