"""From expired to gone on a real S3 server, whose own clock stamps what lies there."""

from __future__ import annotations

import pytest

from streambank.repository import trash
from streambank.repository.repository import Repository
from streambank.retention.expire import expire
from streambank.retention.policy import Policy
from streambank.retention.sweep import _Sweep, sweep
from streambank.retention.undelete import undelete
from streambank.storage import open_store
from tests.support.repository.retention import HOUR_S, assert_whole, content, large, store_and_list
from tests.support.storage.s3_servers import S3Server, seaweedfs

__all__ = ["seaweedfs"]  # a fixture


def test_from_expired_to_gone(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    seaweedfs.use(monkeypatch)
    store = open_store(seaweedfs.location())
    repository = Repository.open(store, create=True)
    for batch in range(3):
        store_and_list(repository, {"offsets": b"%d" % batch * 300, "zip": large(batch)}, batch)
    before = content(store)
    expire(repository, Policy(keep_last=1))
    assert undelete(repository, "b000001").stored_again == 0
    assert [copy.savepoint[:7] for copy, _ in sweep(repository, grace_s=HOUR_S).expired] == ["b000000"]

    # Nobody can make a bucket's files older, so here it is the sweep that comes two hours later.
    server_time, boot_s = _Sweep._now_ns, trash.boot_clock_s
    monkeypatch.setattr(_Sweep, "_now_ns", lambda self: server_time(self) + int(2 * HOUR_S * 1e9))
    report = sweep(Repository.open(store), grace_s=HOUR_S)
    assert [copy.savepoint[:7] for copy in report.removed] == ["b000000"]
    assert (report.condemned.files, report.deleted.files) == (2, 0)
    monkeypatch.setattr(trash, "boot_clock_s", lambda: boot_s() + 2 * HOUR_S)
    report = sweep(Repository.open(store), grace_s=HOUR_S)
    assert report.deleted.files == 2 and len(before - content(store)) == 2
    assert {name[:7] for name in assert_whole(store)} == {"b000001", "b000002"}
    sweep(Repository.open(store), grace_s=HOUR_S)
    assert [*store.names("condemned")] == ["last-sweep"]
