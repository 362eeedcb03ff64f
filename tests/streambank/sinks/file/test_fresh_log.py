from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from streambank.checkpoint.compactible import LogName
from streambank.core.errors import ConflictError
from streambank.core.lines import pieces
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.file.fresh_log import begin_output, empty_log, in_the_way
from streambank.sinks.file.position import SavedLog, read_saved_log
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.refuses import refuses
from tests.support.storage.faulty_store import Fault, FaultyStore, SimulatedCrash


def saved_log(store: Store, batches: int, *, compact_every: int = 10, first: int = 0) -> SavedLog:
    writer = FileSinkWriter(store, compact_every=compact_every)
    for batch in range(first, batches):
        writer.write(batch, [{"batch": batch}])
    captured = FileSinkCapture(store.uri, store).capture(batches - 1)
    content = {info.path: partial(pieces, store.read(info.path)) for info in captured.files}
    return read_saved_log(captured.record, content, store.uri)


@pytest.fixture
def old(tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "out", fsync=False)


@pytest.fixture
def new(tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "new", fsync=False)


def test_the_new_log_has_the_names_of_the_old_one_and_no_file(old: Store, new: Store) -> None:
    saved = saved_log(old, 7, compact_every=5)
    begun = begin_output(saved, new, old.uri)
    assert begun.log_written == ("4.compact", "5", "6")
    assert {info.path: new.read(info.path) for info in new.list()} == {
        f"_spark_metadata/{name}": b"v1" for name in ("4.compact", "5", "6")
    }
    assert (begun.path, begun.instead_of, begun.batch) == (new.uri, old.uri, 6)


def test_a_query_goes_on_over_the_next_compactions_and_can_be_saved_and_taken_back(
    old: Store, new: Store
) -> None:
    saved = saved_log(old, 7, compact_every=5)
    begin_output(saved, new, old.uri)
    writer = FileSinkWriter(new, compact_every=5)
    for batch in range(7, 18):
        writer.write(batch, [{"batch": batch}])
    assert [row["batch"] for row in writer.read()] == list(range(7, 18))
    captured = FileSinkCapture(new.uri, new).capture(17)
    assert captured.record["data_files"] == 11


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        (7, [LogName(batch) for batch in range(7)]),
        (23, [LogName(19, compact=True), LogName(20), LogName(21), LogName(22)]),
        (30, [LogName(29, compact=True)]),
    ],
)
def test_an_old_log_that_began_late_is_made_whole_by_sparks_default_interval(
    old: Store, batches: int, expected: list[LogName]
) -> None:
    saved = saved_log(old, batches, compact_every=1000, first=batches - 2)
    assert sorted(empty_log(saved)) == expected


def test_whatever_else_lies_in_the_directory_is_in_the_way(old: Store, new: Store) -> None:
    saved = saved_log(old, 3)
    assert in_the_way(saved, new) == ()
    begin_output(saved, new, old.uri)
    assert in_the_way(saved, new) == ()
    new.write("part-0.json", b"{}")
    new.write("_spark_metadata/1", b"v1\n{}")
    new.write("_spark_metadata/.2.crc", b"crc\0")
    assert in_the_way(saved, new) == ("_spark_metadata/.2.crc", "_spark_metadata/1", "part-0.json")
    with refuses(ConflictError, "sink-moved"):
        begin_output(saved, new, old.uri)
    assert new.read("_spark_metadata/1") == b"v1\n{}"


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_second_try_goes_on_where_the_first_was_cut_off(old: Store, new: Store, call: int) -> None:
    saved = saved_log(old, 3)
    faulty = FaultyStore(new, Fault("crash-before", call=call, operations=frozenset({"write"})))
    with pytest.raises(SimulatedCrash):
        begin_output(saved, faulty, old.uri)
    assert len(list(new.list())) == call - 1
    assert in_the_way(saved, new) == ()
    begin_output(saved, new, old.uri)
    assert sorted(info.path for info in new.list()) == [f"_spark_metadata/{batch}" for batch in range(3)]
