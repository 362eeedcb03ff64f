"""Savepoints that are locked, on a real service: nobody deletes what they are made of before a date."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from streambank.core.errors import InputError, IntegrityError, RefusedError, StorageError
from streambank.core.units import utc_now
from streambank.declaration.load import load_jobs
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.replicas.header_repair import open_for_repair
from streambank.replicas.repair import repair
from streambank.replicas.replicate import newest_first, replicate_to
from streambank.repository.catalog import manifest_key
from streambank.repository.locks import LockPolicy, locked_until, places, visible_locks
from streambank.repository.repository import Repository
from streambank.retention.expire import expire
from streambank.retention.policy import Policy
from streambank.retention.sweep import sweep
from streambank.savepoint.take import TakeRequest, TakeResult, take
from streambank.storage import open_store
from streambank.storage.memory import MemoryStore
from streambank.storage.s3.lock import lock
from streambank.storage.s3.store import S3Store
from streambank.storage.store import Lock
from streambank.work.executor import Pace
from streambank.work.pace import Step
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank
from tests.support.jobs.declared import write_jobs
from tests.support.refuses import refuses
from tests.support.repository.repositories import FILES, manifest_of
from tests.support.storage.s3_servers import BUCKET, S3Server, seaweedfs

pytestmark = pytest.mark.storm

__all__ = ["seaweedfs"]  # a fixture

LOCKED = "locked"
DAY_S = 86400.0


@pytest.fixture
def bucket(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a service that has a bucket with locks."""
    seaweedfs.use(monkeypatch)
    with seaweedfs.client() as client:
        if LOCKED not in {one["Name"] for one in client.list_buckets()["Buckets"]}:
            client.create_bucket(Bucket=LOCKED, ObjectLockEnabledForBucket=True)
        yield client


@pytest.fixture
def live(bucket: Any, seaweedfs: S3Server) -> LiveCheckpoint:
    return LiveCheckpoint(open_store(seaweedfs.location()), retain=9).run(3)


@pytest.fixture
def place(seaweedfs: S3Server) -> str:
    """Where the repository is: a prefix that nobody has used."""
    return seaweedfs.location().replace(BUCKET, LOCKED, 1)


def saved(live: LiveCheckpoint, place: str, days: float | None) -> tuple[Repository, TakeResult]:
    lock = None if days is None else LockPolicy(days * DAY_S)
    repository = Repository.open(open_store(place), create=True, lock=lock)
    return repository, take(TakeRequest(live.store, repository, "orders"))


def ends(repository: Repository) -> dict[str, datetime | None]:
    """When the lock of each file of the repository ends."""
    store = repository.store
    locks = visible_locks(store)
    return {info.path: None if locks is None else locked_until(locks, info.path) for info in store.list()}


def parts(repository: Repository, savepoint: str) -> set[str]:
    """The files that a savepoint is made of."""
    manifest = repository.load("orders", savepoint)
    keys = {repository.objects.locate(digest).key for digest in manifest.objects()}
    return keys | {manifest_key("orders", savepoint), "repository.json"}


def midnight(days: int) -> datetime:
    """The midnight after so many days from now."""
    day = (utc_now() + timedelta(days=days + 1)).date()
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def test_all_that_a_savepoint_is_made_of_is_locked(live: LiveCheckpoint, place: str, bucket: Any) -> None:
    repository, taken = saved(live, place, 2)
    found = ends(repository)
    assert {found[key] for key in parts(repository, taken.savepoint)} == {midnight(2)}
    for key in parts(repository, taken.savepoint):
        whole = f"{place.removeprefix(f's3://{LOCKED}/')}/{key}"
        (version,) = bucket.list_object_versions(Bucket=LOCKED, Prefix=whole)["Versions"]
        with pytest.raises(ClientError, match="AccessDenied"):
            bucket.delete_object(Bucket=LOCKED, Key=whole, VersionId=version["VersionId"])


def test_how_many_files_are_locked_is_said_on_the_way(live: LiveCheckpoint, place: str) -> None:
    steps: list[Step] = []
    repository = Repository.open(open_store(place), create=True, lock=LockPolicy(DAY_S))
    request = TakeRequest(live.store, repository, "orders")
    pace = Pace(progress=steps.append)
    taken = take(request, pace=pace)
    locked = [(step.files_done, step.files_total) for step in steps if step.phase == "lock"]
    whole = len(parts(repository, taken.savepoint)) - 1  # the manifest is the last, and counts no more
    assert whole > 1 and locked == [(number, whole) for number in range(1, whole + 1)]
    steps.clear()
    assert take(request, pace=pace).already_there
    assert [step.phase for step in steps].count("lock") == whole, "also where locks are only extended"
    again = streambank("take", live.store.uri, "--job", "orders", "-r", place, "--lock", "3d")
    assert again.code == 0 and f"lock: {whole}/{whole} files\n" in again.err


def test_one_savepoint_has_one_end_also_over_midnight(
    live: LiveCheckpoint, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evening = datetime(2040, 5, 4, 23, 59, 59, tzinfo=UTC)
    asked: list[datetime] = []

    def clock() -> datetime:
        asked.append(evening + timedelta(seconds=2 * len(asked)))
        return asked[-1]

    with monkeypatch.context() as patch:
        patch.setattr("streambank.repository.locks.utc_now", clock)
        repository, taken = saved(live, place, 1)
    assert asked
    assert {ends(repository)[key] for key in parts(repository, taken.savepoint)} == {
        datetime(2040, 5, 6, tzinfo=UTC)
    }


def test_without_a_lock_nothing_is_locked(live: LiveCheckpoint, place: str) -> None:
    """The negative control."""
    repository, _ = saved(live, place, None)
    assert set(ends(repository).values()) == {None}


def test_what_a_later_savepoint_shares_is_locked_for_longer(live: LiveCheckpoint, place: str) -> None:
    repository, first = saved(live, place, 1)
    assert set(ends(repository).values()) <= {midnight(1), None}
    live.run(1)
    again, second = saved(live, place, 5)
    assert second.savepoint != first.savepoint
    found, shared = ends(again), parts(again, first.savepoint) & parts(again, second.savepoint)
    assert len(shared) > 1, "a test of what two savepoints share"
    assert {found[key] for key in parts(again, second.savepoint)} == {midnight(5)}
    assert found[manifest_key("orders", first.savepoint)] == midnight(1)
    saved(live, place, 2)
    assert {ends(again)[key] for key in parts(again, second.savepoint)} == {midnight(5)}, (
        "never for less long"
    )


def test_a_savepoint_that_is_there_already_is_locked_for_longer(live: LiveCheckpoint, place: str) -> None:
    _, first = saved(live, place, 1)
    repository, again = saved(live, place, 4)
    assert again.already_there and again.savepoint == first.savepoint
    assert {ends(repository)[key] for key in parts(repository, first.savepoint)} == {midnight(4)}


@pytest.mark.parametrize("where", ["a bucket without locks", "memory"])
def test_where_nothing_can_be_locked_nothing_is_saved(
    live: LiveCheckpoint, seaweedfs: S3Server, where: str
) -> None:
    store = MemoryStore("memory://r") if where == "memory" else open_store(seaweedfs.location())
    repository = Repository.open(store, create=True, lock=LockPolicy(DAY_S))
    with refuses(RefusedError, "no-object-lock"):
        take(TakeRequest(live.store, repository, "orders"))
    assert [info.path for info in store.list()] == ["repository.json"]


def test_expire_keeps_what_is_locked_and_says_until_when(live: LiveCheckpoint, place: str) -> None:
    repository, first = saved(live, place, 1)
    live.run(2)
    _, second = saved(live, place, None)
    later = utc_now() + timedelta(hours=1)
    report = expire(repository, Policy(keep_last=1, min_verified=0), now=later)
    (kept,) = [one for one in report.decisions if one.summary.savepoint == first.savepoint]
    assert kept.keep and [reason.rule for reason in kept.reasons] == ["locked"]
    assert f"{midnight(1):%Y-%m-%d} 00:00 UTC" in kept.reasons[0].why
    assert {one.savepoint for one in repository.manifests()} == {first.savepoint, second.savepoint}


def test_sweep_leaves_what_is_locked_and_says_until_when(
    live: LiveCheckpoint, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, taken = saved(live, place, 1)
    repository.store.delete(manifest_key("orders", taken.savepoint))  # as an attacker can: a marker covers it
    monkeypatch.setattr("streambank.retention.sweep._Sweep._old_ns", lambda self: 1 << 62)
    report = sweep(repository)
    assert report.condemned.files == 0 and report.locked.files > 0
    assert report.locked_until == midnight(1)
    said = report.to_dict()
    assert said["locked"]["files"] == report.locked.files and said["locked_until"].endswith("T00:00:00.000Z")


def test_what_is_covered_by_a_marker_comes_back_with_it_removed(
    live: LiveCheckpoint, place: str, bucket: Any
) -> None:
    repository, taken = saved(live, place, 1)
    for info in list(repository.store.list()):
        repository.store.delete(info.path)
    assert not list(repository.store.list())
    prefix = place.removeprefix(f"s3://{LOCKED}/")
    for marker in bucket.list_object_versions(Bucket=LOCKED, Prefix=prefix)["DeleteMarkers"]:
        bucket.delete_object(Bucket=LOCKED, Key=marker["Key"], VersionId=marker["VersionId"])
    back = MemoryStore("memory://back")
    restore(RestoreRequest(Repository.open(open_store(place)), taken.savepoint, job="orders", into=back))
    assert back.exists("metadata")


def test_a_replica_is_locked_for_itself(live: LiveCheckpoint, place: str, seaweedfs: S3Server) -> None:
    source, taken = saved(live, seaweedfs.location(), None)
    which = newest_first(source)
    refused = replicate_to(source, open_store, seaweedfs.location(), which, lock=LockPolicy(DAY_S))
    assert refused.error is not None and refused.error.code == "no-object-lock"
    assert replicate_to(source, open_store, place, which, lock=LockPolicy(3 * DAY_S)).ok
    replica = Repository.open(open_store(place))
    assert {ends(replica)[key] for key in parts(replica, taken.savepoint)} == {midnight(3)}


def test_a_savepoint_made_from_another_is_locked_as_that_one(live: LiveCheckpoint, place: str) -> None:
    repository, first = saved(live, place, 4)
    live.run(1)
    plain = Repository.open(open_store(place))
    origin = repository.load("orders", first.savepoint)
    derived = take(TakeRequest(live.store, plain, "orders", derived_from=origin))
    assert derived.savepoint != first.savepoint
    assert {ends(plain)[key] for key in parts(plain, derived.savepoint)} == {midnight(4)}


def test_what_a_repair_stores_again_is_locked(live: LiveCheckpoint, place: str, seaweedfs: S3Server) -> None:
    repository, taken = saved(live, place, 3)
    replica = seaweedfs.location()
    assert replicate_to(repository, open_store, replica, newest_first(repository)).ok
    manifest = repository.load("orders", taken.savepoint)
    (pack, *_) = {repository.objects.locate(digest).key for digest in manifest.objects()}
    repository.store.delete(pack)
    fresh, error = open_for_repair(open_store(place), dry_run=False)
    replicas, which = [Repository.open(open_store(replica))], [("orders", taken.savepoint)]
    report = repair(fresh, replicas, which, header_error=error)
    assert report.ok and report.repaired
    again = Repository.open(open_store(place))
    assert {ends(again)[key] for key in parts(again, taken.savepoint)} == {midnight(3)}


def test_a_manifest_that_a_repair_replaces_is_locked_by_the_policy(
    live: LiveCheckpoint, place: str, seaweedfs: S3Server
) -> None:
    repository, taken = saved(live, place, 3)
    replica = seaweedfs.location()
    assert replicate_to(repository, open_store, replica, newest_first(repository)).ok
    repository.store.write(manifest_key("orders", taken.savepoint), b"{}")
    answer = streambank("repair", "-r", place, "--from", replica, "--job", "orders", "--lock", "5d")
    assert answer.code == 0, answer.err
    again = Repository.open(open_store(place))
    assert {ends(again)[key] for key in parts(again, taken.savepoint)} == {midnight(5)}


def test_what_a_replica_gets_again_is_locked(live: LiveCheckpoint, place: str, seaweedfs: S3Server) -> None:
    source, taken = saved(live, seaweedfs.location(), None)
    which = newest_first(source)
    assert replicate_to(source, open_store, place, which, lock=LockPolicy(3 * DAY_S)).ok
    replica = Repository.open(open_store(place))
    for key in parts(replica, taken.savepoint) - {manifest_key("orders", taken.savepoint), "repository.json"}:
        replica.store.delete(key)
    (again,) = replicate_to(source, open_store, place, which, lock=LockPolicy(3 * DAY_S)).savepoints
    assert again.state == "refilled"
    fresh = Repository.open(open_store(place))
    assert {ends(fresh)[key] for key in parts(fresh, taken.savepoint)} == {midnight(3)}


def test_a_lock_that_has_ended_does_not_decide_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    class Ended:
        def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
            if operation == "put_object_retention":
                asked.append(parameters["Retention"])
            old = {"RetainUntilDate": datetime(2020, 1, 1, tzinfo=UTC), "Mode": "COMPLIANCE"}
            return {"Retention": old, "ResponseMetadata": {"HTTPStatusCode": 200}}

    lock(Ended(), Lock(midnight(2), "governance"))  # type: ignore[arg-type]  # all that it asks
    assert asked == [{"Mode": "GOVERNANCE", "RetainUntilDate": midnight(2)}]


class LockingMemory(MemoryStore):
    """Memory whose files can be locked."""

    def takes_locks(self) -> bool:
        return True

    def lock(self, key: str, lock: Lock) -> None:
        self.stat(key)

    def lock_of(self, key: str) -> Lock | None:
        self.stat(key)
        return None


def test_what_goes_away_while_it_is_locked_is_stored_again() -> None:
    """A sweep may delete a pack during a long take: the take heals that, with locks as without."""
    store = LockingMemory()
    with Repository.open(store, create=True).objects.writer() as writer:
        for data in FILES.values():
            writer.add(data, len(data))
    repository = Repository.open(store, lock=LockPolicy(DAY_S))
    manifest = manifest_of(FILES, digest=repository.digest_name)
    assert places(repository.objects, manifest.objects()), "it counts on what is there"
    for info in list(store.list()):
        if info.path.startswith(("packs/", "index/")):
            store.delete(info.path)
    with refuses(IntegrityError, "object-missing"):
        repository.commit(manifest)


@pytest.mark.parametrize("code", ["no-permission", "storage"])
def test_who_may_not_see_locks_is_not_kept_from_expiring(
    live: LiveCheckpoint, place: str, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    repository, first = saved(live, place, None)
    live.run(1)
    saved(live, place, None)
    asked = 0

    def refused(self: S3Store) -> bool:
        nonlocal asked
        asked += 1
        raise StorageError("no", code=code, hint="")

    monkeypatch.setattr(S3Store, "takes_locks", refused)
    report = expire(repository, Policy(keep_last=1, min_verified=0), dry_run=True)
    assert [one.summary.savepoint for one in report.dropped] == [first.savepoint] and asked == 1


def test_a_lock_is_declared_for_the_job_and_for_its_replicas(tmp_path: Any) -> None:
    more = 'savepoint = {{ lock = "30d"{0} }}\nreplicate = {{ to = ["s3://other/r"], lock = "7d" }}\n'
    declared = load_jobs(write_jobs(tmp_path, more=more.format(', lock_mode = "compliance"'))).job("flights")
    assert declared.savepoint.lock == LockPolicy(30 * DAY_S, "compliance")
    assert declared.replicate.lock == LockPolicy(7 * DAY_S, "governance")
    with pytest.raises(InputError, match="lock_mode"):
        load_jobs(write_jobs(tmp_path, more='savepoint = { lock_mode = "compliance" }\n'))
    with pytest.raises(InputError, match="a hundred years"):
        load_jobs(write_jobs(tmp_path, more='savepoint = { lock = "99999d" }\n'))


def test_the_command_line_refuses_a_lock_on_a_disk(tmp_path: Any) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "ck")).run(2)
    where = ("-r", tmp_path / "repository", "--job", "orders")
    answer = streambank("take", live.store.uri, *where, "--lock", "30d")
    assert answer.code == 8 and "cannot be locked" in answer.err
    assert streambank("take", live.store.uri, *where, "--lock", "soon").code == 2
    endless = streambank("take", live.store.uri, *where, "--lock", "99999d")
    assert endless.code == 2 and "a hundred years" in endless.err
