"""Bringing back what was deleted in a bucket with versions, on a real service."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import StorageError
from streambank.core.units import to_json_time, utc_now
from streambank.repository.catalog import manifest_key
from streambank.repository.holds import is_hold
from streambank.repository.locks import LockPolicy
from streambank.repository.repository import Repository
from streambank.retention.undelete_files import undelete_files
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.storage.s3.client import S3Address, forget_clients
from streambank.storage.s3.store import S3Store
from streambank.storage.store import Covered
from streambank.work.pace import Step
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.json_examples import examples, mismatches
from tests.support.storage.s3_servers import (
    BUCKET,
    READER_KEY,
    READER_SECRET,
    S3Server,
    moto_server,
    seaweedfs,
    versitygw,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.storm

__all__ = ["moto_server", "seaweedfs", "versitygw"]  # fixtures

LOCKED = "locked"
JOB = "orders"
OTHERS = ("moto_server", "versitygw")
UNLOCKED = "-unlocked"
"""Ends places on moto, which fails (500) where it is asked for the lock of an object that has none."""


@pytest.fixture(params=["seaweedfs", *(pytest.param(one, marks=pytest.mark.storm) for one in OTHERS)])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found.use(monkeypatch)


@pytest.fixture
def bucket(server: S3Server) -> Iterator[Any]:
    """A client of a service that has a bucket with Object Lock, and so with versions."""
    with server.client() as asked:
        make_locked(asked)
        yield asked


def make_locked(client: Any) -> None:
    """Make the bucket with Object Lock, once."""
    if LOCKED not in {one["Name"] for one in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=LOCKED, ObjectLockEnabledForBucket=True)


@pytest.fixture
def place(server: S3Server, bucket: Any, request: pytest.FixtureRequest) -> str:
    """Where the repository is: a prefix that nobody has used."""
    answers = server is not request.getfixturevalue("moto_server")
    return server.location().replace(BUCKET, LOCKED, 1) + ("" if answers else UNLOCKED)


@pytest.fixture
def live(place: str, tmp_path: Path) -> LiveCheckpoint:
    return LiveCheckpoint(open_store(tmp_path / "checkpoint"), retain=9).run(3)


def saved(live: LiveCheckpoint, place: str) -> str:
    """The savepoint of the newest batch, locked for a day."""
    lock = None if place.endswith(UNLOCKED) else LockPolicy(86400.0)
    repository = Repository.open(open_store(place), create=True, lock=lock)
    return take(TakeRequest(live.store, repository, JOB)).savepoint


def destroy(place: str) -> set[str]:
    """Delete all files as an attacker can who has Streambank's credentials; their names."""
    store = open_store(place)
    keys = {info.path for info in store.list()}
    for key in keys:
        store.delete(key)
    assert not list(store.list())
    return keys


def versions(bucket: Any, place: str) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """All versions of objects, and all delete markers, below a place."""
    prefix = place.removeprefix(f"s3://{LOCKED}/") + "/"
    pages = bucket.get_paginator("list_object_versions").paginate(Bucket=LOCKED, Prefix=prefix)
    found: tuple[set[tuple[str, str]], set[tuple[str, str]]] = (set(), set())
    for page in pages:
        for kind, into in zip(("Versions", "DeleteMarkers"), found, strict=True):
            into |= {(each["Key"], each["VersionId"]) for each in page.get(kind, ())}
    return found


def whole(place: str, *savepoints: str) -> bool:
    repository = Repository.open(open_store(place))
    listed = {one.savepoint for one in repository.manifests()}
    return listed == set(savepoints) and all(
        verify(repository, JOB, savepoint, "full").ok for savepoint in savepoints
    )


def test_all_that_was_deleted_comes_back(live: LiveCheckpoint, place: str, bucket: Any) -> None:
    first = saved(live, place)
    live.run(2)
    second = saved(live, place)
    expected = {key for key in destroy(place) if not key.startswith(("index/", "condemned/"))}
    lost = streambank("list", "-r", place)
    assert lost.code in (3, 5) and "undelete-files" in lost.err, "moto lists prefixes without objects"

    before = versions(bucket, place)
    plan = succeed("undelete-files", "-r", place, "--json").document
    assert versions(bucket, place) == before, "a plan changes nothing"
    assert plan["dry_run"] and plan["undeleted"] == 0 and plan["indexed_packs"] is None
    assert plan["files"] == len(expected) == sum(plan["days"].values()) and plan["bytes"] > 0
    assert plan["savepoints"] == sorted(f"{JOB}/{savepoint}" for savepoint in (first, second))
    assert list(mismatches(examples()["undelete-files"], plan)) == []
    said = succeed("undelete-files", "-r", place).out
    assert f"would come back: savepoint {JOB}/{first}" in said and "Nothing was changed" in said

    done = succeed("undelete-files", "-r", place, "--execute", "--json")
    assert (done.document["files"], done.document["undeleted"]) == (plan["files"], plan["files"])
    assert done.document["indexed_packs"] > 0 and "undelete:" in done.err
    assert versions(bucket, place)[0] >= before[0], "no version of a file is removed"
    assert expected <= {info.path for info in open_store(place).list()}
    assert whole(place, first, second)
    assert succeed("verify", "--all", "-r", place).code == 0

    left = versions(bucket, place)
    again = succeed("undelete-files", "-r", place, "--execute", "--json").document
    assert (again["files"], again["undeleted"]) == (0, 0)
    assert versions(bucket, place) == left
    assert "No file that was deleted can come back." in succeed("undelete-files", "-r", place).out


def test_what_was_deleted_before_stays_deleted(live: LiveCheckpoint, place: str) -> None:
    first = saved(live, place)
    live.run(2)
    second = saved(live, place)
    store = open_store(place)
    store.delete(manifest_key(JOB, first))
    assert isinstance(store, S3Store)
    (early,) = store.covered(manifest_key(JOB, first))
    since = early.deleted_at + timedelta(seconds=2)
    wait_for("the service's clock", lambda: store.server_time() > since)
    destroy(place)
    report = undelete_files(store, since=since)
    assert report.first_deleted_at is not None and report.first_deleted_at >= since
    assert report.savepoints == [f"{JOB}/{second}"]
    assert whole(place, second)
    everything = succeed("undelete-files", "-r", place, "--since", "3d", "--execute", "--json").document
    assert everything["savepoints"] == [f"{JOB}/{first}"]
    assert whole(place, first, second)
    ahead = to_json_time(utc_now() + timedelta(days=1))
    assert succeed("undelete-files", "-r", place, "--since", ahead, "--json").document["since"] == ahead


def test_an_interrupted_one_is_finished_by_the_next(
    live: LiveCheckpoint, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = saved(live, place)
    destroy(place)
    files = undelete_files(open_store(place)).files
    assert files > 2
    for number in range(files):
        destroy(place)
        with monkeypatch.context() as patch:
            failed = _break_at(patch, number)
            with pytest.raises(StorageError):
                undelete_files(open_store(place))
            assert failed, "the fault has fired"
        store = open_store(place)
        assert not store.exists(manifest_key(JOB, taken)), "a manifest comes back last"
        undelete_files(store)
        assert store.exists(manifest_key(JOB, taken))
    assert whole(place, taken)


def _break_at(patch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let the service be gone from a call on; the calls that failed."""
    done: list[str] = []
    failed: list[str] = []
    uncover = S3Store.uncover

    def one(self: S3Store, file: Covered) -> None:
        if len(done) >= number:
            failed.append(file.key)
            raise StorageError("gone", code="not-reachable", hint="")
        done.append(file.key)
        uncover(self, file)

    patch.setattr(S3Store, "uncover", one)
    patch.setattr("streambank.retention.undelete_files.at_once", lambda store: 1)
    return failed


def test_two_markers_over_one_file_and_a_write_over_a_deleted_one(
    live: LiveCheckpoint, place: str, bucket: Any
) -> None:
    taken = saved(live, place)
    store = open_store(place)
    destroy(place)
    for key in ("repository.json", manifest_key(JOB, taken)):
        store.delete(key)  # lays another marker where the service lays two
    store.write("marks/note", b"new")
    store.delete("marks/note")
    store.write("marks/note", b"newer")
    steps: list[Step] = []
    report = undelete_files(store, progress=steps.append)
    assert (steps[-1].files_done, steps[-1].files_total) == (report.files, report.files)
    assert whole(place, taken) and store.read("marks/note") == b"newer"


def test_records_of_jobs_come_back_too(place: str) -> None:
    store = open_store(f"{place}.control")
    for key in ("orders/generation/0000000001.json", "index/lease/0000000001.json"):
        store.write(key, b"{}")
        store.delete(key)
    report = undelete_files(store)
    assert (report.files, report.undeleted, report.indexed_packs) == (2, 2, None)
    assert store.read("index/lease/0000000001.json") == b"{}"


def test_holds_of_readers_stay_deleted(live: LiveCheckpoint, place: str) -> None:
    taken = saved(live, place)
    hold = f"marks/{JOB}/{taken}/hold-{'a' * 32}.json"
    assert is_hold(hold) and not is_hold(f"marks/{JOB}/{taken}/pin-0000000001.json")
    store = open_store(place)
    store.write(hold, b"{}")
    store.delete(hold)
    assert undelete_files(store).undeleted == 0 and not store.exists(hold)


@pytest.mark.parametrize("more", [[], ["--execute"]])
def test_where_no_versions_are_kept(server: S3Server, tmp_path: Path, more: list[str]) -> None:
    for where in (server.location(), str(tmp_path)):
        refused = streambank("undelete-files", "-r", where, *more, "--json")
        assert (refused.code, refused.document["error"]) == (8, "no-versions")
        assert where.rpartition("/")[2] in refused.document["message"]


@pytest.mark.parametrize("since", ["yesterday", "2026-11-21", "9" * 400 + "d"])
def test_a_time_that_is_none_is_refused(tmp_path: Path, since: str) -> None:
    refused = streambank("undelete-files", "-r", str(tmp_path), "--since", since, "--json")
    assert (refused.code, refused.document["error"]) == (2, "bad-time")


def test_without_the_right_to_do_so_nothing_changes(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SeaweedFS checks rights; moto does not."""
    seaweedfs.use(monkeypatch)
    with seaweedfs.client() as asked:
        make_locked(asked)
        place = seaweedfs.location().replace(BUCKET, LOCKED, 1)
        saved(LiveCheckpoint(open_store(tmp_path / "checkpoint"), retain=9).run(3), place)
        destroy(place)
        before = versions(asked, place)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READER_SECRET)
        forget_clients()
        refused = streambank("undelete-files", "-r", place, "--execute", "--json")
        assert refused.document["error"] == "no-permission", refused
        assert "s3:DeleteObjectVersion" in refused.document["hint"]
        assert versions(asked, place) == before


def test_a_long_listing_is_read_page_by_page(
    live: LiveCheckpoint, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(live, place)
    store = open_store(place)
    assert isinstance(store, S3Store)
    destroy(place)
    expected = {file.key: file for file in store.covered()}
    asked = 0
    ask = S3Address.ask

    def counting(*args: Any, **parameters: Any) -> Any:
        nonlocal asked
        asked += 1
        return ask(*args, **parameters)

    monkeypatch.setattr("streambank.storage.s3.versions.PAGE_KEYS", 2)
    monkeypatch.setattr(S3Address, "ask", counting)
    assert {file.key: file for file in store.covered()} == expected
    assert asked > len(expected) / 2
