"""Measured on a real S3 server: a job's records, and a checkpoint that nobody manages."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.progress import ProgressWriter
from streambank.sla.history.history import Records
from streambank.sla.history.hour_files import HourFiles
from streambank.sla.history.hours import Windows, hourly_history
from streambank.sla.history.unmanaged import measure_checkpoint
from streambank.storage import open_store
from tests.support.checkpoint.recorded import checkpoint
from tests.support.cli import succeed
from tests.support.sla.progress_records import at, batches, held, line
from tests.support.storage.s3_servers import S3Server, seaweedfs

__all__ = ["seaweedfs"]  # a fixture


def test_records_and_checkpoints_on_s3(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    seaweedfs.use(monkeypatch)
    control = open_store(seaweedfs.location())
    writer = ProgressWriter(control, None, epoch=1)
    for batch in range(12):
        writer.add({"runId": "r", "batchId": batch, "numInputRows": batch, "padding": "x" * 50_000})
        writer.flush()
        if batch in (0, 5, 11):
            history = held(Records.of_query(control))
            assert (batches(history.points), history.notes) == (list(range(batch + 1)), ())
    place = f"{control.uri}/progress/main"
    records = Records.at(place)
    assert len(records.keys) == 3
    newest = records.newest()
    assert newest is not None
    since = list(held(records).points)[7].at
    assert batches(held(records, since=since).points)[-5:] == [7, 8, 9, 10, 11]

    found = checkpoint("4.3.0/rocksdb-changelog-window")
    store = found.into(open_store(seaweedfs.location()))
    measured = measure_checkpoint(store)
    assert batches(measured.history.points) == found.batches()
    assert [one.state.base_rows for one in measured.partitions] == [7, 7]
    answer = succeed("inspect", store.uri, "--history", place, "--json").document
    assert answer["measured"]["metrics"]["state_rows"]["newest"] == 14
    assert answer["history"]["metrics"]["input_rows"]["max"] == 11


def test_a_single_file_on_s3(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seaweedfs.use(monkeypatch)
    control = open_store(seaweedfs.location())
    writer = ProgressWriter(control, "left", epoch=1)
    writer.add({"runId": "r", "batchId": 0})
    writer.flush()
    records = Records.at(f"{control.uri}/progress/left/0000000001.jsonl")
    assert batches(held(records).points) == [0]


def test_hours_of_a_history_are_kept_on_s3(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    seaweedfs.use(monkeypatch)
    control = open_store(seaweedfs.location())
    for hour in range(20):
        lines = [line(hour * 4 + quarter, hour * 3600 + quarter * 900.0) for quarter in range(4)]
        control.write(f"progress/main/{hour + 1:010d}.jsonl", b"".join(one + b"\n" for one in lines))
    windows = Windows(at(20 * 3600), 3600.0, 14 * 86_400.0)
    without = list(hourly_history(Records.of_query(control), windows).points)
    for _ in range(2):
        found = hourly_history(Records.of_query(control), windows, HourFiles(control))
        assert list(found.points) == without
    assert control.names("sla/hours/main") == ["2026-11-01.json"]
