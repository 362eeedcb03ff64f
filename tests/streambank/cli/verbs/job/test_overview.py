from __future__ import annotations

from pathlib import Path

import pytest

from streambank.declaration.load import load_jobs
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.left_behind import save
from tests.support.sla.drilled_job import drilled


@pytest.fixture
def jobs(folder: Path) -> Path:
    job = declare(folder, batches=2)
    job.records().generations().ensure_first(job.checkpoint, by=BY)
    job.records().set_desired("stopped", by=BY, why="a pause")
    save(job)
    return folder / "streaming_jobs.toml"


def test_it_shows_the_line_and_how_large_each_part_is(jobs: Path) -> None:
    shown = succeed("job", "overview", "flights", "--jobs", jobs).out
    assert "job flights: never-started" in shown and "stopped, set by" in shown
    assert "savepoints" in shown and "findings" not in shown


def test_it_says_whether_the_newest_drill_ran_the_application(jobs: Path) -> None:
    job = load_jobs(jobs).job("flights")
    shown = ("job", "overview", "flights", "--jobs", jobs, "--part", "recoveries")
    for week, changes, words in [
        (1, {}, "passed at "),
        (2, {"not_run": "Its sink is foreachBatch."}, "savepoint proved, application not run, at "),
        (3, {"failed_step": "compare"}, "failed at "),
    ]:
        drilled(job, week, **changes)
        assert words in succeed(*shown).out


def test_a_part_that_is_asked_for_is_shown_whole(jobs: Path) -> None:
    asked = ("job", "overview", "flights", "--jobs", jobs, "--part", "savepoints", "--part", "events")
    shown = succeed(*asked).out
    assert '"batch": 1' in shown and '"events": [' in shown
    found = succeed(*asked, "--json").document
    assert found["parts"].keys() == {"savepoints", "events"} == found["line"]["parts"].keys()


def test_a_part_that_cannot_be_read_says_why(jobs: Path) -> None:
    records = jobs.parent / "repository.control/flights/desired/0000000001.json"
    records.write_text("{")
    answer = streambank("job", "overview", "flights", "--jobs", jobs)
    assert answer.code == 1 and "cannot be read" in answer.out and "unreadable" in answer.out


def test_a_line_of_which_something_cannot_be_read_says_why(jobs: Path) -> None:
    records = load_jobs(jobs).job("flights").records()
    records.set_desired("running", by=BY)
    records.store.write(records.event_records.key(records.record_event("restarted")), b"{")
    records.record_event("stopped", how="none")
    answer = streambank("job", "overview", "flights", "--jobs", jobs, "--part", "status")
    assert answer.code == 1 and "line: The record " in answer.out and "cannot be read" in answer.out


def test_an_unknown_part_is_a_usage_error_with_the_names(jobs: Path) -> None:
    answer = streambank("job", "overview", "flights", "--jobs", jobs, "--part", "all")
    assert answer.code == 2 and "recoveries" in answer.err


def test_the_page_is_written_as_a_file_with_every_part(jobs: Path, tmp_path: Path) -> None:
    file = tmp_path / "flights.html"
    shown = ("job", "overview", "flights", "--jobs", jobs, "--html", file)
    assert succeed(*shown).err == f"written: {file}\n"
    whole = file.read_text(encoding="utf-8")
    assert whole.startswith("<!DOCTYPE html>") and '"findings":{' in whole and '"log":{' in whole
    succeed(*shown, "--part", "events")
    assert '"log":{' not in file.read_text(encoding="utf-8")
