from __future__ import annotations

import pytest

from streambank.checkpoint.files import MAX_ENTRY_BYTES, CheckpointFiles, NamesOnly
from streambank.checkpoint.state.changelog import UnreadableLineageError
from streambank.core.errors import ConflictError, FormatError, NotFoundError
from streambank.storage import FileInfo
from tests.support.checkpoint.recorded import checkpoint
from tests.support.refuses import refuses

RECORDED = checkpoint("4.3.0/rocksdb-window")


def test_each_file_is_read_once() -> None:
    made = RECORDED.having({})
    files = CheckpointFiles(made.listing(), made.read)
    newest = RECORDED.batches()[-1]
    assert files.offsets(f"offsets/{newest}") is files.offsets(f"offsets/{newest}")
    assert files.commit(f"commits/{newest}") is files.commit(f"commits/{newest}")
    assert files.query_id() == files.query_id()
    assert made.reads == [f"offsets/{newest}", f"commits/{newest}", "metadata"]


def test_a_damaged_file_is_read_once_too() -> None:
    made = RECORDED.having({"offsets/1": b"v1"})
    files = CheckpointFiles(made.listing(), made.read)
    errors = []
    for _ in range(2):
        with pytest.raises(FormatError) as caught:
            files.offsets("offsets/1")
        errors.append(caught.value)
    assert errors[0] is errors[1]
    assert made.reads == ["offsets/1"]


def test_a_file_that_went_away_since_it_was_listed_is_no_missing_file() -> None:
    files = CheckpointFiles(RECORDED.listing(), RECORDED.but("offsets/1").read)
    with refuses(ConflictError, "checkpoint-moved"):
        files.offsets("offsets/1")


def test_a_query_without_its_id_is_named() -> None:
    made = RECORDED.but("metadata")
    with refuses(NotFoundError, "missing-log-entry"):
        CheckpointFiles(made.listing(), made.read).query_id()


def test_what_cannot_be_a_log_entry_is_not_read() -> None:
    made = RECORDED.having({})
    huge = {"offsets/1": FileInfo("offsets/1", MAX_ENTRY_BYTES + 1, 0, "1")}
    with pytest.raises(FormatError, match="too large"):
        CheckpointFiles(made.listing() | huge, made.read).offsets("offsets/1")
    assert made.reads == []


def test_names_alone_open_no_state_file() -> None:
    made = RECORDED.having({})
    files = NamesOnly(made.listing(), made.read)
    (path, *_) = [path for path in made.files if path.endswith(".zip")]
    assert files.zip_metadata(path).ssts == ()
    with pytest.raises(UnreadableLineageError):
        files.lineage("state/0/0/1.changelog")
    assert made.reads == []
    assert files.query_id(), "control: logs are read"
