"""An upgrade of a running job from each older release of Spark to the installed one, and the way back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streambank.driver.spark_releases import FOR_JOBS
from tests.matrix.test_story import INSTALLED, declared
from tests.support.jobs.drill_story import story_in
from tests.support.jobs.upgrade_story import fed, upgrade
from tests.support.spark.releases import other_spark

pytestmark = [pytest.mark.matrix, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("release", [one for one in FOR_JOBS if one != INSTALLED])
def test_to_the_installed_release_and_back(tmp_path: Path, release: str) -> None:
    spark = other_spark(release)
    with story_in(tmp_path, more=declared(spark.python)) as story:
        old = story.document("status")["queries"]["main"]
        assert old["spark_version"] == spark.version
        with fed(story, every_s=8.0):
            report = upgrade(story, "--python", sys.executable, "--watch", "5s")
        assert report["state"] == "upgraded", report
        assert any(spark.version in one for one in report["changes"]), report["changes"]
        print(release, report["steps"], report["without_processing_s"], report["notes"])
        now = story.document("status")["queries"]["main"]
        assert now["spark_version"].startswith(INSTALLED)
        assert (now["query_id"], now["generation"]) == (old["query_id"], 1)
        story.until_written()
        assert story.rows() == story.expected()

        undone = upgrade(story, "--undo")
        assert undone["state"] == "undone", undone
        story.feed(2)
        story.until_written()
        assert story.rows() == story.expected()
        back = story.document("status")["queries"]["main"]
        assert (back["spark_version"], back["generation"]) == (spark.version, 2)
