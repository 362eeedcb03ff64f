"""How far a query's output is in event time, by checkpoints of real Spark versions and by logs in motion."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from streambank.checkpoint.logs import parse_commit
from streambank.checkpoint.watermark import CommittedWatermark, committed_watermark
from streambank.core.errors import ConflictError, FormatError, NotFoundError
from streambank.storage.memory import MemoryStore
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import NAMES, checkpoint, expected
from tests.support.refuses import refuses

WINDOWS = [name for name in NAMES if name.endswith("-window")]
ALL = 1000
WINDOW = timedelta(minutes=20)  # tests/data/checkpoints/make.py


def until(name: str, batch: int) -> MemoryStore:
    """A recorded checkpoint as it was when a batch had been committed and the next one was being planned."""
    store = MemoryStore()
    for path, data in checkpoint(name).files.items():
        log, _, entry = path.partition("/")
        last = {"commits": batch, "offsets": batch + 1}.get(log)
        if last is not None and entry.isdecimal() and int(entry) <= last:
            store.write(path, data)
    return store


def ends_of_windows(name: str, batches: range) -> list[datetime]:
    """The ends of the windows that some batches gave."""
    return [
        datetime.fromisoformat(row["w"]).replace(tzinfo=UTC) + WINDOW
        for batch, rows in expected(name).items()
        if batch in batches
        for row in rows
    ]


def test_there_are_recordings_of_several_versions() -> None:
    assert {name.partition("/")[0] for name in WINDOWS} == {"3.5.9", "4.0.5", "4.3.0"}


@pytest.mark.parametrize("name", WINDOWS)
def test_what_the_watermark_has_passed_is_written_and_nothing_of_it_comes_later(name: str) -> None:
    passed = 0
    for batch in expected(name):
        found = committed_watermark(until(name, batch))
        assert found is not None and found.batch == batch
        if found.moment is not None:
            moment = found.moment
            assert all(end > moment for end in ends_of_windows(name, range(batch + 1, ALL)))
            assert all(end <= moment for end in ends_of_windows(name, range(batch + 1)))
            passed += 1
    assert passed > 2


@pytest.mark.parametrize("name", WINDOWS)
def test_the_other_two_numbers_of_a_checkpoint_would_come_too_soon(name: str) -> None:
    """The control: by what the next batch will run with, windows are complete that it has yet to write."""
    early = 0
    for batch in expected(name):
        entry = f"commits/{batch}"
        coming = parse_commit(checkpoint(name).files[entry], entry).next_watermark_ms
        later = ends_of_windows(name, range(batch + 1, ALL))
        early += any(end.timestamp() * 1000 <= coming for end in later)
    assert early > 0


def test_before_the_first_commit_nothing_is_said() -> None:
    store = MemoryStore()
    assert committed_watermark(store) is None
    LiveCheckpoint(store).plan()
    assert committed_watermark(store) is None


def test_a_batch_that_still_runs_does_not_count() -> None:
    query = LiveCheckpoint(MemoryStore())
    query.run(6).plan()

    found = committed_watermark(query.store)

    assert found == CommittedWatermark(5, 5000)
    assert found.moment == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)


def test_a_query_without_a_watermark_has_none() -> None:
    query = LiveCheckpoint(MemoryStore()).run(1)  # batch 0 runs with the watermark 0

    assert committed_watermark(query.store) == CommittedWatermark(0, None)


def test_a_watermark_beyond_any_calendar_is_no_failure() -> None:
    query = LiveCheckpoint(MemoryStore()).run(1)
    head = f'v1\n{{"batchWatermarkMs":{10**17},"batchTimestampMs":1}}\n{{"logOffset":0}}'
    query.store.write("offsets/0", head.encode())

    found = committed_watermark(query.store)

    assert found is not None
    assert (found.watermark_ms, found.moment) == (10**17, None)


class Moving(MemoryStore):
    """Each time the commits have been listed the query goes on, and deletes what was listed."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0
        self.query = LiveCheckpoint(self).run(3)

    def names(self, prefix: str = "") -> Sequence[str]:
        found = super().names(prefix)
        if prefix == "commits" and self.times:
            self.times -= 1
            listed = self.query.last
            self.query.run(3)
            self.delete(f"commits/{listed}")
            self.delete(f"offsets/{listed}")
        return found


def test_a_batch_that_went_by_while_it_was_read_is_no_failure() -> None:
    store = Moving()
    store.times = 2

    assert committed_watermark(store) == CommittedWatermark(8, 8000)
    assert store.times == 0


def test_a_query_that_is_always_faster_is_asked_again_later() -> None:
    store = Moving()
    store.times = 100

    with pytest.raises(ConflictError) as caught:
        committed_watermark(store)

    assert (caught.value.code, caught.value.retryable) == ("checkpoint-moved", True)


def test_an_entry_that_is_lost_is_named() -> None:
    store = LiveCheckpoint(MemoryStore()).run(3).store
    store.delete("offsets/2")

    with refuses(NotFoundError, "missing-log-entry", match="commits/2 and no offsets/2"):
        committed_watermark(store)


def test_an_entry_that_is_cut_off_is_named() -> None:
    store = LiveCheckpoint(MemoryStore()).run(3).store
    store.write("offsets/2", b'v1\n{"batchWaterm')

    with pytest.raises(FormatError, match="offsets/2"):
        committed_watermark(store)
