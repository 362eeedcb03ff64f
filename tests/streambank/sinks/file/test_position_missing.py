"""Data files of a savepoint that are gone: everything else that is wrong is said as well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.core.errors import RefusedError
from streambank.sinks.file.position import FileSinkStanding
from streambank.sinks.file.rollback import roll_back, stand
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from tests.streambank.sinks.file.test_capture import batches_of, make_sink, saved_at
from tests.support.checkpoint.file_sink import FileSinkWriter

FIRST = "k=a b/part-00000-a0000-c000.json"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "out", fsync=False)


def go_on(writer: FileSinkWriter, first: int, until: int) -> None:
    for batch in range(first, until):
        writer.write(batch, [{"batch": batch}])


def forget(store: Store, writer: FileSinkWriter, until: int) -> None:
    """What Spark does with the option `retention` when it compacts, and people with the files then."""
    entry = f"_spark_metadata/{max(store.names('_spark_metadata'), key=lambda one: one.endswith('.compact'))}"
    lines = store.read(entry).decode().split("\n")
    gone = [one for one in lines[1:] if int(one.split("-a")[1][:4]) < until]
    store.write(entry, "\n".join(one for one in lines if one not in gone).encode())
    for one in gone:
        store.delete(writer._key(json.loads(one)))


class TestEveryReason:
    def test_a_file_that_is_gone_does_not_hide_that_batches_will_be_skipped(self, store: Store) -> None:
        writer = make_sink(store, 3)
        saved = saved_at(store, 2)
        go_on(writer, 3, 5)
        store.delete(FIRST)
        standing = stand(saved, store, store.uri)
        assert standing.can_roll_back and not standing.safe
        assert "skip what the query writes again, and lose rows of 2 files with 2 rows" in standing.sentence()
        assert f"lacks 1 data file of batches up to 2 ({FIRST})." in standing.sentence()
        assert standing.to_dict()["says"] == standing.sentence()
        with pytest.raises(RefusedError, match=r"would skip .* lacks 1 data file") as caught:
            roll_back(saved, store, store.uri, "b000002-x")
        assert "rollback-accept" in caught.value.hint
        assert writer.latest() == 4
        report = roll_back(saved, store, store.uri, "b000002-x", accept_missing=True)
        assert (report.files_aside, writer.latest()) == (2, 2)
        after = stand(saved, store, store.uri)
        assert (after.standing, after.missing, after.nothing_later) == ("even", 1, True)
        assert not roll_back(saved, store, store.uri, "b000002-x", accept_missing=True).changed

    def test_a_damaged_log_does_not_hide_that_files_are_gone(self, store: Store) -> None:
        make_sink(store, 3)
        saved = saved_at(store, 2)
        store.delete(FIRST)
        store.write("_spark_metadata/2", b"v1\n{")
        said = stand(saved, store, store.uri).sentence()
        assert "its log cannot be read" in said and "lacks 1 data file" in said

    def test_a_gap_is_said_besides(self, store: Store) -> None:
        writer = make_sink(store, 13)
        saved = saved_at(store, 12)
        writer.write(13, [{"batch": 13}])
        store.delete("_spark_metadata/9.compact")
        said = stand(saved, store, store.uri).sentence()
        assert "is at batch 13" in said and "9.compact" in said

    @pytest.mark.parametrize(
        ("standing", "said"),
        [
            ({"later": {"a": 1}, "later_rows": 1}, "lose rows of 1 file with 1 row."),
            ({"later": {"a": 1, "b": 1}}, "lose rows of 2 files."),
            ({"later": {"a": 1}, "later_rows": 0}, "and lose its rows."),
            ({}, "and lose its rows."),
            ({"later_outside": 1}, "lose rows of 1 file. 1 later file outside of it cannot be set aside."),
            ({"missing": 2, "such_as": ("a",)}, "lacks 2 data files of batches up to 2 (a, ...)."),
            ({"aside": {"a": "b"}}, "1 data file of batches up to 2 is set aside in the file sink /out."),
            ({"unfinished": True, "missing": 1, "such_as": ("a",)}, "not finished. The file sink /out is at"),
        ],
    )
    def test_numbers(self, standing: dict[str, object], said: str) -> None:
        assert said in FileSinkStanding("/out", "ahead", 2, 3, **standing).sentence()  # type: ignore[arg-type]


class TestWhatTheLogHasForgotten:
    def test_it_is_not_missing_and_a_rollback_does_not_name_it_again(self, store: Store) -> None:
        writer = make_sink(store, 5)
        rows = writer.read()
        saved = saved_at(store, 4)
        go_on(writer, 5, 12)
        forget(store, writer, 2)
        standing = stand(saved, store, store.uri)
        assert (standing.standing, standing.missing, standing.forgotten) == ("ahead", 0, 2)
        assert standing.to_dict()["forgotten_files"] == 2
        roll_back(saved, store, store.uri, "b000004-x")
        assert batches_of(writer.read()) == [one["batch"] for one in rows if one["batch"] not in (0, 1)]
        again = stand(saved, store, store.uri)
        assert again.safe and again.forgotten == 2
        for batch in (5, 6):
            writer.write(batch, [{"batch": batch, "again": True}])
        standing = stand(saved, store, store.uri)
        assert (standing.standing, standing.missing) == ("ahead", 0)

    def test_all_of_it_proves_nothing(self, store: Store) -> None:
        """The output may have been deleted, and begun again; a person may accept that."""
        writer = make_sink(store, 2)
        saved = saved_at(store, 1)
        go_on(writer, 2, 12)
        forget(store, writer, 5)
        standing = stand(saved, store, store.uri)
        assert (standing.missing, standing.forgotten) == (2, 0)
        assert "lacks 2 data files" in standing.sentence()
        with pytest.raises(RefusedError):
            roll_back(saved, store, store.uri, "b000001-x")
        report = roll_back(saved, store, store.uri, "b000001-x", accept_missing=True)
        assert (report.files_aside, report.files_forgotten) == (7, 2)
        assert writer.read() == [], "readers find what the log names"

    def test_an_output_that_was_deleted_and_begun_again(self, store: Store) -> None:
        make_sink(store, 6)
        saved = saved_at(store, 5)
        for one in list(store.list()):
            store.delete(one.path)
        writer = FileSinkWriter(store, timeline="b")
        go_on(writer, 0, 12)
        standing = stand(saved, store, store.uri)
        assert (standing.missing, standing.forgotten) == (6, 0)
        with pytest.raises(RefusedError):
            roll_back(saved, store, store.uri, "b000005-x")
        assert len(writer.read()) == 12

    def test_a_rollback_says_what_it_leaves_out(self, store: Store) -> None:
        writer = make_sink(store, 5)
        saved = saved_at(store, 4)
        go_on(writer, 5, 12)
        forget(store, writer, 2)
        assert "2 data files of batches up to 4 are gone" in stand(saved, store, store.uri).sentence()
        assert roll_back(saved, store, store.uri, "b000004-x").files_forgotten == 2
        assert stand(saved, store, store.uri).sentence() == ""

    def test_what_is_gone_and_still_named_is_missing(self, store: Store) -> None:
        writer = make_sink(store, 5)
        saved = saved_at(store, 4)
        go_on(writer, 5, 12)
        forget(store, writer, 2)
        store.delete("k=a b/part-00000-a0003-c000.json")
        assert (stand(saved, store, store.uri).missing, stand(saved, store, store.uri).forgotten) == (1, 2)

    def test_another_timeline_has_forgotten_nothing(self, store: Store) -> None:
        """A rollback to batch 2 took batches 3 to 5 out of the log; what it had set aside was deleted."""
        writer = make_sink(store, 3)
        early = saved_at(store, 2)
        go_on(writer, 3, 6)
        saved = saved_at(store, 5)
        roll_back(early, store, store.uri, "b000002-x")
        for one in list(store.list("_streambank_aside")):
            store.delete(one.path)
        other = FileSinkWriter(store, timeline="b")
        go_on(other, 3, 12)
        standing = stand(saved, store, store.uri)
        assert (standing.missing, standing.forgotten) == (3, 0)

    def test_an_output_that_was_emptied_has_forgotten_nothing(self, store: Store) -> None:
        make_sink(store, 3)
        saved = saved_at(store, 2)
        for one in list(store.list()):
            store.delete(one.path)
        writer = FileSinkWriter(store, compact_every=100)
        go_on(writer, 3, 5)
        standing = stand(saved, store, store.uri)
        assert (standing.missing, standing.forgotten) == (3, 0)
