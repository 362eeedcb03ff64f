"""A snapshot of a job that runs on real Spark, before and after its driver is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from streambank.overview.snapshot import PARTS, snapshot
from tests.support.jobs.declared import BY, end_drivers
from tests.support.jobs.seen_job import NUMBERS, ROCKSDB, SeenJob
from tests.support.overview.shown_job import mismatched

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(600)]


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[SeenJob]:
    made = SeenJob(tmp_path, ROCKSDB)
    made.arrive()
    try:
        start_job(made.job, by=BY)
        made.settle()
        yield made
    finally:
        end_drivers(made.job.records())


def test_what_spark_says_of_a_running_job_is_in_its_snapshot(seen: SeenJob) -> None:
    savepoint_job(seen.job, by=BY)
    found = snapshot(seen.job, parts=PARTS)
    line, parts = found.line, found.parts
    assert mismatched(found) == [] and line["error"] is None
    assert line["state"] == "running" and line["state_rows"] == NUMBERS
    assert line["batch_s"] > 0 and line["spark"]["rows"][-1] == NUMBERS
    (saved,) = parts["savepoints"]["savepoints"]
    words = parts["savepoints"]["manifests"][saved["id"]]
    assert words["operators"] and words["sources"] and words["sinks"]
    assert sum(one["rows"] or 0 for one in parts["charts"]["partitions"]) <= NUMBERS
    assert len(parts["charts"]["partitions"]) == 3
    assert {"state_rows", "batch_duration"} <= {one["objective"] for one in parts["charts"]["charts"]}

    end_drivers(seen.job.records())
    dead = snapshot(seen.job)
    assert dead.line["state"] == "failed" and dead.line["down_since"] is not None
    assert dead.line["batch"] == line["batch"] and dead.line["error"] is None
