from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest

from streambank.core.errors import (
    ConflictError,
    FormatError,
    InputError,
    IntegrityError,
    NotFoundError,
    RefusedError,
)
from streambank.core.lines import pieces
from streambank.sinks.file import rollback
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.file.log import Roots, parse_entry, relocate_entry
from streambank.sinks.file.position import SavedLog, read_saved_log
from streambank.sinks.file.rollback import roll_back, stand
from streambank.sinks.unguarded import UnguardedSink, sink_from_description, sinks_from_descriptions
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.refuses import refuses
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import Fault, FaultyStore, SimulatedCrash


def make_sink(store: Store, batches: int, **options: object) -> FileSinkWriter:
    writer = FileSinkWriter(store, **options)  # type: ignore[arg-type]  # options are the writer's own
    for batch in range(batches):
        writer.write(batch, [{"batch": batch, "row": row} for row in range(batch + 1)], folder="k=a b")
    return writer


def saved_at(store: Store, batch: int, *, now: str | None = None) -> SavedLog:
    captured = FileSinkCapture(store.uri, store).capture(batch)
    content = {info.path: partial(pieces, store.read(info.path)) for info in captured.files}
    return read_saved_log(captured.record, content, now or store.uri)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return (
        LocalStore(tmp_path / "out", fsync=False)
        if request.param == "local"
        else open_store("memory://" + tmp_path.name)
    )


def batches_of(rows: list[dict[str, object]]) -> list[object]:
    return [row["batch"] for row in rows]


class TestCapture:
    def test_names_the_last_compacted_entry_and_each_one_after_it(self, store: Store) -> None:
        make_sink(store, 14)
        captured = FileSinkCapture(store.uri, store).capture(12)
        assert [info.path for info in captured.files] == [
            "_spark_metadata/9.compact",
            "_spark_metadata/10",
            "_spark_metadata/11",
            "_spark_metadata/12",
        ]
        assert captured.record["data_files"] == 13
        assert captured.record["latest_batch"] == 13
        assert captured.record["guarded"] is True

    def test_a_directory_that_is_behind_is_not_the_sink_of_the_query(self, store: Store) -> None:
        make_sink(store, 3)
        with refuses(InputError, "not-this-sink", match="ends at batch 2"):
            FileSinkCapture(store.uri, store).capture(5)

    def test_a_directory_without_a_log_is_not_a_file_sink(self, store: Store) -> None:
        store.write("part-0.json", b"{}\n")
        with pytest.raises(InputError, match="is not there"):
            FileSinkCapture(store.uri, store).capture(0)

    def test_entries_compacted_away_are_said_to_be_gone(self, store: Store) -> None:
        make_sink(store, 12)
        with refuses(NotFoundError, "sink-log-not-retained"):
            FileSinkCapture(store.uri, store).capture(7)

    def test_a_half_written_entry_is_a_format_error(self, store: Store) -> None:
        make_sink(store, 3)
        store.write("_spark_metadata/2", b'v1\n{"path":"file:///x","si')
        with pytest.raises(FormatError, match="_spark_metadata/2"):
            FileSinkCapture(store.uri, store).capture(2)

    def test_a_log_that_deletes_is_not_understood(self) -> None:
        entry = json.dumps({"path": "file:///out/a", "size": 1, "action": "delete"})
        with refuses(FormatError, "unknown-sink-action", match="delete"):
            list(parse_entry([f"v1\n{entry}".encode()], "7", Roots("file:///out")))

    def test_other_sinks_are_named_as_not_guarded(self, tmp_path: Path) -> None:
        sink = sink_from_description("ForeachBatchSink")
        assert isinstance(sink, UnguardedSink)
        assert sink.capture(3).record == {
            "kind": "ForeachBatchSink",
            "path": "ForeachBatchSink",
            "guarded": False,
            "batch": 3,
        }
        file, table = sinks_from_descriptions(
            [f"FileSink[file:{tmp_path}/out]", "DeltaSink[/t]", f"FileSink[file:{tmp_path}/out]"]
        )
        assert file.kind == "file"
        assert file.path == f"file://{tmp_path}/out"
        assert table.kind == "DeltaSink"


class TestStanding:
    def test_even_is_safe(self, store: Store) -> None:
        make_sink(store, 5)
        standing = stand(saved_at(store, 4), store, store.uri)
        assert (standing.standing, standing.safe, standing.sentence()) == ("even", True, "")

    def test_ahead_counts_what_would_be_lost(self, store: Store) -> None:
        make_sink(store, 5)
        saved = saved_at(store, 2)
        standing = stand(saved, store, store.uri)
        assert standing.standing == "ahead"
        assert not standing.safe
        assert standing.can_roll_back
        assert (len(standing.later), standing.later_rows) == (2, 4 + 5)
        assert "2 files with 9 rows" in standing.sentence()

    def test_ahead_over_a_compaction(self, store: Store) -> None:
        make_sink(store, 8)
        saved = saved_at(store, 7)
        writer = FileSinkWriter(store)
        for batch in range(8, 23):
            writer.write(batch, [{"batch": batch}])
        standing = stand(saved, store, store.uri)
        assert (standing.standing, len(standing.later)) == ("ahead", 15)

    def test_behind(self, store: Store) -> None:
        make_sink(store, 5)
        saved = saved_at(store, 4)
        store.delete("_spark_metadata/4")
        standing = stand(saved, store, store.uri)
        assert (standing.standing, standing.safe) == ("behind", False)

    def test_a_missing_or_cut_data_file_is_not_safe_and_cannot_be_rolled_back(self, store: Store) -> None:
        writer = make_sink(store, 5)
        saved = saved_at(store, 4)
        store.write("k=a b/part-00000-a0003-c000.json", b"{}\n")
        standing = stand(saved, store, store.uri)
        assert (standing.missing, standing.such_as) == (1, ("k=a b/part-00000-a0003-c000.json",))
        assert not standing.safe
        assert "lacks 1 data file" in standing.sentence()
        with refuses(RefusedError, "sink-cannot-roll-back"):
            roll_back(saved, store, store.uri, "b000004-x")
        assert writer.latest() == 4

    def test_another_timeline_with_the_same_batches_is_diverged(self, store: Store) -> None:
        make_sink(store, 5)
        saved = saved_at(store, 4)
        for name in store.names("_spark_metadata"):
            store.delete(f"_spark_metadata/{name}")
        make_sink(store, 5, timeline="b")
        standing = stand(saved, store, store.uri)
        assert (standing.standing, len(standing.later)) == ("diverged", 5)

    def test_a_damaged_log_is_neither_safe_nor_rolled_back(self, store: Store) -> None:
        make_sink(store, 5)
        saved = saved_at(store, 2)
        store.write("_spark_metadata/3", b"")
        standing = stand(saved, store, store.uri)
        assert (standing.standing, standing.can_roll_back) == ("damaged", False)
        assert "cannot be read" in standing.sentence()

    def test_a_saved_log_that_is_not_whole_is_damage(self, store: Store) -> None:
        make_sink(store, 5)
        record = {"kind": "file", "path": store.uri, "batch": 4}
        keys = [f"_spark_metadata/{n}" for n in (0, 1, 2, 4)]
        content = {key: partial(pieces, store.read(key)) for key in keys}
        with pytest.raises(IntegrityError, match="whole"):
            read_saved_log(record, content, store.uri)
        with pytest.raises(IntegrityError, match="not an entry"):
            read_saved_log(record, {"_spark_metadata/../../x": partial(pieces, b"v1")}, store.uri)


class TestRollback:
    @pytest.mark.parametrize("keep_old", [True, False])
    @pytest.mark.parametrize("to", [0, 5, 9, 12])
    def test_output_is_that_of_the_batch_and_later_files_are_aside(
        self, store: Store, keep_old: bool, to: int
    ) -> None:
        writer = FileSinkWriter(store, keep_old=keep_old)
        saved = None
        for batch in range(24):
            writer.write(batch, [{"batch": batch}], folder=f"k={batch % 2}")
            if batch == to:
                saved = saved_at(store, to)
        assert saved is not None
        before = contents(store)
        report = roll_back(saved, store, store.uri, "b-one")
        assert stand(saved, store, store.uri).safe
        assert batches_of(writer.read()) == list(range(to + 1))
        assert report.files_aside == 23 - to
        assert report.rows_aside == 23 - to
        # nothing is destroyed: every data file and every entry is still there with its bytes
        after = contents(store)
        for path, data in before.items():
            assert data in (after.get(path), after.get(f"{report.aside}/{path}"))
        # and the sink goes on as if the later batches had never been
        again = FileSinkWriter(store, timeline="b")
        for batch in range(to + 1, 31):
            again.write(batch, [{"batch": batch}])
        assert batches_of(again.read()) == list(range(31))

    def test_nothing_to_do_does_nothing(self, store: Store) -> None:
        make_sink(store, 5)
        saved = saved_at(store, 4)
        before = contents(store)
        report = roll_back(saved, store, store.uri, "b-one")
        assert (report.aside, report.files_aside) == ("", 0)
        assert contents(store) == before

    def test_a_lost_log_is_rebuilt_when_the_data_files_are_there(self, store: Store) -> None:
        writer = make_sink(store, 13)
        saved = saved_at(store, 12)
        rows = writer.read()
        for name in store.names("_spark_metadata"):
            store.delete(f"_spark_metadata/{name}")
        roll_back(saved, store, store.uri, "b-one")
        assert writer.read() == rows

    def test_back_and_forth_brings_files_back(self, store: Store) -> None:
        writer = make_sink(store, 15)
        older, newer = None, saved_at(store, 14)
        fresh = open_store(f"{store.uri}-other")
        make_sink(fresh, 15)
        older = saved_at(store, 10)
        rows = writer.read()
        roll_back(older, store, store.uri, "b-old")
        other = FileSinkWriter(store, timeline="b")
        for batch in range(11, 17):
            other.write(batch, [{"batch": batch, "timeline": "b"}])
        standing = stand(newer, store, store.uri)
        assert not standing.safe
        assert len(standing.aside) == 4
        report = roll_back(newer, store, store.uri, "b-new")
        assert report.files_back == 4
        assert writer.read() == rows

    def test_a_moved_sink_gets_its_paths_rewritten(self, tmp_path: Path) -> None:
        old = open_store(tmp_path / "old place")
        make_sink(old, 13)
        captured = FileSinkCapture(old.uri, old).capture(11)
        content = {info.path: partial(pieces, old.read(info.path)) for info in captured.files}
        (tmp_path / "old place").rename(tmp_path / "new place")
        new = open_store(tmp_path / "new place")
        saved = read_saved_log(captured.record, content, new.uri)
        assert not stand(saved, new, old.uri).safe
        roll_back(saved, new, old.uri, "b-one")
        assert stand(saved, new, old.uri).safe
        text = new.read("_spark_metadata/9.compact").decode()
        assert "old%20place" not in text
        assert f"file://{tmp_path}/new%20place/k=a%20b/part" in text

    def test_files_outside_the_output_directory_are_never_moved(self, tmp_path: Path) -> None:
        store = open_store(tmp_path / "out")
        make_sink(store, 3)
        saved = saved_at(store, 2)
        outside = tmp_path / "precious.json"
        outside.write_text("{}\n")
        for path in (f"file://{outside}", f"file://{tmp_path}/out/../precious.json"):
            entry = json.dumps({"path": path, "size": 3, "action": "add"})
            store.write("_spark_metadata/3", f"v1\n{entry}".encode())
            standing = stand(saved, store, store.uri)
            assert not standing.can_roll_back
            with pytest.raises(RefusedError):
                roll_back(saved, store, store.uri, "b-one")
        assert outside.read_text() == "{}\n"

    def test_stale_hidden_checksums_go(self, tmp_path: Path) -> None:
        store = open_store(tmp_path / "out")
        make_sink(store, 5)
        saved = saved_at(store, 2)
        store.write("_spark_metadata/.4.crc", b"crc")
        roll_back(saved, store, store.uri, "b-one")
        assert store.names("_spark_metadata") == ["0", "1", "2"]


class TestPaths:
    def test_spellings_of_one_directory(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        roots = Roots(f"file://{tmp_path}/real")
        assert roots.key(f"file:{tmp_path}/real/a%20b") == "a b"
        assert roots.key(f"file://{tmp_path}/real/a%2520b") == "a%20b"
        assert roots.key(f"{tmp_path}/real/a") == "a"
        assert roots.key(f"file://{tmp_path}/link/a") == "a"
        assert roots.key(f"file://{tmp_path}/realer/a") is None
        assert roots.key(f"file://{tmp_path}/real/../x") is None
        assert Roots("s3://bucket/out").key("s3a://bucket/out/a") == "a"
        assert Roots("s3://bucket/out").key("s3a://other/out/a") is None

    def test_relocating_leaves_other_paths_alone(self) -> None:
        lines = [
            {"path": p, "size": 1, "action": "add"} for p in ("file:///old/a%20b", "file:///elsewhere/c")
        ]
        data = "\n".join(["v1", *map(json.dumps, lines)]).encode()
        moved = b"".join(relocate_entry(pieces(data), "3", Roots("file:///old"), "file:///new dir"))
        assert [json.loads(line)["path"] for line in moved.decode().split("\n")[1:]] == [
            "file:///new%20dir/a%20b",
            "file:///elsewhere/c",
        ]


class TestWhileOthersWrite:
    @pytest.mark.parametrize("limit", ["_MOST_BYTES", "MOST_MEMORY_BYTES"])
    def test_more_than_a_journal_can_name_is_refused_before_a_file_moves(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
    ) -> None:
        """The limits are those of reading it again: a rollback that cannot be finished is not begun."""
        store = open_store(tmp_path / "out")
        make_sink(store, 5)
        saved, before = saved_at(store, 2), contents(store)
        changed: list[str] = []
        with monkeypatch.context() as lowered, pytest.raises(RefusedError) as caught:
            lowered.setattr(rollback, limit, 64)
            roll_back(saved, store, store.uri, "b-one", lambda: changed.append("begun"))
        assert caught.value.code == "sink-cannot-roll-back" and "--new-sink" in caught.value.hint
        assert not changed and contents(store) == before
        roll_back(saved, store, store.uri, "b-one")
        assert stand(saved, store, store.uri).safe, "the limit was what refused it"

    def test_an_entry_that_is_deleted_while_the_log_is_read_is_a_conflict(self, tmp_path: Path) -> None:
        class Compacting(LocalStore):
            deleted = False

            @contextmanager
            def open(self, key: str) -> Iterator[BinaryIO]:
                if key == "_spark_metadata/1" and not self.deleted:
                    self.deleted = True
                    self.delete(key)
                with super().open(key) as reader:
                    yield reader

        store = Compacting(tmp_path / "out", fsync=False)
        make_sink(store, 3)
        with refuses(ConflictError, "sink-moved"):
            FileSinkCapture(store.uri, store).capture(2)
        assert store.deleted

    def test_a_batch_that_is_written_during_a_rollback_is_a_conflict(self, tmp_path: Path) -> None:
        class Busy(LocalStore):
            wrote = False

            def rename(self, key: str, new_key: str) -> None:
                super().rename(key, new_key)
                if not self.wrote:
                    self.wrote = True
                    again = FileSinkWriter(LocalStore(self.root, fsync=False), timeline="b")
                    again.write(4, [{"batch": 4}])

        store = Busy(tmp_path / "out", fsync=False)
        make_sink(store, 5)
        saved = saved_at(store, 2)
        with refuses(ConflictError, "sink-moved"):
            roll_back(saved, store, store.uri, "b-one")
        assert store.wrote
        assert stand(saved, store, store.uri).unfinished

        roll_back(saved, store, store.uri, "b-one")
        assert stand(saved, store, store.uri).safe
        assert batches_of(FileSinkWriter(store).read()) == [0, 1, 1, 2, 2, 2]

    def test_a_data_file_that_somebody_deletes_during_a_rollback_is_a_conflict(self, tmp_path: Path) -> None:
        class Vanishing(LocalStore):
            vanished = ""

            def rename(self, key: str, new_key: str) -> None:
                if key.endswith(".json") and not self.vanished:
                    self.vanished = key
                    self.delete(key)
                super().rename(key, new_key)

        store = Vanishing(tmp_path / "out", fsync=False)
        make_sink(store, 5)
        saved = saved_at(store, 2)
        with refuses(ConflictError, "sink-moved") as caught:
            roll_back(saved, store, store.uri, "b-one")
        assert store.vanished and store.vanished in caught.value.message

    @pytest.mark.parametrize("left", ["both", "the new one"])
    def test_a_rename_that_is_found_done_or_half_done_is_finished(self, tmp_path: Path, left: str) -> None:
        """As on a store that copies and deletes, where the reply to the first try was lost."""

        class Copying(LocalStore):
            renamed = 0

            def rename(self, key: str, new_key: str) -> None:
                self.renamed += 1
                if left == "both":
                    self.write(new_key, self.read(key))
                else:
                    super().rename(key, new_key)
                super().rename(key, new_key)

        store = Copying(tmp_path / "out", fsync=False)
        writer = make_sink(store, 5)
        saved = saved_at(store, 2)
        before = contents(store)
        report = roll_back(saved, store, store.uri, "b-one")
        assert store.renamed == 4
        assert batches_of(writer.read()) == [0, 1, 1, 2, 2, 2]
        after = contents(store)
        moved = {path for path in before if path not in after}
        assert len(moved) == 4
        assert all(after[f"{report.aside}/{path}"] == before[path] for path in moved)

    def test_another_file_under_the_new_name_is_left_alone(self, tmp_path: Path) -> None:
        class Squatted(LocalStore):
            taken = ""

            def rename(self, key: str, new_key: str) -> None:
                if not self.taken:
                    self.taken = new_key
                    self.write(new_key, b"somebody else's")
                super().rename(key, new_key)

        store = Squatted(tmp_path / "out", fsync=False)
        make_sink(store, 5)
        before = contents(store)
        with refuses(ConflictError, "exists"):
            roll_back(saved_at(store, 2), store, store.uri, "b-one")
        assert store.read(store.taken) == b"somebody else's"
        after = contents(store)
        assert all(after.get(path) == data for path, data in before.items())


class TestJournals:
    @pytest.mark.parametrize(
        "journal",
        [
            b"",
            b"[]",
            b'{"format": 1}',
            b'{"format": 2, "files_aside": {}}',
            b'{"format": 1, "files_aside": ["part-0.json"]}',
            b'{"format": 1, "files_aside": {"part-0.json": "12"}}',
        ],
    )
    def test_one_that_cannot_be_understood_stops_everything(self, store: Store, journal: bytes) -> None:
        make_sink(store, 5)
        saved = saved_at(store, 2)
        store.write("_streambank_aside/b-one-1/_rollback.json", journal)
        before = contents(store)
        for work in (
            lambda: stand(saved, store, store.uri),
            lambda: roll_back(saved, store, store.uri, "b-two"),
        ):
            with refuses(FormatError, "bad-rollback-journal") as caught:
                work()
            assert "_streambank_aside/b-one-1/_rollback.json" in caught.value.message
        assert contents(store) == before

    def test_a_folder_that_is_taken_is_not_used_again(self, store: Store) -> None:
        writer = make_sink(store, 5)
        saved = saved_at(store, 2)
        first = roll_back(saved, store, store.uri, "b-one").aside
        old = store.read(f"{first}/_rollback.json")
        store.rename(f"{first}/_rollback.json", "_streambank_aside/b-one-2/_rollback.json")
        for info in [*store.list(first)]:
            store.rename(info.path, info.path.replace(first, "_streambank_aside/b-one-2"))
        writer.write(3, [{"batch": 3}])

        report = roll_back(saved, store, store.uri, "b-one")

        assert report.aside == "_streambank_aside/b-one-3"
        assert store.read("_streambank_aside/b-one-2/_rollback.json") == old

    def test_a_rollback_that_left_a_gap_in_the_log_is_finished(self, store: Store) -> None:
        writer = make_sink(store, 5)
        saved = saved_at(store, 2)
        faulty = FaultyStore(store, Fault("crash-after", operations=frozenset({"rename"})))
        with pytest.raises(SimulatedCrash):
            roll_back(saved, faulty, store.uri, "b-one")
        faulty.assert_fired()
        store.delete("_spark_metadata/1")  # and somebody tidied up meanwhile
        standing = stand(saved, store, store.uri)
        assert (standing.unfinished, standing.can_roll_back, standing.safe) == (True, True, False)
        roll_back(saved, store, store.uri, "b-one")
        assert batches_of(writer.read()) == [0, 1, 1, 2, 2, 2]


def test_a_line_without_a_size_is_a_format_error(store: Store) -> None:
    make_sink(store, 3)
    for line in ({"path": "file:///out/a"}, {"path": "file:///out/a", "size": True}, {"size": 1}):
        store.write("_spark_metadata/2", f"v1\n{json.dumps(line)}".encode())
        with refuses(FormatError, "half-written"):
            FileSinkCapture(store.uri, store).capture(2)


@pytest.mark.parametrize("record", [{"path": "file:///out"}, {"batch": 3}, {"path": 1, "batch": 3}])
def test_a_saved_record_without_its_place_or_its_batch_is_damage(record: dict[str, object]) -> None:
    with pytest.raises(IntegrityError):
        read_saved_log(record, {}, "file:///out")
