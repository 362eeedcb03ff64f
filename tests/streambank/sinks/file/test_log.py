"""Which data files a batch has written, by the file sink's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import NotFoundError
from streambank.sinks.file.log import added_by
from streambank.storage import open_store
from streambank.storage.store import Store
from tests.support.checkpoint.file_sink import FileSinkWriter


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
    with pytest.raises(NotFoundError) as refused:
        added_by(sink, 2)
    assert refused.value.code == "missing-log-entry"
    assert keys(sink, 3) == ["part-00000-a0003-c000.json"]


def test_a_batch_without_an_entry_is_not_there(sink: Store) -> None:
    with pytest.raises(NotFoundError):
        added_by(sink, 5)
