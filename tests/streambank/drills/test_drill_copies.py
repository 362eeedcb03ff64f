"""A drill of a job on a copy of another one's state, with the real application on real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.declaration.load import load_jobs
from tests.support.cli import streambank
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.drill_story import hashes, story_in
from tests.support.jobs.release_story import NAME, ReleaseStory
from tests.support.waiting import poll

pytestmark = [pytest.mark.storm, pytest.mark.spark, pytest.mark.timeout(1800)]

COPY = f"{NAME}@staging"
STAGING = f"""
[jobs.{NAME}.copies.staging]
checkpoint = "staging/checkpoint"
outputs = {{ "./out" = "staging/out" }}
"""


def on_copy(story: ReleaseStory, *words: str, code: int = 0) -> str:
    answer = streambank(*words, COPY, "--jobs", story.jobs)
    assert answer.code == code, f"{answer.out}{answer.err}"
    return answer.out + answer.err


def committed(story: ReleaseStory) -> int:
    """The newest batch that the query on the copy has committed."""
    folder = story.folder / "staging/checkpoint.g0002/commits"
    return max((int(one.name) for one in folder.glob("[0-9]*")), default=-1) if folder.is_dir() else -1


def test_a_drill_of_a_copy_rehearses_it_and_touches_neither_it_nor_the_job(tmp_path: Path) -> None:
    with story_in(tmp_path, more=STAGING) as story:
        story.until_written()
        copy = load_jobs(story.jobs).job(COPY)
        try:
            refused = on_copy(story, "drill", code=8)
            assert "was never made" in refused and f"streambank fork {NAME} staging" in refused
            assert not (tmp_path / "staging").exists(), "a drill that is refused begins nothing"

            made = streambank("fork", NAME, "staging", "--jobs", story.jobs, "--json").document
            saved = made["queries"][0]["batch"]
            on_copy(story, "job", "start")
            story.feed(1)
            poll(lambda: committed(story) > saved, timeout_s=300)
            on_copy(story, "job", "savepoint")
            story.feed(2)
            # A batch for each file: after the last one neither of them has anything left to do.
            poll(lambda: committed(story) == story.files - 1, timeout_s=300)
            story.until_batch(story.files - 1)
            names = ("in", "out", "checkpoint", "staging/checkpoint.g0002", "staging/out.g0002")
            before = hashes(*(tmp_path / name for name in names))
            answer = streambank("drill", COPY, "--jobs", story.jobs, "--json")
            assert answer.code == 0, f"{answer.out}{answer.err}"
            after = hashes(*(tmp_path / name for name in names))
            assert {name for name, _ in before.items() ^ after.items()} == set()
            report = answer.document
            (query,) = report["queries"]
            assert (report["job"], report["passed"], report["not_run"]) == (f"{NAME}-staging", True, "")
            assert query["batches"] and query["state_equal"] is True
            assert all(one["output"]["rows"] == one["output"]["live_rows"] for one in query["batches"])
            assert any(one["output"]["rows"] for one in query["batches"])
            assert query["not_compared"] == []
            history = streambank("drill", COPY, "--jobs", story.jobs, "--history", "--json").document
            assert [one["scratch"] for one in history["drills"]] == [report["scratch"]]
            of_the_job = streambank("drill", NAME, "--jobs", story.jobs, "--history", "--json").document
            assert of_the_job["drills"] == [], "the job itself was not drilled"
        finally:
            end_drivers(copy.records())
