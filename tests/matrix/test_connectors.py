"""Jobs that write to Delta and Iceberg tables by the connectors of these formats, on the Spark of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.declaration.declaration import load_jobs
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.release_story import KEYS, NAME
from tests.support.jobs.table_story import DELTA, ICEBERG, TableStory, table_story

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


def is_named(story: TableStory, warnings: list[str]) -> bool:
    """Whether a savepoint says of the table that a restore cannot roll it back."""
    (said,) = warnings
    return f"The sink {story.kind.sink}" in said and "is not guarded" in said and "--sink accept" in said


def three_batches_later(story: TableStory) -> tuple[str, int]:
    """A savepoint and its batch, and a stopped job whose query went on for three batches since."""
    story.feed(2)
    story.do("start")
    story.until_written()
    story.nap(0.05)
    taken = saved_in_a_batch(story)
    assert is_named(story, taken["warnings"])
    savepoint, batch = taken["savepoint"], int(taken["batch"])
    story.nap(0)
    story.until_batch(batch + 1)
    for number in (batch + 2, batch + 3):
        story.feed()
        story.until_batch(number)
    story.do("stop")
    assert story.rows() == story.expected()
    return savepoint, batch


@pytest.mark.parametrize("kind", FORMATS)
def test_the_story_of_a_table(story: TableStory) -> None:
    """Savepoints in batches, kill -9, boundary stop, restore of the newest batch: each row once."""
    story.feed(2)
    story.do("start")
    story.until_written()
    story.nap(0.05)
    first, *others = [saved_in_a_batch(story) for _ in range(3)]
    assert is_named(story, first["warnings"])
    assert not any(one["warnings"] for one in others), "it says so once"
    story.until_written()
    story.nap(0.2)
    story.feed(3)
    story.until_busy()
    story.kill()
    dead = story.document("savepoint")
    said = story.refused(dead["savepoint"])
    assert story.kind.sink in said
    assert f"Batch {dead['batch'] + 1} was begun" in said, "its rows may be in the table"
    story.nap(0)
    story.do("start")
    story.until_written()
    story.nap(0.1)
    story.feed()
    story.until_busy()
    assert story.document("stop")["how"] == "boundary", "a batch of two seconds was let finish"
    assert story.rows() == story.expected()

    story.document("savepoint")
    assert story.restore("latest")["generation"] == 2, "nothing was written after it"
    story.nap(0)
    story.feed(2)
    story.do("start")
    story.until_written()
    story.do("stop", "--drain")
    assert story.rows() == story.expected()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_restore_that_would_lose_rows_of_a_table_is_refused(story: TableStory) -> None:
    """What is said of the loss is what happens to a restore that is accepted, to the row."""
    savepoint, batch = three_batches_later(story)
    later = f"batches {batch + 1} to {batch + 3}"
    for choice in ("refuse", "rollback"):
        said = story.refused(savepoint, "--sink", choice)
        assert story.kind.sink in said and later in said and "skip" in said
    assert story.rows() == story.expected(), "a refusal changes nothing"

    before = story.rows()
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
    if not story.kind.computes_skipped:
        story.until_failed("CANNOT_LOAD_STATE_STORE")
        assert story.rows() == before
        return
    story.until_batch(batch + 4)
    story.do("stop")
    assert story.rows() == story.expected() - lost
    assert lost.total() == 2 * KEYS


@pytest.mark.parametrize("kind", ["iceberg"])
def test_a_table_that_was_rolled_back_by_hand_has_each_row_once(story: TableStory) -> None:
    """As docs/howto/sinks.md says: back to the snapshot of the savepoint's batch, then accept."""
    savepoint, batch = three_batches_later(story)
    (snapshot,) = story.reader.sql(
        f"SELECT snapshot_id FROM {story.table}.snapshots "
        f"WHERE summary['spark.sql.streaming.epochId'] = '{batch}'"
    )
    story.reader.sql(f"CALL lake.system.rollback_to_snapshot('db.orders', {snapshot['snapshot_id']})")
    story.restore(savepoint, "--sink", "accept")
    story.files_per_batch(10)
    story.do("start")
    for number in range(batch + 1, batch + 4):
        story.until_batch(number)
        story.feed()
    story.until_written()
    story.do("stop")
    assert story.rows() == story.expected()
