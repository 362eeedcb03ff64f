"""The seconds of steps, and what a long operation leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.copies.refresh import RefreshRequest
from streambank.core.errors import RefusedError
from streambank.declaration.load import load_jobs
from streambank.procedure.procedure import Procedure

DECLARED = """
repository = "{folder}/repository"
control = "{folder}/control"

[jobs.orders]
application = "app.py"
checkpoint = "{folder}/ck"
"""


@pytest.fixture
def run(tmp_path: Path) -> Procedure[RefreshRequest]:
    jobs = tmp_path / "streaming_jobs.toml"
    jobs.write_text(DECLARED.format(folder=tmp_path), encoding="utf-8")
    request = RefreshRequest(load_jobs(jobs).job("orders"), "staging", by={"user": "ada"}, why="to see")
    return Procedure(request)


def test_a_step_that_fails_counts_and_is_the_last_one(run: Procedure[RefreshRequest]) -> None:
    said: list[str] = []
    run.say = said.append
    with run.step("choose", "choosing"):
        pass
    with pytest.raises(RefusedError), run.step("restore", "restoring"):
        raise RefusedError("No.", code="no-room")
    assert said == ["choosing", "restoring"]
    assert list(run.steps) == ["choose", "restore"] and run.last_step == "restore"


def test_what_an_earlier_run_took_is_added(run: Procedure[RefreshRequest]) -> None:
    run.go_on({"stop": 5.0}, 60.0)
    with run.step("stop", "stopping"):
        pass
    assert 5.0 <= run.steps["stop"] < 10.0 and 60.0 <= run.seconds < 65.0


def test_an_event_says_who_asked_and_why(run: Procedure[RefreshRequest]) -> None:
    control: JobControl = run.job.records()
    run.leave(control, "refreshed", copy="staging")
    event = control.last_event("refreshed")
    assert event is not None and event["copy"] == "staging"
    assert event["by"] == {"user": "ada"} and event["why"] == "to see"
