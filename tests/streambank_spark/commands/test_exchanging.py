"""`streambank job compact`: what is refused before anything of the job is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank_spark.commands import exchanging
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank
from tests.support.jobs.declared import declare


def test_a_job_is_left_alone_where_no_savepoint_is_old_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = declare(tmp_path, more='master = "local[2]"\n')
    (tmp_path / "checkpoints").mkdir()
    recorded = unpack("4.3.0/hdfs-window", tmp_path / "unpacked") / "checkpoint"
    recorded.rename(tmp_path / "checkpoints/flights")
    for name in ("streambank.recovery.exchange_state.exchange", f"{exchanging.__name__}.spark_of"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("The job is touched."))
    words = ("job", "compact", "flights", "--jobs", tmp_path / "streaming_jobs.toml", "--idle-for", "30d")
    refused = streambank(*words)
    assert refused.code == 3
    assert "No savepoint of flights is from" in refused.err
    records = job.records()
    assert records.desired() is None and not list(records.event_records.history(newest=1))
