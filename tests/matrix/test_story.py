"""Start, savepoints while batches run, kill, restore, stop in a slow batch: on each release, to the row."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.declaration.load import load_jobs
from streambank.driver.spark_releases import FOR_JOBS
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.release_story import NAME, ReleaseStory
from tests.support.spark.releases import other_spark, python310

pytestmark = pytest.mark.spark
INSTALLED = FOR_JOBS[-1]
"""What requirements.lock has; every other test runs on it."""


def play(story: ReleaseStory, version: str) -> None:
    """The story; its output is that of a run that nothing disturbs."""
    story.feed(2)
    story.do("start")
    try:
        story.until_written()
        story.nap(0.05)
        savepoints = []
        for _ in range(3):
            story.feed()
            story.until_busy()
            savepoints.append(story.document("savepoint")["savepoint"])
        story.until_written()
        assert story.document("status")["queries"]["main"]["spark_version"] == version
        story.feed(3)
        story.until_busy()
        story.kill()

        restored = story.restore("latest-good", "--sink", "rollback")
        assert restored["generation"] == 2
        story.nap(0)
        story.do("start")
        story.feed()
        story.until_written()
        story.nap(0.1)
        story.feed()
        story.until_busy()
        stopped = story.document("stop")
        assert stopped["how"] == "boundary", "a batch of two seconds was let finish"
        story.nap(0)
        story.feed()
        story.do("start")
        story.until_written()
        story.do("stop", "--drain")
        assert story.rows() == story.expected()
    finally:
        end_drivers(load_jobs(story.jobs).job(NAME).records())


def declared(python: str | Path, home: Path | None = None) -> str:
    """Which Spark a job runs on, as it declares that."""
    return f'python = "{python}"\n' + (f'spark_home = "{home}"\n' if home is not None else "")


@pytest.mark.matrix
@pytest.mark.parametrize("release", [one for one in FOR_JOBS if one != INSTALLED])
def test_the_story_on_a_pyspark_of_another_python(tmp_path: Path, release: str) -> None:
    """The driver has its own PySpark, on the oldest Python, and no Streambank."""
    spark = other_spark(release, python310())
    play(ReleaseStory(tmp_path, declared(spark.python)), spark.version)


@pytest.mark.matrix
@pytest.mark.parametrize("release", [one for one in FOR_JOBS if one != INSTALLED])
def test_the_story_on_a_distribution(tmp_path: Path, release: str) -> None:
    """As on a cluster: no PySpark is installed, and the interpreter is any."""
    spark = other_spark(release)
    play(ReleaseStory(tmp_path, declared(python310(), spark.home)), spark.version)


@pytest.mark.storm
def test_the_story_on_spark_3_5(tmp_path: Path) -> None:
    """One cell of the matrix for every storm."""
    spark = other_spark("3.5")
    play(ReleaseStory(tmp_path, declared(spark.python)), spark.version)
