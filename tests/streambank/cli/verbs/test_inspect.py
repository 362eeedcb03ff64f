"""`streambank inspect`: what is measured, for people and as JSON."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from streambank.core.errors import StorageError
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank, succeed
from tests.support.sla.progress_records import FOLDER


@pytest.fixture
def rocksdb(tmp_path: Path) -> Path:
    return unpack("4.3.0/rocksdb-changelog-window", tmp_path) / "checkpoint"


def test_what_the_files_tell_is_shown(rocksdb: Path) -> None:
    shown = succeed("inspect", rocksdb).out
    assert "measured by its files: 14 batches, 2026-11-21T10:23:27.000Z to 2026-11-21T10:23:32.000Z" in shown
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line}
    assert rows["state_rows"][:2] == ["14", "rows"]
    assert rows["state_bytes"][:2] == ["8.71", "kB"]
    assert rows["watermark_lag_s"][1] == "d"
    assert rows["oldest_snapshot_age_batches"][:2] == ["10", "batches"]
    assert "state from batch 3 to 13: +5.93 kB, +0 rows in 3 s" in shown
    assert "0          1  default        12     7  4.41 kB        2" in shown
    assert "recorded progress" not in shown


def test_what_was_recorded_is_shown_beside_it(rocksdb: Path) -> None:
    shown = succeed("inspect", rocksdb, "--history", FOLDER / "driver-killed").out
    assert "recorded progress of driver-killed, 2 runs: 7 batches, 2026-11-21T10:47:03.029Z to" in shown
    assert "note: 1 lost: batches without a progress record, between others that have one." in shown


def test_so_much_of_the_history_as_is_wanted(rocksdb: Path) -> None:
    def told(*options: str) -> object:
        place = FOLDER / "hourly-delays" / "0000000001.jsonl"
        return succeed("inspect", rocksdb, "--history", place, *options, "--json").document["history"][
            "batches"
        ]

    assert (told(), told("--within", "20s"), told("--within", "1s")) == (5, 4, 1)


def test_many_partitions_are_left_to_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LiveCheckpoint(open_store(tmp_path)).run(6)
    assert "snapshot" in streambank("inspect", tmp_path).out
    monkeypatch.setattr("streambank.cli.verbs.inspect._MOST_PARTITIONS", 1)
    assert "2 stores in partitions: --json lists them" in streambank("inspect", tmp_path).out
    assert len(streambank("inspect", tmp_path, "--json").document["measured"]["partitions"]) == 2


def test_errors_and_warnings_make_the_exit_code_1_and_what_is_only_worth_knowing_does_not(
    rocksdb: Path,
) -> None:
    (rocksdb / f".9.zip.{uuid.UUID(int=1)}.TID1.tmp").touch()
    assert "info: temporary-files" in succeed("inspect", rocksdb).out
    (rocksdb / "notes.txt").write_text("mine")
    for document in ((), ("--json",)):
        assert streambank("inspect", rocksdb, *document).code == 1
    (rocksdb / "notes.txt").unlink()
    (rocksdb / "metadata").unlink()
    answer = streambank("inspect", rocksdb)
    assert (answer.code, "error: missing-log-entry" in answer.out) == (1, True)


def test_before_the_first_commit_nothing_is_measured(tmp_path: Path) -> None:
    LiveCheckpoint(open_store(tmp_path)).plan()
    answer = streambank("inspect", tmp_path, "--json").document
    assert answer["measured"] is None and answer["history"] is None
    assert "measured" not in streambank("inspect", tmp_path).out


def test_what_cannot_be_read_for_measuring_is_a_finding(
    rocksdb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("state/0/0/3.zip cannot be read.", code="io-error", hint="Look at the disk.")

    monkeypatch.setattr("streambank.sla.history.unmanaged.measure_checkpoint", fail)
    answer = streambank("inspect", rocksdb, "--json").document
    assert answer["measured"] is None
    assert [(one["code"], one["effect"]) for one in answer["findings"]] == [
        ("io-error", "The checkpoint is not measured.")
    ]
    assert "The checkpoint is not measured." in streambank("inspect", rocksdb).out


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--history", "nowhere"], 3, "There are no progress records at nowhere."),
        (["--history", str(FOLDER / "driver-killed"), "--within", "6"], 2, "'6' is not a duration."),
    ],
)
def test_a_history_that_is_not_there_is_an_error(
    rocksdb: Path, options: list[str], code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(rocksdb)
    answer = streambank("inspect", rocksdb, *options)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith(says)
