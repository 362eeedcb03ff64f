"""Hot keys by traffic through the life of a job: a drill, a copy, kill -9 and a restore, an upgrade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.control.progress import last_progress
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.sla.skew.traffic import hot_key_facts
from streambank_spark.runner.key_sampling import SAMPLED
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.drill_story import drill, story_in
from tests.support.jobs.release_story import NAME, ReleaseStory
from tests.support.jobs.upgrade_story import NEW, fed, replace_code, upgrade
from tests.support.waiting import poll

pytestmark = [pytest.mark.storm, pytest.mark.spark, pytest.mark.timeout(1800)]

COPY = f"{NAME}@staging"
MORE = f"""
[jobs.{NAME}.hot_keys]
sample = 1.0
[jobs.{NAME}.copies.staging]
checkpoint = "staging/checkpoint"
outputs = {{ "./out" = "staging/out" }}
[jobs.{NAME}.copies.staging.hot_keys]
sample = 1.0
keys = ["n"]
"""
ROWS = 20
"""Of a file, which is a batch."""


def traffic(story: ReleaseStory, job: str = NAME) -> dict[str, Any] | None:
    """The traffic in `job status`."""
    answer = succeed("job", "status", job, "--jobs", story.jobs, "--json")
    found: dict[str, Any] | None = answer.document["queries"]["main"]["hot_keys"]
    return found


def measured(story: ReleaseStory, after: int, job: str = NAME) -> dict[str, Any]:
    """The traffic that the newest driver has measured, once it has a batch above a number."""

    def newest() -> dict[str, Any]:
        found = traffic(story, job)
        return found if found and found["current"] and found["batch"] > after else {}

    return poll(newest, timeout_s=180)


def sampled(job: Job) -> int:
    """How many drivers of a job have counted keys."""
    return sum(one.data["kind"] == SAMPLED for one in job.records().events())


def test_traffic_is_measured_through_drill_copy_restore_and_upgrade(tmp_path: Path) -> None:
    with story_in(tmp_path, more=MORE) as story:
        job, copy = (load_jobs(story.jobs).job(name) for name in (NAME, COPY))
        first = measured(story, 3)
        (operator,) = first["operators"]
        assert (operator["name"], operator["by"]) == ("Deduplicate", ["k"])
        assert (first["batch"], operator["batches"], operator["rows"]) == (4, 5, 5 * ROWS)

        # A drill compares as without: its driver counts no keys, and the live measurement is what it was.
        report = drill(story, "--keep")
        (query,) = report["queries"]
        assert (report["passed"], query["differences"], query["not_compared"]) == (True, [], [])
        assert query["state_equal"] is True
        assert all(one["output"]["only_copy"] == one["output"]["only_live"] == 0 for one in query["batches"])
        scratch = Path(report["scratch"].removeprefix("file://"))
        lines = [
            one for file in scratch.glob("control/*/progress/main/*") for one in file.read_text().split("\n")
        ]
        assert any('"run_id"' in one for one in lines), "its driver has recorded batches"
        assert not any("hot_keys" in one for one in lines)
        assert traffic(story) == first

        # A copy is sampled as the copy declares it, whatever the job does.
        try:
            made = succeed("fork", NAME, "staging", "--jobs", story.jobs, "--json").document
            assert traffic(story, COPY) is None, "the records of the job are not those of its copy"
            succeed("job", "start", COPY, "--jobs", story.jobs)
            (operator,) = measured(story, 3, COPY)["operators"]
            assert operator["by"] == ["`n`"]
            assert operator["batches"] == 4 - made["queries"][0]["batch"]
            shown = succeed("skew", "--job", copy.name, "--jobs", story.jobs, "--json").document
            assert shown["traffic"]["operators"] == [operator]
            succeed("job", "stop", COPY, "--jobs", story.jobs)
        finally:
            end_drivers(copy.records())
        assert (sampled(job), sampled(copy)) == (1, 1)
        assert traffic(story) == first

        # After kill -9 it is the newest that there is; after a restore that of an earlier driver.
        story.kill()
        assert traffic(story) == first
        story.restore("latest", "--sink", "rollback")
        old = traffic(story)
        assert old == {**first, "current": False}
        facts, why = hot_key_facts(job.records(), None, utc_now())
        assert facts is None and why.endswith("before the job was last started or restored")
        story.do("start")
        restored = job.records().generation("main")
        assert restored is not None and restored.number == 2
        again = measured(story, 3)
        (operator,) = again["operators"]
        saved = made["queries"][0]["batch"]
        assert (operator["batches"], operator["rows"]) == (4 - saved, (4 - saved) * ROWS), (
            "of the new run alone"
        )
        story.until_written()
        assert story.rows() == story.expected()

        # An upgrade rehearses without, and its new driver measures.
        last = last_progress(job.records().store)
        replace_code(story, NEW)
        with fed(story):
            report = upgrade(story, "--watch", "10s")
        assert report["state"] == "upgraded", report
        now = last_progress(job.records().store)
        assert last is not None and now is not None and now.epoch > last.epoch
        found = measured(story, again["batch"])
        assert found["operators"][0]["batches"] < found["batch"] - saved, "the window began with its driver"
        assert sampled(job) >= 3
        story.until_written()
        assert story.rows() == story.expected()
        answer = streambank("doctor", "--job", NAME, "--jobs", story.jobs, "--json")
        assert "hot keys by traffic" in answer.out, "20 rows of a batch are too few, which doctor says"
        assert "too few rows of a batch are sampled" in answer.out
