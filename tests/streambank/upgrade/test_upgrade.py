"""Upgrades of a running job, on real Spark: good ones, ones that are refused, and ones that are undone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streambank.declaration.load import load_jobs
from tests.support.cli import streambank
from tests.support.jobs.drill_story import hashes, story_in
from tests.support.jobs.release_story import APPLICATION, NAME, ReleaseStory
from tests.support.jobs.upgrade_story import (
    DIES,
    KILLED,
    NEW,
    OTHER_KEYS,
    fed,
    replace_code,
    upgrade,
    versions,
)
from tests.support.json_examples import examples, mismatches

pytestmark = [pytest.mark.storm, pytest.mark.spark, pytest.mark.timeout(1800)]


def kinds(story: ReleaseStory) -> list[str]:
    """The kinds of what happened, oldest first."""
    return [str(one.data["kind"]) for one in load_jobs(story.jobs).job(NAME).records().events()]


def test_new_code_takes_the_place_of_the_old(tmp_path: Path) -> None:
    with story_in(tmp_path) as story:
        replace_code(story, NEW)
        old = story.document("status")
        planned = upgrade(story, "--plan")
        assert (planned["state"], len(planned["changes"])) == ("planned", 1), planned
        assert planned["changes"][0].startswith("the program in ")
        assert (planned["no_way_back"], planned["notes"]) == ("", [])
        kept, here = upgrade(story, "--plan", "--conf", "spark.sql.shuffle.partitions=7")["notes"]
        assert "declared as 7" in kept and "code-not-proven" in here
        assert story.document("status")["pid"] == old["pid"]
        assert story.document("status")["code"] == ""
        with fed(story):
            report = upgrade(story, "--watch", "10s")
        assert (report["state"], report["warm"], report["notes"]) == ("upgraded", True, [])
        assert "Warming up: 10 batches in " in Path(str(story.document("status")["log"])).read_text()
        assert list(mismatches(examples()["upgrade"], report)) == []
        print("steps", report["steps"], "without processing", report["without_processing_s"])
        (rehearsed,) = report["rehearsal"]["queries"]
        assert len(rehearsed["batches"]) == 3
        assert any("lacks" in one for one in rehearsed["differences"]), "the column is another output"
        assert 0 < report["without_processing_s"] < report["seconds"]
        story.until_written()
        assert story.rows() == story.expected()
        assert versions(story) == {None, 2}
        now = story.document("status")
        assert (now["state"], now["code"]) == ("running", "")
        assert now["queries"]["main"]["query_id"] == old["queries"]["main"]["query_id"]
        assert now["queries"]["main"]["generation"] == 1
        assert upgrade(story)["state"] == "nothing-to-do"
        (kept,) = upgrade(story, "--history")["upgrades"]
        assert kept == report
        assert "upgraded" in kinds(story)
        assert kinds(story).index("driver-waiting") < kinds(story).index("upgrading")


def test_incompatible_code_is_found_while_the_old_runs_on(tmp_path: Path) -> None:
    with story_in(tmp_path) as story:
        replace_code(story, OTHER_KEYS)
        old = story.document("status")
        live = (story.source, story.out, tmp_path / "checkpoint")
        before = hashes(*live)
        report = upgrade(story, code=1)
        assert (report["state"], report["code"]) == ("refused", "drill-died")
        assert "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE" in report["error"], report["error"]
        assert hashes(*live) == before
        now = story.document("status")
        assert (now["pid"], now["jvm_pid"]) == (old["pid"], old["jvm_pid"]), "it was never stopped"
        assert "An upgrade has chosen the code of" in now["code"]
        # A driver that dies comes back with the old code, although its file has been replaced.
        story.kill()
        started = story.document("start")
        assert "An upgrade has chosen the code of" in started["code"]
        story.feed(2)
        story.until_written()
        assert story.rows() == story.expected()
        # What is declared counts again once it is something else; and it was nothing else that failed.
        replace_code(story, NEW)
        story.do("restart")
        assert story.document("status")["code"] == ""
        story.feed(1)
        story.until_written()
        assert versions(story) == {None, 2}
        assert story.rows() == story.expected()


def test_code_that_fails_after_the_swap_is_undone(tmp_path: Path) -> None:
    with story_in(tmp_path) as story:
        replace_code(story, DIES)
        with fed(story, every_s=10.0):
            report = upgrade(story, "--watch", "5m", code=1)
        assert (report["state"], report["code"]) == ("undone", "new-code-failed"), report
        assert "The new code does not get on" in report["error"]
        written = {kind for kind in kinds(story) if kind.startswith(("upgrad", "sink"))}
        assert written == {"upgrading", "upgrade-undoing", "sink-rolled-back", "upgrade-undone"}
        story.feed(1)
        story.until_written()
        assert story.rows() == story.expected()
        assert versions(story) == {None}, "what the new code wrote is set aside"
        now = story.document("status")
        assert (now["state"], now["desired"], now["queries"]["main"]["generation"]) == (
            "running",
            "running",
            2,
        )
        assert "is undone" in now["code"]


def killed(story: ReleaseStory, when: str) -> None:
    """Upgrade in a process that is killed `before` the new code is chosen, or right `after` that."""
    ended = subprocess.run([sys.executable, "-c", KILLED, story.jobs, when], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_an_upgrade_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    with story_in(tmp_path) as story:
        replace_code(story, NEW)
        killed(story, "before")
        down = story.document("status")
        assert (down["state"], down["desired"]) == ("stopped", "running")
        assert kinds(story)[-1] == "stopped" and "upgrading" in kinds(story)
        # The task that keeps the job running would start the old code meanwhile.
        assert "An upgrade has chosen the code of" in story.document("start")["code"]
        story.feed(2)
        story.until_written()
        killed(story, "after")
        assert versions(story) == {None}
        story.feed(2)
        report = upgrade(story, "--watch", "5s")
        assert (report["state"], report["resumed"]) == ("upgraded", True)
        assert report["by"]["user"] == "killed"
        story.until_written()
        assert story.rows() == story.expected()
        assert versions(story) == {None, 2}
        states = [one["state"] for one in upgrade(story, "--history")["upgrades"]]
        assert states == ["upgraded"]


def test_what_was_chosen_counts_for_each_start_until_it_is_undone(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    with story_in(tmp_path) as story:
        other.write_text(NEW)
        report = upgrade(
            story, "--application", other, "--conf", "spark.sql.streaming.stopTimeout=1m", "--watch", "2s"
        )
        assert report["state"] == "upgraded"
        assert len(report["changes"]) == 2
        assert "An upgrade has chosen the code of" in story.document("status")["code"]
        story.do("restart")
        story.feed(1)
        story.until_written()
        assert versions(story) == {None, 2}
        undone = upgrade(story, "--undo")
        assert undone["state"] == "undone"
        story.feed(1)
        story.until_written()
        assert story.rows() == story.expected()
        assert versions(story) == {None}
        assert story.document("status")["code"] == "", "it is what the job declares"
        assert (story.folder / "app.py").read_text() == APPLICATION
        refused = streambank("upgrade", NAME, "--jobs", story.jobs, "--undo")
        assert (refused.code, "no upgrade that could be undone" in refused.err) == (3, True), refused
