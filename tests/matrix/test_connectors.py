"""Jobs that write to Delta and Iceberg tables by the connectors of these formats, on the Spark of each.

Spark names a Delta table itself; an Iceberg table is declared with its catalog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.declaration.load import load_jobs
from tests.support.cli import streambank
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.drill_story import drill
from tests.support.jobs.release_story import KEYS, NAME
from tests.support.jobs.table_story import DELTA, ICEBERG, TableStory, table_story
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1800)]
FORMATS = {one.name: one for one in (DELTA, ICEBERG)}


@pytest.fixture
def story(tmp_path: Path, kind: str) -> Iterator[TableStory]:
    with table_story(tmp_path, FORMATS[kind]) as found:
        try:
            yield found
        finally:
            end_drivers(load_jobs(found.jobs).job(NAME).records())


def saved_in_a_batch(story: TableStory) -> dict[str, Any]:
    """A savepoint that is taken while a batch runs."""
    story.feed()
    story.until_busy()
    taken: dict[str, Any] = story.document("savepoint")
    return taken


def three_batches_later(story: TableStory) -> tuple[str, int]:
    """A savepoint and its batch, and a driver whose query went on for three batches since, and is idle."""
    story.feed(2)
    story.do("start")
    story.until_written()
    story.nap(0.05)
    taken = saved_in_a_batch(story)
    assert not taken["warnings"], "the table is guarded"
    savepoint, batch = taken["savepoint"], int(taken["batch"])
    story.nap(0)
    story.until_batch(batch + 1)
    for number in (batch + 2, batch + 3):
        story.feed()
        story.until_batch(number)
    return savepoint, batch


def new_rows(story: TableStory, batch: int) -> None:
    """Start the job, whose first batch takes all that is there, and let rows arrive in three more batches."""
    story.files_per_batch(10)
    story.do("start")
    for number in range(batch + 1, batch + 4):
        story.until_batch(number)
        story.feed()
    story.until_written()
    story.do("stop")


@pytest.mark.parametrize("kind", FORMATS)
def test_the_story_of_a_table(story: TableStory) -> None:
    """Savepoints in batches, kill -9, restores, boundary stop: each row once."""
    story.feed(2)
    story.do("start")
    story.until_written()
    story.nap(0.05)
    assert not any(saved_in_a_batch(story)["warnings"] for _ in range(3)), "the table is guarded"
    story.until_written()
    story.nap(0.2)
    story.feed(3)
    story.until_busy()
    story.kill()
    dead = story.document("savepoint")
    # The rows of the batch that was under way may be in the table, and may not.
    assert story.restore(dead["savepoint"], "--sink", "rollback")["generation"] == 2
    story.nap(0)
    story.do("start")
    story.until_written()
    story.nap(0.1)
    story.feed()
    story.until_busy()
    assert story.document("stop")["how"] == "boundary", "a batch of two seconds was let finish"
    assert story.rows() == story.expected()

    story.document("savepoint")
    assert story.restore("latest")["generation"] == 3, "nothing was written after it"
    story.nap(0)
    story.feed(2)
    story.do("start")
    story.until_written()
    story.do("stop", "--drain")
    assert story.rows() == story.expected()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_that_is_rolled_back_has_each_row_once(story: TableStory) -> None:
    """Three batches after the savepoint, kill -9, a compaction, and a restore that goes on with new rows."""
    savepoint, batch = three_batches_later(story)
    story.kill()
    before = story.rows()
    assert before == story.expected()
    story.compact()
    said = story.refused(savepoint)
    assert story.kind.sink in said and f"batches {batch + 1} to {batch + 3}" in said
    assert "skipped for good" in said and "--sink rollback" in said
    assert story.rows() == before, "a refusal changes nothing"
    assert story.restore(savepoint, "--sink", "rollback")["generation"] == 2
    assert story.rows() == before - Counter(dict.fromkeys(story.keys_of_last(3), 1))
    new_rows(story, batch)
    assert story.rows() == story.expected()


@pytest.mark.parametrize("kind", ["iceberg"])
def test_what_is_said_of_the_loss_is_what_happens(story: TableStory) -> None:
    """To the row, where a restore is accepted: the batches that the table takes for done are skipped."""
    savepoint, batch = three_batches_later(story)
    story.do("stop")
    assert story.restore(savepoint, "--sink", "accept")["generation"] == 2
    story.files_per_batch(10)  # the first batch takes all that was there: its rows are in the table already
    story.do("start")
    lost = Counter[str]()
    for number in (batch + 1, batch + 2):
        story.until_batch(number)
        lost += story.coming()
        story.feed()
    story.until_batch(batch + 3)
    story.feed()
    story.until_batch(batch + 4)
    story.do("stop")
    assert story.rows() == story.expected() - lost
    assert lost.total() == 2 * KEYS


@pytest.mark.parametrize("kind", ["delta"])
def test_a_loss_that_state_does_not_survive_cannot_be_accepted(story: TableStory) -> None:
    """Delta's sink does not compute what it skips, so the query would fail on state that was not written."""
    savepoint, _ = three_batches_later(story)
    story.do("stop")
    before = story.rows()
    said = story.refused(savepoint, "--sink", "accept")
    assert "CANNOT_LOAD_STATE_STORE" in said and "--sink rollback" in said
    assert story.rows() == before == story.expected()


@pytest.mark.parametrize("kind", ["iceberg"])
def test_a_table_that_was_rolled_back_by_hand_has_each_row_once(story: TableStory) -> None:
    """Back to the snapshot of the savepoint's batch by Iceberg's own procedure: nothing is left to decide."""
    savepoint, batch = three_batches_later(story)
    story.do("stop")
    (snapshot,) = story.reader.sql(
        f"SELECT snapshot_id FROM {story.table}.snapshots "
        f"WHERE summary['spark.sql.streaming.epochId'] = '{batch}'"
    )
    story.reader.sql(f"CALL lake.system.rollback_to_snapshot('db.orders', {snapshot['snapshot_id']})")
    story.restore(savepoint)
    new_rows(story, batch)
    assert story.rows() == story.expected()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_drill_and_a_copy_write_beside_the_table(story: TableStory) -> None:
    """Both process batches of the live query again; the copy goes on with rows that arrive, each once.

    A Delta table at a path stays one on the copy; what goes to a table by its name becomes Parquet.
    """
    story.feed(2)
    story.do("start")
    story.until_written()
    savepoint = story.document("savepoint")
    assert not savepoint["warnings"], "the table is guarded"
    story.feed(3)
    story.until_written()

    report = drill(story)
    (query,) = report["queries"]
    assert (report["passed"], len(query["batches"])) == (True, 3), report
    assert query["state_equal"] is True
    assert story.rows() == story.expected(), "a drill writes nothing into the table"

    live = str(story.folder / "lake") if story.kind is DELTA else story.table
    staging = story.folder / "staging"
    with story.jobs.open("a", encoding="utf-8") as file:
        file.write(
            f'[jobs.{NAME}.copies.staging]\ncheckpoint = "staging-checkpoint"\n'
            f'outputs = {{ "{live}" = "{staging}" }}\n'
        )
    copy = f"{NAME}@staging"
    made = streambank("fork", NAME, "staging", "--jobs", story.jobs, "--json")
    assert made.code == 0, made
    (place,) = made.document["queries"][0]["outputs"].values()
    kept = f"delta.`{place}`" if story.kind is DELTA else f"parquet.`{place}/batch=*`"
    try:
        assert streambank("job", "start", copy, "--jobs", story.jobs).code == 0
        story.feed()
        story.until_written()
        after = Counter(story.keys_of_last(4))

        def written() -> Counter[str]:
            return Counter(str(row["k"]) for row in story.reader.sql(f"SELECT k FROM {kept}"))

        wait_for("all rows since the savepoint on the copy", lambda: written().keys() >= after.keys())
        assert written() == after, "each row since the savepoint once"
    finally:
        streambank("job", "stop", copy, "--jobs", story.jobs)
    assert story.rows() == story.expected(), "the copy writes nothing into the table"
    story.feed()
    story.until_written()
    story.do("stop", "--drain")
    assert story.rows() == story.expected()
