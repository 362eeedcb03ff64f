"""A job whose checkpoint, savepoints and work are on S3: its state is compacted there."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.jars import s3a
from streambank.job.start import start_job
from streambank.storage import open_store
from tests.support.jobs.declared import BY, end_drivers
from tests.support.jobs.seen_job import HDFS, NUMBERS, ROCKSDB, SeenJob
from tests.support.storage.s3_servers import S3Server, seaweedfs

__all__ = ["seaweedfs"]

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("provider", [ROCKSDB, HDFS], ids=["rocksdb", "hdfs"])
def test_expired_numbers_are_told_again_and_no_others(
    seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    seaweedfs.use(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # where the logs of such jobs are
    place = seaweedfs.location("s3a")
    trial = SeenJob(
        tmp_path,
        provider,
        checkpoint=f"{place}/seen",
        repository=seaweedfs.location(),
        spark=s3a.settings(),
    )
    trial.arrive()
    try:
        start_job(trial.job, by=BY)
        trial.settle()
        done = trial.streambank("compact", "seen", "--where", "key.number % 5 = 0")
        assert (done["state"], done["generation"], done["running"]) == ("exchanged", 2, True)
        assert done["rewritten"]["operators"][0]["keys"] == NUMBERS // 5
        trial.arrive(forgotten=5)
        trial.settle()
        # In S3's own spelling, which Spark does not know.
        work = f"{place.replace('s3a://', 's3://')}/work"
        done = trial.streambank("compact", "seen", "--where", "key.number % 4 = 0", "--work", work)
        assert done["generation"] == 3
        trial.arrive(forgotten=4)
        trial.settle()
        for left in (f"{place}/seen.work", work):
            assert list(open_store(left).list()) == [], "what was laid out is gone"
    finally:
        end_drivers(trial.job.records())
