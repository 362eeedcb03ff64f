"""A Delta table at a savepoint and at a restore; its rows are written and read by delta-rs."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streambank.core.errors import RefusedError, StorageError
from streambank.doctor.checks.sources import check_table_files
from streambank.sinks.delta import DeltaGuard
from streambank.sinks.delta_log import DeltaLog
from streambank.storage import open_store
from tests.support.sinks.guarded import QUERY, batch_rows, captured
from tests.support.sinks.lake import Lake


def guard(lake: Lake) -> DeltaGuard:
    return DeltaGuard(str(lake.folder), QUERY)


class TestCapture:
    def test_the_version_of_the_batch(self, lake: Lake) -> None:
        record = captured(lake)
        assert (record["version"], record["sink_batch"], record["guarded"]) == (4, 4, True)

    def test_no_table_yet(self, tmp_path: Path) -> None:
        found = DeltaGuard(str(tmp_path / "none"), QUERY).capture(3)
        assert "There is no Delta table" in found.warning and found.record["version"] is None

    def test_another_writer_is_named(self, lake: Lake) -> None:
        found = DeltaGuard(str(lake.folder), "other").capture(3)
        assert "names no batch of the writer other" in found.warning and "writer" in found.warning

    def test_a_damaged_log_stops_no_savepoint(self, lake: Lake) -> None:
        (lake.folder / "_delta_log" / f"{4:020}.json").write_text("{")
        found = guard(lake).capture(4)
        assert "cannot be understood" in found.warning and found.record["not_asked"]


class TestStanding:
    def test_after_vacuum_it_cannot_go_back(self, lake: Lake) -> None:
        record = captured(lake)
        lake.write(5, batch_rows(5))
        lake.open().optimize.compact()
        lake.open().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        standing = guard(lake).stand(4, record)
        assert not standing.can_roll_back
        assert "Of that version " in standing.why_not() and "VACUUM" in standing.why_not()

    def test_entries_of_the_log_that_are_gone(self, lake: Lake) -> None:
        record = captured(lake)
        for batch in (5, 6):
            lake.write(batch, batch_rows(batch))
        lake.open().create_checkpoint()
        (lake.folder / "_delta_log" / f"{5:020}.json").unlink()
        standing = guard(lake).stand(4, record)
        assert standing.safe is None and "no longer has every version after 4" in standing.sentence()


class TestRollback:
    def test_restoring_the_table_alone_loses_more(self, lake: Lake) -> None:
        """The negative control: the table still takes the later batches for done."""
        for batch in (5, 6, 7):
            lake.write(batch, batch_rows(batch))
        lake.open().restore(4)
        assert not lake.write(5, ["new"]) and not lake.write(6, ["new"])


class TestLines:
    """Batches of one number may be of two lines of the query's life."""

    def test_a_rollback_to_the_same_number_in_another_line_is_not_ours(self, lake: Lake) -> None:
        """Savepoint A of batch 4; back to 2; other batches 3 and 4 and savepoint B of 4; back to B."""
        first, before, early = captured(lake), lake.rows(), captured(lake, 2)
        guard(lake).roll_back(guard(lake).stand(2, early))
        lake.write(3, ["3 again"])
        lake.write(4, ["4 again"])
        second = captured(lake)
        lake.write(5, ["5 again"])
        guard(lake).roll_back(guard(lake).stand(4, second))
        assert guard(lake).stand(4, second).safe
        standing = guard(lake).stand(4, first)
        assert standing.position == "diverged" and standing.can_roll_back
        guard(lake).roll_back(standing)
        assert lake.rows() == before and guard(lake).stand(4, first).safe

    def test_a_savepoint_that_could_not_ask_knows_nothing(self, lake: Lake) -> None:
        record = {"kind": "delta", "version": None, "sink_batch": None, "not_asked": "It was away."}
        assert guard(lake).stand(9, record).position == "not-known"

    def test_another_table_of_that_version_is_not_rolled_back(self, lake: Lake) -> None:
        """The first entry was gone at the savepoint, so that the table's id is not known."""
        record = {**captured(lake), "table_id": None}
        shutil.rmtree(lake.folder)
        for batch in range(4, 10):
            lake.write(batch, batch_rows(batch))
        assert guard(lake).stand(4, record).position == "not-known"

    def test_a_first_entry_that_is_gone_is_not_another_table(self, lake: Lake) -> None:
        record = captured(lake)
        lake.write(5, batch_rows(5))
        lake.open().create_checkpoint()
        (lake.folder / "_delta_log" / f"{0:020}.json").unlink()
        standing = guard(lake).stand(4, record)
        assert standing.position == "ahead" and standing.can_roll_back

    def test_a_restore_by_hand_is_not_even(self, lake: Lake) -> None:
        record = captured(lake)
        lake.open().restore(2)
        standing = guard(lake).stand(4, record)
        assert standing.position == "not-known" and "by hand" in standing.sentence()

    def test_a_restore_by_hand_that_leads_back_is_even(self, lake: Lake) -> None:
        record = captured(lake)
        lake.open().restore(2)
        lake.open().restore(4)
        assert guard(lake).stand(4, record).safe

    def test_a_restore_by_hand_after_later_batches_goes_with_them(self, lake: Lake) -> None:
        record, before = captured(lake), lake.rows()
        lake.write(5, batch_rows(5))
        lake.open().restore(4)
        standing = guard(lake).stand(4, record)
        assert standing.position == "ahead" and standing.can_roll_back, "the identifier is still that of 5"
        guard(lake).roll_back(standing)
        assert lake.rows() == before and lake.write(5, ["new"])

    def test_a_restore_by_hand_with_the_identifier(self, lake: Lake) -> None:
        record, before = captured(lake), lake.rows()
        lake.write(5, batch_rows(5))
        properties = CommitProperties(app_transactions=[Transaction(QUERY, 4)])
        lake.open().restore(4, commit_properties=properties)
        standing = guard(lake).stand(4, record)
        assert standing.can_roll_back
        guard(lake).roll_back(standing)
        assert lake.rows() == before and guard(lake).stand(4, record).safe

    def test_below_a_gap_nothing_is_known(self, lake: Lake) -> None:
        lake.write_other(["x"])
        lake.open().create_checkpoint()
        (lake.folder / "_delta_log" / f"{4:020}.json").unlink()
        assert "names no batch" in guard(lake).capture(4).warning

    def test_a_writer_that_nobody_is_ends_after_so_many_versions(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("streambank.sinks.delta_log.MOST_VERSIONS", 3)
        lake.write_other(["x"])
        for _ in range(3):
            lake.write_other(["x"])
        assert "names no batch" in guard(lake).capture(4).warning


class TestSameBatch:
    """Whether the batch of a number is the one that the table held at a moment."""

    @staticmethod
    def now() -> datetime:
        return datetime.now(UTC)

    def test_later_batches_that_were_rolled_back(self, lake: Lake) -> None:
        at, record = self.now(), captured(lake)
        for _ in range(2):
            lake.write(5, batch_rows(5))
            guard(lake).roll_back(guard(lake).stand(4, record))
        assert guard(lake).same_batch(4, at)

    def test_a_restore_by_hand_is_not_understood(self, lake: Lake) -> None:
        at = self.now()
        lake.open().restore(2)
        assert guard(lake).same_batch(4, at) is None

    def test_a_log_that_does_not_reach_back(self, lake: Lake) -> None:
        at = self.now()
        lake.write(5, batch_rows(5))
        lake.open().create_checkpoint()
        for version in range(5):
            (lake.folder / "_delta_log" / f"{version:020}.json").unlink()
        assert guard(lake).same_batch(5, at) is None

    def test_a_log_without_times(self, lake: Lake) -> None:
        entry = lake.folder / "_delta_log" / f"{4:020}.json"
        entry.write_text(re.sub(r'"timestamp":\d+', '"timestamp":null', entry.read_text()))
        assert guard(lake).same_batch(4, self.now()) is None

    def test_a_damaged_log_or_none(self, lake: Lake, tmp_path: Path) -> None:
        (lake.folder / "_delta_log" / f"{4:020}.json").write_text("{")
        assert guard(lake).same_batch(4, self.now()) is None
        assert DeltaGuard(str(tmp_path / "none"), QUERY).same_batch(4, self.now()) is None


VECTOR_FILE = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
"""Of the path `ab^-aqEH.-t@S}K{vb[*k^`: the example of Delta's protocol."""


@pytest.mark.parametrize("kept", [False, True])
def test_deletion_vectors_go_back_with_their_files(lake: Lake, kept: bool) -> None:
    """A batch marks rows of a file as deleted; the version before has it without marks, or with others."""
    entries = lake.folder / "_delta_log"
    lines = [json.loads(line) for line in (entries / f"{4:020}.json").read_text().splitlines()]
    add = next(line["add"] for line in lines if "add" in line)
    feature = ["deletionVectors"]
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 36}
    vectors = [{**vector, "offset": 1 + 50 * number, "cardinality": 1 + number} for number in range(2)]
    removed = {"path": add["path"], "deletionTimestamp": 0, "dataChange": True, "extendedFileMetadata": True}
    removed |= {"partitionValues": {}, "size": add["size"]}

    def commit(version: int, *actions: dict[str, Any]) -> None:
        text = "\n".join(map(json.dumps, [*actions, {"txn": {"appId": QUERY, "version": version}}]))
        (entries / f"{version:020}.json").write_text(f"{text}\n")

    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": feature}
    commit(5, {"protocol": {**protocol, "writerFeatures": [*feature, "appendOnly", "invariants"]}})
    commit(6, {"remove": removed}, {"add": {**add, "deletionVector": vectors[0]}})
    batch = 5
    if kept:
        batch, before = 6, {**removed, "deletionVector": vectors[0]}
        commit(7, {"remove": before}, {"add": {**add, "deletionVector": vectors[1]}})
        standing = guard(lake).stand(batch, None)
        assert not standing.can_roll_back, "VACUUM has removed the file of the deletion vector"
        assert f"Of that version 1 file is gone ({VECTOR_FILE})" in standing.why_not()
        (lake.folder / "ab").mkdir()
        (lake.folder / VECTOR_FILE).write_bytes(b"any")
    standing = guard(lake).stand(batch, None)
    assert standing.position == "ahead" and standing.can_roll_back
    guard(lake).roll_back(standing)
    text = (entries / f"{batch + 2:020}.json").read_text()
    actions = {name: action for line in text.splitlines() for name, action in json.loads(line).items()}
    assert actions["add"]["path"] == actions["remove"]["path"] == add["path"]
    assert actions["add"].get("deletionVector") == (vectors[0] if kept else None)
    assert actions["remove"]["deletionVector"] == vectors[int(kept)]


def test_a_data_file_that_is_gone_is_found_and_nothing_is_changed(lake: Lake, tmp_path: Path) -> None:
    assert guard(lake).lost() == [] == DeltaGuard(str(tmp_path / "none"), QUERY).lost()
    gone = sorted(lake.folder.glob("*.parquet"))[0]
    gone.unlink()
    log = sorted((lake.folder / "_delta_log").iterdir())

    assert guard(lake).lost() == [gone.name]

    assert sorted((lake.folder / "_delta_log").iterdir()) == log
    (found,) = check_table_files([("lake", guard(lake).lost()), ("whole", [])])
    assert (found.code, found.severity) == ("table-files-gone", "error")
    assert found.cause == f"The Delta table lacks 1 data file of its newest version, such as {gone.name}."
    (lake.folder / "_delta_log/00000000000000000004.json").write_text("{")
    with pytest.raises(StorageError, match="could not be listed"):
        guard(lake).lost()


def test_a_delta_rs_that_is_too_old_is_named(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(5, batch_rows(5))
    monkeypatch.setattr("streambank.sinks.delta.installed_version", lambda _: "1.5.0")
    standing = guard(lake).stand(4, None)
    assert not standing.can_roll_back and "deltalake is 1.5.0 here" in standing.why_not()


def test_the_newest_version_is_found_wherever_checkpoints_are(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", QUERY)
    log = DeltaLog(open_store(str(lake.folder)))
    assert log.newest() is None
    for batch in range(23):
        lake.write(batch, ["row"])
        assert log.newest() == batch
        if batch == 11:
            lake.open().create_checkpoint()


def test_the_identifier_of_another_writer_stays(lake: Lake) -> None:
    other = Lake(lake.folder, "other query")
    other.write(7, ["x"])
    record = captured(lake)
    lake.write(5, batch_rows(5))
    guard(lake).roll_back(guard(lake).stand(4, record))
    assert lake.open().transaction_version("other query") == 7 and lake.rows()["x"] == 1


def test_a_commit_may_hold_several_identifiers(lake: Lake) -> None:
    properties = CommitProperties(app_transactions=[Transaction("a", 1), Transaction("b", 2)])
    write_deltalake(str(lake.folder), pa.table({"k": ["x"]}), mode="append", commit_properties=properties)
    assert DeltaLog(open_store(str(lake.folder))).commit(5).transactions == {"a": 1, "b": 2}


def test_a_file_that_got_a_deletion_vector_and_was_removed_then(lake: Lake) -> None:
    """It is among the files that were added since, and still needed, without the vector."""
    entries = lake.folder / "_delta_log"
    lines = [json.loads(line) for line in (entries / f"{4:020}.json").read_text().splitlines()]
    add = next(line["add"] for line in lines if "add" in line)
    vector = {
        "storageType": "p",
        "pathOrInlineDv": "s3://elsewhere/v.bin",
        "sizeInBytes": 36,
        "cardinality": 1,
    }
    marked = {**add, "deletionVector": vector}
    for version, actions in (
        (5, [{"remove": add}, {"add": marked}, {"txn": {"appId": QUERY, "version": 5}}]),
        (6, [{"remove": marked}, {"txn": {"appId": QUERY, "version": 6}}]),
    ):
        (entries / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))
    assert guard(lake).stand(4, None).can_roll_back
    (lake.folder / add["path"]).unlink()
    assert f"({add['path']}), as after VACUUM" in guard(lake).stand(4, None).why_not()


@pytest.mark.parametrize("committed", [True, False])
def test_a_right_that_is_missing_after_the_commit_does_not_undo_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """What delta-rs does after a commit, such as deleting old entries of the log, may not be allowed."""
    record = captured(lake)
    lake.write(5, batch_rows(5))
    standing = guard(lake).stand(4, record)
    restores = DeltaTable.restore
    fired: list[str] = []

    def cleans_up(*args: Any, **options: Any) -> Any:
        if committed:
            restores(*args, **options)
        fired.append("cleanup")
        raise OSError("Unable to delete file _delta_log/1.json: AccessDenied")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "restore", cleans_up)
        if committed:
            assert guard(lake).roll_back(standing).changed
        else:
            with pytest.raises(RefusedError, match="is as it was"):
                guard(lake).roll_back(standing)
    assert fired and guard(lake).stand(4, record).safe is committed
