"""Which data files a batch has written, by the file sink's log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.checkpoint.compactible import LogName
from streambank.core.errors import NotFoundError, StorageError
from streambank.sinks.file import position
from streambank.sinks.file.log import DataFile, Roots, list_log
from streambank.sinks.file.named import NamedFiles, added_by
from streambank.storage import open_store
from streambank.storage.store import CORRUPT, TRANSFER_ATTEMPTS, Store
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.refuses import refuses


@pytest.fixture
def sink(tmp_path: Path) -> Store:
    """Batches 0 to 4; entry 2 is compacted, and those before it are there still."""
    store = open_store(str(tmp_path))
    writer = FileSinkWriter(store, compact_every=3, keep_old=True)
    for batch in range(5):
        writer.write(batch, [{"n": batch}])
    assert store.exists("_spark_metadata/2.compact")
    return store


def keys(sink: Store, batch: int) -> list[str | None]:
    return [file.key for file in added_by(sink, batch)]


def test_an_entry_and_a_compacted_one_name_the_files_of_their_batch(sink: Store) -> None:
    assert [keys(sink, batch) for batch in range(5)] == [
        [f"part-00000-a{batch:04d}-c000.json"] for batch in range(5)
    ]


def test_a_compacted_entry_alone_does_not_tell_the_files_of_its_batch(sink: Store) -> None:
    sink.delete("_spark_metadata/1")
    with refuses(NotFoundError, "missing-log-entry"):
        added_by(sink, 2)
    assert keys(sink, 3) == ["part-00000-a0003-c000.json"]


def test_a_batch_without_an_entry_is_not_there(sink: Store) -> None:
    with pytest.raises(NotFoundError):
        added_by(sink, 5)


def test_an_entry_that_nothing_needs_is_read_again_where_it_was_damaged_on_its_way(
    sink: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where it is damaged each time, that is said."""
    opened = []

    def damaged(store: Store, name: LogName, roots: Roots) -> Iterator[DataFile]:
        opened.append(name)
        yield from ()
        raise StorageError("It was damaged.", code=CORRUPT, hint="Try again.")

    monkeypatch.setattr(position, "read_entry", damaged)
    roots = Roots(sink.uri)
    with pytest.raises(StorageError, match="damaged"):
        position._read_log(NamedFiles(), sink, [LogName(0), *list_log(sink)], 2, roots, None)
    assert len(opened) == TRANSFER_ATTEMPTS
