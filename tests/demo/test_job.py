"""The demo's look at its job: where the checkpoint is on this machine, and where it is in S3."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.job import FlightsJob, WaitedTooLongError
from streambank.core.errors import NotFoundError, StorageError
from streambank.storage import open_store
from tests.support.storage.s3_servers import S3Server, seaweedfs

__all__ = ["seaweedfs"]  # a fixture
BY = {"name": "a test"}


@pytest.fixture(params=["local", "s3"])
def job(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FlightsJob]:
    """A job whose first generation has committed the batches 0 to 2."""
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("seaweedfs").use(monkeypatch)
        root = server.location("s3")
        checkpoint = f"{server.location('s3a')}/ck"
    else:
        root, checkpoint = str(tmp_path / "repository"), str(tmp_path / "ck")
    found = FlightsJob("flights", f"{root}/jobs")
    found.records().generations(None).ensure_first(checkpoint, by=BY)
    store = open_store(checkpoint)
    for number in (0, 1, 2, 10):
        store.write(f"offsets/{number}", b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n{"logOffset":0}')
    for number in (0, 1, 2):
        store.write(f"commits/{number}", b"v1")
    store.write("commits/.10.tmp", b"v1")
    yield found


def test_the_newest_commit_is_seen_with_its_time(job: FlightsJob) -> None:
    last = job.last_commit()
    assert last is not None and last.number == 2
    assert abs(last.at.timestamp() - time.time()) < 300
    assert job.commit(1).number == 1
    with pytest.raises(NotFoundError):
        job.commit(10)


def test_how_far_it_has_read_its_topics_is_what_the_newest_committed_batch_says(job: FlightsJob) -> None:
    assert job.read_until() == {}, "it reads no Kafka"
    head = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    for number, offset in ((2, 70), (10, 90)):
        log = f'v1\n{head}\n{{"flights":{{"1":{offset},"0":5}}}}'
        job.checkpoint().write(f"offsets/{number}", log.encode())
    assert job.read_until() == {("flights", 0): 5, ("flights", 1): 70}
    job.checkpoint().write("commits/10", b"v1")
    assert job.read_until() == {("flights", 0): 5, ("flights", 1): 90}


def test_a_batch_is_waited_for_and_not_for_ever(job: FlightsJob) -> None:
    asked: list[int] = []

    def meanwhile() -> None:
        asked.append(len(asked))
        if len(asked) == 3:
            job.checkpoint().write("commits/10", b"v1")

    assert job.wait_for_batch(10, timeout_s=60, meanwhile=meanwhile).number == 10
    with pytest.raises(WaitedTooLongError, match="batch 11 is not committed after 0 s"):
        job.wait_for_batch(11, timeout_s=0, meanwhile=lambda: None)


def test_a_storage_that_is_away_for_a_while_is_waited_for(
    job: FlightsJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = FlightsJob.last_commit, iter([True, True, False])

    def last_commit(self: FlightsJob) -> object:
        if next(failures):
            raise StorageError("Nobody answers.", code="unreachable", hint="Wait.")
        return real(self)

    monkeypatch.setattr(FlightsJob, "last_commit", last_commit)
    assert job.wait_for_batch(2, timeout_s=60, meanwhile=lambda: None).number == 2
    assert next(failures, None) is None, "the fault did not fire"


def test_a_checkpoint_is_destroyed_whatever_is_written_meanwhile(job: FlightsJob) -> None:
    store = job.checkpoint()
    name, files = job.destroy_checkpoint()
    assert (name, files) == ("ck", 8)
    assert not list(store.list()) and job.last_commit() is None
    store.write("state/0/0/3.delta", b"late")
    job.delete_rest(store)
    assert not list(store.list())
