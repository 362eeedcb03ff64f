"""What writes that were broken off have left: swept once nobody has added to it for a grace."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from streambank.core.errors import StorageError
from streambank.repository.repository import Repository
from streambank.retention.sweep import _Sweep, sweep
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.s3.client import S3Address, Service
from streambank.storage.s3.multipart import leftovers
from streambank.storage.store import Leftover
from tests.support.repository.retention import HOUR_S, assert_whole, store_and_list
from tests.support.storage.faulty_store import Fault, FaultyStore
from tests.support.storage.s3_servers import BUCKET, S3Server, seaweedfs

__all__ = ["seaweedfs"]  # a fixture

OLD = f".streambank-{'a' * 32}.tmp"
YOUNG = f".streambank-{'b' * 32}.tmp"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with a savepoint, and temporary files of two ages in three places."""
    store = LocalStore(tmp_path / "repository", fsync=False)
    store_and_list(Repository.open(store, create=True), {"offsets": b"1" * 300}, 1)
    (store.root / "jobs").mkdir()
    for place in (".", "packs", "jobs"):
        for name, age_s in ((OLD, 2 * HOUR_S), (YOUNG, 0.9 * HOUR_S)):
            path = store.root / place / name
            path.write_bytes(b"half of it")
            os.utime(path, (time.time() - age_s, time.time() - age_s))
    return store.root


def temporaries(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob(".streambank-*.tmp")}


def test_only_old_ones_go_and_none_of_the_jobs(folder: Path) -> None:
    store, before = LocalStore(folder, fsync=False), temporaries(folder)
    dry = sweep(Repository.open(store), grace_s=HOUR_S, dry_run=True)
    assert temporaries(folder) == before
    report = sweep(Repository.open(store), grace_s=HOUR_S)
    assert [each.key for each in report.leftovers] == [OLD, f"packs/{OLD}"]
    assert dry.leftovers == report.leftovers and report.leftover_bytes == 20
    assert before - temporaries(folder) == {OLD, f"packs/{OLD}"}
    assert report.to_dict()["leftovers"][0] == {"file": OLD, "bytes": 10} and report.to_dict()["ok"]
    assert len(assert_whole(store)) == 1


def test_a_writer_that_goes_on_writing_keeps_its_file(tmp_path: Path) -> None:
    """It began long ago, and has added a byte just now."""
    store = LocalStore(tmp_path, fsync=False)
    Repository.open(store, create=True)
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield b"first"
        begun.set()
        assert go_on.wait(60)
        yield b"last"

    writer = threading.Thread(target=store.write, args=("objects/slow", slowly()))
    writer.start()
    assert begun.wait(60)
    assert sweep(Repository.open(store), grace_s=HOUR_S).leftovers == []
    go_on.set()
    writer.join()
    assert store.read("objects/slow") == b"firstlast"


def test_nothing_but_temporary_files_is_ever_discarded(folder: Path) -> None:
    store = LocalStore(folder)
    store.discard(Leftover("repository.json", 1))
    assert store.exists("repository.json")
    store.discard(Leftover(f"nowhere/{OLD}", 1))  # gone already


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / OLD).write_bytes(b"of somebody else")
    os.utime(outside / OLD, (1, 1))
    (folder / "link").symlink_to(outside)
    (folder / "packs" / f".streambank-{'c' * 32}.tmp").symlink_to(outside / OLD)
    report = sweep(Repository.open(LocalStore(folder)), grace_s=HOUR_S)
    assert [each.key for each in report.leftovers] == [OLD, f"packs/{OLD}"]
    assert (outside / OLD).exists()


def test_one_that_cannot_be_deleted_is_told_and_the_rest_goes(folder: Path) -> None:
    faulty = FaultyStore(LocalStore(folder), Fault("denied", operations=frozenset({"discard"})))
    report = sweep(Repository.open(faulty), grace_s=HOUR_S)
    faulty.assert_fired()
    assert list(report.left) == [OLD] and [each.key for each in report.leftovers] == [f"packs/{OLD}"]


def test_who_may_not_look_sweeps_all_the_same() -> None:
    store = MemoryStore()
    Repository.open(store, create=True)
    faulty = FaultyStore(store, Fault("denied", operations=frozenset({"leftovers"})))
    report = sweep(Repository.open(faulty), grace_s=HOUR_S)
    faulty.assert_fired()
    assert len(report.warnings) == 1 and report.to_dict()["ok"]
    broken = FaultyStore(store, Fault("error", operations=frozenset({"leftovers"})))
    with pytest.raises(StorageError):
        sweep(Repository.open(broken), grace_s=HOUR_S)


def test_uploads_on_a_server(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    seaweedfs.use(monkeypatch)
    location = seaweedfs.location()
    store, prefix = open_store(location), location.removeprefix(f"s3://{BUCKET}/")
    store_and_list(Repository.open(store, create=True), {"offsets": b"1" * 300}, 1)
    with seaweedfs.client() as raw:
        for key in (f"{prefix}/objects/aa/broken", f"{prefix}/jobs/x", f"{prefix}-other/objects/aa/broken"):
            upload = raw.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
            raw.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=b"p" * 5000)
        assert sweep(Repository.open(store), grace_s=HOUR_S).leftovers == []
        server_time = _Sweep._now_ns
        monkeypatch.setattr(_Sweep, "_now_ns", lambda self: server_time(self) + int(2 * HOUR_S * 1e9))
        report = sweep(Repository.open(store), grace_s=HOUR_S)
        assert [(each.key, each.size_bytes) for each in report.leftovers] == [("objects/aa/broken", 5000)]
        left = raw.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        assert f"{prefix}/objects/aa/broken" not in {each["Key"] for each in left}
        assert {f"{prefix}/jobs/x", f"{prefix}-other/objects/aa/broken"} <= {each["Key"] for each in left}
    assert sweep(Repository.open(store), grace_s=HOUR_S).leftovers == []
    assert len(assert_whole(store)) == 1


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def upload_of(key: str, number: int, hours: float) -> dict[str, Any]:
    return {"Key": key, "UploadId": f"u{number}", "Initiated": NOW - timedelta(hours=hours)}


class Pages:
    """A service that gives one upload, and one part, a page."""

    uploads = (
        upload_of("r/objects/slow", 1, 90),
        upload_of("r/objects/broken", 2, 90),
        upload_of("r/objects/young", 3, 1),
        upload_of("r/objects/completed", 4, 90),
        upload_of("other", 5, 90),
    )
    parts: ClassVar = {"u1": (80.0, 0.5, 70.0), "u2": (80.0, 30.0)}  # how many hours ago

    def list_multipart_uploads(self, **asked: Any) -> dict[str, Any]:
        at = int(asked.get("UploadIdMarker", "u0")[1:])
        last = at + 1 == len(self.uploads)
        return {
            "Uploads": [self.uploads[at]],
            "IsTruncated": not last,
            "NextKeyMarker": self.uploads[at]["Key"],
            "NextUploadIdMarker": f"u{at + 1}",
        }

    def list_parts(self, **asked: Any) -> dict[str, Any]:
        from botocore.exceptions import ClientError

        if asked["UploadId"] not in self.parts:
            raise ClientError({"Error": {"Code": "404"}}, "ListParts")
        ages, at = self.parts[asked["UploadId"]], asked.get("PartNumberMarker", 0)
        part = {"LastModified": NOW - timedelta(hours=ages[at]), "Size": 10}
        return {"Parts": [part], "IsTruncated": at + 1 < len(ages), "NextPartNumberMarker": at + 1}


def test_an_old_upload_whose_newest_part_is_young_goes_on() -> None:
    service = cast("Service", SimpleNamespace(client=Pages()))
    before_ns = int((NOW - timedelta(hours=24)).timestamp() * 1e9)
    found = list(leftovers(S3Address(service, BUCKET, "r/", "s3://b/r"), before_ns))
    assert found == [Leftover("objects/broken", 20, "u2")]
