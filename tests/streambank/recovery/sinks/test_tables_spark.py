"""Jobs that write by foreachBatch, in Spark: a savepoint, a disaster, and a restore with each choice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.declaration.load import load_jobs
from tests.support.jobs.batch_story import URL, BatchStory
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.release_story import NAME
from tests.support.sinks.postgres import PASSWORD, running_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Where the ledger is."""
    if getattr(request, "param", "sqlite") == "sqlite":
        monkeypatch.setenv(URL, f"sqlite:///{tmp_path / 'orders.db'}")
        yield "sqlite"
        return
    with running_postgres() as url:
        monkeypatch.setenv(URL, url)
        yield "postgres"


@pytest.fixture
def stories(tmp_path: Path, database: str) -> Iterator[list[BatchStory]]:
    """What a test begins; its drivers end with it."""
    begun: list[BatchStory] = []
    yield begun
    for story in begun:
        end_drivers(load_jobs(story.jobs).job(NAME).records())


@pytest.fixture
def story(stories: list[BatchStory], tmp_path: Path, request: pytest.FixtureRequest) -> BatchStory:
    story = BatchStory(tmp_path / "job", *request.param)
    stories.append(story)
    return story


@pytest.mark.storm
@pytest.mark.parametrize("story", [("delta", "ledger")], indirect=True, ids=["delta-and-ledger"])
def test_two_guarded_tables_of_one_query(story: BatchStory, spark: SparkSession) -> None:
    """A restore that is accepted loses what is said before it; after a rollback no row is lost."""
    savepoint = story.saved_and_killed()
    said = story.refused(savepoint)
    assert "Delta table" in said and "ledger ${ORDERS_URL}#streambank_batches" in said
    assert said.count("batches 2 to 4 (30 rows)") == 2 and "--sink rollback" in said

    story.files_per_batch(3)
    story.feed(2)
    accepted = story.restore(savepoint, "--sink", "accept")
    story.go_on_here(spark, accepted["location"])
    lost = story.keys_of(range(5, 7))
    assert story.rows() == story.expected() - lost, (
        "batch 2 has the three old files, batch 3 the two new ones"
    )

    restored = story.restore(savepoint, "--sink", "rollback")
    assert [(one["kind"], one["rows_removed"]) for one in restored["rolled_back"]] == [
        ("delta", 30),
        ("ledger", 30),
    ]
    assert story.rows() == story.keys_of(range(-1, 2)), "as it was at the savepoint"
    story.go_on_here(spark, restored["location"])
    assert story.rows() == story.expected()


@pytest.mark.storm
@pytest.mark.parametrize(
    ("story", "database"),
    [(("delta",), "sqlite"), (("ledger",), "sqlite"), (("ledger",), "postgres")],
    indirect=True,
    ids=["delta", "sqlite", "postgres"],
)
def test_a_guarded_table_of_a_job(story: BatchStory, database: str) -> None:
    savepoint = story.saved_and_killed()
    assert "batches 2 to 4 (30 rows)" in story.refused(savepoint)

    story.files_per_batch(3)
    story.feed(2)
    story.restore(savepoint, "--sink", "accept")
    story.go_on(3)
    assert story.rows() == story.expected() - story.keys_of(range(5, 7))

    restored = story.restore(savepoint, "--sink", "rollback")
    assert PASSWORD not in str(restored)
    story.go_on(3)
    assert story.rows() == story.expected()
    assert all(PASSWORD not in path.read_text(errors="replace") for path in records(story))


def records(story: BatchStory) -> list[Path]:
    """All that Streambank has written of the job."""
    folders = (story.folder / "savepoints", story.folder / "savepoints.control")
    found = [path for folder in folders for path in folder.rglob("*.json")]
    assert found
    return found


@pytest.mark.storm
@pytest.mark.parametrize("story", [("append",)], indirect=True, ids=["append"])
def test_what_a_sink_repeats_that_appends(story: BatchStory) -> None:
    savepoint = story.saved_and_killed()
    for choice in ("refuse", "rollback"):
        said = story.refused(savepoint, "--sink", choice)
        assert "rows of batches 2 to 4 are repeated" in said and "skipped" not in said
    story.files_per_batch(3)
    story.feed(2)
    story.restore(savepoint, "--sink", "accept")
    story.go_on(3)
    assert story.rows() == story.expected() + story.keys_of(range(2, 5))


@pytest.mark.storm
@pytest.mark.parametrize("story", [("idempotent-by-key",)], indirect=True, ids=["by-key"])
def test_what_a_sink_overwrites_by_key_is_right(story: BatchStory) -> None:
    """No choice is asked for: the declaration made it, and the report says so."""
    savepoint = story.saved_and_killed()
    story.files_per_batch(3)
    story.feed(2)
    assert "idempotent by key" in story.restore(savepoint)["sink_effect"]
    story.go_on(3)
    assert story.rows() == story.expected()
