"""A drill on each release of Spark that jobs run on, and what it can compare there."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.driver.spark_releases import FOR_JOBS
from tests.matrix.test_story import INSTALLED, declared
from tests.support.jobs.drill_story import drill, story_in
from tests.support.spark.releases import other_spark, python310

pytestmark = [pytest.mark.matrix, pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("release", [one for one in FOR_JOBS if one != INSTALLED])
def test_a_drill_on_another_release(tmp_path: Path, release: str) -> None:
    spark = other_spark(release, python310())
    with story_in(tmp_path, more=declared(spark.python)) as story:
        report = drill(story)
    (query,) = report["queries"]
    assert (report["passed"], len(query["batches"])) == (True, 3), report
    for one in query["batches"]:
        assert one["input_rows"] == one["live_input_rows"] == 20
        assert one["state_rows"] == one["live_state_rows"]
        assert (one["output"]["only_copy"], one["output"]["only_live"]) == (0, 0), one
    if release == "3.5":  # it has no reader of state
        assert (query["state_equal"], "why" in query["state"]) == (None, True)
    else:
        assert query["state_equal"] is True
        assert query["state"]["parts"][0]["rows"] >= 20
