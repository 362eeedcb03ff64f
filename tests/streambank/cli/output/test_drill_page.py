"""The page of a job's drills: what is drawn, which limits, and that nothing in it is taken for markup."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from streambank.cli.output.drill_page import drill_page
from streambank.control.drills import drills_of, outcomes
from streambank.declaration.declaration import Job
from tests.support.cli import streambank
from tests.support.sla.drilled_job import drilled, drilled_job, of_round


def page_of(job: Job) -> str:
    records = job.records()
    return drill_page(job.name, list(drills_of(records)), next(outcomes(records), None), job.sla)


def figures(page: str) -> dict[str, dict[str, dict[str, Any]]]:
    """What is drawn: of each plot its traces, by their names."""
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    both = [{trace["name"]: trace for trace in figure["data"]} for figure in json.loads(found[1])]
    return dict(zip(("RTO", "RPO"), both, strict=True)) if both else {}


def test_the_rto_is_stacked_by_step_and_its_limit_is_drawn(tmp_path: Path) -> None:
    job = drilled_job(tmp_path)
    drilled(job, 0)
    drilled(job, 1, rto_s=21.0)
    drawn = figures(page_of(job))["RTO"]
    stack = {name: trace["y"] for name, trace in drawn.items() if trace.get("stackgroup")}
    # Of the batches only what the RTO counts: the first one.
    expected = {"choose": [1, 1], "restore": [2, 2], "launch": [10, 10], "first batch": [4, 8]}
    assert stack == expected
    assert drawn["choose"]["x"] == ["2026-09-06 04:00:00.000000", "2026-09-13 04:00:00.000000"]
    assert drawn["warning of recovery_time"]["y"] == [20, 20]
    assert "visible" not in drawn["warning of recovery_time"]
    assert drawn["limit of recovery_time"]["visible"] == "legendonly", "so far away that it hides the rest"
    assert "failed, at the step" not in drawn


def test_drills_that_failed_are_marked_with_their_step_and_older_savepoints_stand_apart(
    tmp_path: Path,
) -> None:
    job = drilled_job(tmp_path)
    drilled(job, 0)
    drilled(job, 1, failed_step="restore", error="Savepoint b000041 is damaged.")
    drilled(job, 2, rpo_s=5400.0, round=of_round(1, "b000099-c28c1611906f"))
    drilled(job, 2.1, rpo_s=9000.0, round=of_round(2, "b000077-c28c1611906f"))
    page = page_of(job)
    rto, rpo = figures(page).values()
    assert rto["failed, at the step"]["text"] == rpo["failed, at the step"]["text"] == ["restore"]
    assert rto["failed, at the step"]["x"] == ["2026-09-13 04:00:00.000000"]
    assert (rpo["newest savepoint"]["y"], rpo["older savepoints (each)"]["y"]) == ([1.0, 1.5], [2.5])
    assert rpo["limit of savepoint_age"]["y"] == [2, 2]
    assert "b000099-c28c1611906f" in page and "Savepoint b000041 is damaged." in page


def test_without_declared_limits_none_are_drawn(tmp_path: Path) -> None:
    job = drilled_job(tmp_path, more="")
    drilled(job, 0)
    assert not [name for drawn in figures(page_of(job)).values() for name in drawn if "limit" in name]


def test_nothing_in_a_record_is_taken_for_markup(tmp_path: Path) -> None:
    job = drilled_job(tmp_path)
    evil = "</script><script>alert(1)</script><b>bold</b>"
    drilled(job, 0, failed_step=evil, error=evil, savepoint=evil)
    drilled(job, 1, started_at=evil, rto_s=evil, rpo_s=evil, steps={"choose": evil})
    page = page_of(job)
    assert "alert(1)</script>" not in page and "<b>bold" not in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert figures(page)["RTO"]["failed, at the step"]["text"] == ["unknown step"]


def test_a_job_without_drills_gets_one_line(tmp_path: Path) -> None:
    job = drilled_job(tmp_path)
    file = tmp_path / "drills.html"
    answer = streambank("drill", "flights", "--jobs", job.source, "--history", "--html", file)
    assert (answer.code, answer.out) == (0, "There was no drill of this job yet.\n")
    assert answer.err == f"written: {file}\n"
    page = file.read_text(encoding="utf-8")
    assert "<p>There was no drill of this job yet.</p>" in page and figures(page) == {}


def test_json_and_a_page_go_together(tmp_path: Path) -> None:
    job = drilled_job(tmp_path)
    drilled(job, 0)
    file = tmp_path / "drills.html"
    words = ("drill", "flights", "--jobs", job.source, "--history", "--html", file, "--json")
    assert len(streambank(*words).document["drills"]) == 1
    assert "Drills of flights" in file.read_text(encoding="utf-8")


def test_what_draws_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = drilled_job(tmp_path)
    monkeypatch.setattr("streambank.cli.output.page.find_spec", lambda name: None)
    answer = streambank("drill", "flights", "--jobs", job.source, "--history", "--html", "x.html")
    assert answer.code == 7 and "--html needs the package plotly" in answer.err
