"""Where things lie, on machines that there are not."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import StorageError
from streambank.declaration.airflow import AirflowPolicy
from streambank.declaration.declaration import Declarations, Job
from streambank.doctor.checks.locations import (
    check_fence,
    check_local_dir,
    check_location,
    check_one_disk,
    check_owners,
    check_records_apart,
    check_rules,
    check_unnamed,
)
from streambank.doctor.spark_conf import SparkConf
from streambank.storage.local.mounts import Mount
from streambank.storage.memory import MemoryStore
from streambank.storage.store import LifecycleRule
from tests.support.checkpoint.doctor_inputs import (
    DISK,
    MEMORY,
    NFS,
    SSD,
    VIRTUAL,
    conf,
    found,
    mounts,
    skipped,
)

UUID = "0b2d1c3e-1111-4222-8333-0123456789ab"


def test_a_checkpoint_that_spark_deletes_and_one_in_memory() -> None:
    seen = found(check_location(f"file:///tmp/temporary-{UUID}", mounts()))
    assert seen["no-checkpoint-location"].severity == "error"
    seen = found(check_location("file:///memory/ck", mounts(memory=MEMORY)))
    assert set(seen) == {"checkpoint-in-memory"} and "type tmpfs" in seen["checkpoint-in-memory"].cause
    for fine in ("file:///data/ck", "file:///tmp/temporary-1", "s3://bucket/ck"):
        assert not [*check_location(fine, mounts())]


def test_checkpoints_of_queries_without_a_location_are_found_on_this_machine(tmp_path: Path) -> None:
    assert not [*check_unnamed(tmp_path)]
    unnamed = tmp_path / f"temporary-{UUID}"
    unnamed.mkdir()
    assert not [*check_unnamed(tmp_path)], "an empty folder is no checkpoint"
    (unnamed / "metadata").write_text("{}")
    (unnamed / "offsets").mkdir()
    (finding,) = check_unnamed(tmp_path)
    assert getattr(finding, "file", "") == str(unnamed)


@pytest.mark.parametrize(
    ("checkpoint", "repository", "replicas", "expected"),
    [
        ("file:///a/ck", "file:///b/repo", (), "warning"),
        ("file:///a/ck", "file:///disk/repo", (), None),
        ("file:///a/ck", "s3://bucket/repo", (), None),
        ("file:///a/ck", "file:///b/repo", ("file:///disk/replica",), None),
        ("file:///a/ck", "file:///b/repo", ("file:///c/replica",), "warning"),
        ("s3a://bucket/ck", "s3://bucket/repo", (), "info"),
        ("s3://bucket/ck", "s3://other/repo", (), None),
        ("memory://a/ck", "memory://a/repo", (), None),
    ],
)
def test_one_disk_for_both_is_named_unless_a_replica_is_elsewhere(
    checkpoint: str, repository: str, replicas: tuple[str, ...], expected: str | None
) -> None:
    finding = found(check_one_disk(checkpoint, repository, replicas, mounts(disk=DISK))).get("one-disk")
    assert (finding.severity if finding else None) == expected


def test_two_partitions_of_one_disk_are_one_disk() -> None:
    other = Mount("/b", "xfs", "259:2", "nvme0n1", False)
    seen = found(check_one_disk("file:///a/ck", "file:///b/repo", (), mounts(b=other)))
    assert "both on the disk nvme0n1" in seen["one-disk"].cause
    unknown = check_one_disk("file:///a/ck", "file:///b/repo", (), lambda path: None)
    assert not [*unknown], "a machine that does not tell"


class Bucket(MemoryStore):
    """A store whose service has rules, or refuses to tell them."""

    prefix = "streams/orders/"
    rules: tuple[LifecycleRule, ...] | None = ()

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...]:
        if self.rules is None:
            raise StorageError("It does not answer.", code="storage", hint="Look by hand.")
        return self.rules

    def server_time(self) -> datetime:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("prefix", "tagged", "expected"),
    [
        ("", False, True),
        ("streams/", False, True),
        ("streams/orders/state/", False, True),
        ("streams/orders/", True, False),
        ("streams/returns/", False, False),
        ("logs/", False, False),
    ],
)
def test_rules_count_where_they_meet_the_prefix(prefix: str, tagged: bool, expected: bool) -> None:
    bucket = Bucket()
    bucket.rules = (LifecycleRule("tidy", prefix, tagged, ("deletes objects after 7 days",)),)
    seen = found(check_rules("checkpoint", bucket))
    assert set(seen) == ({"lifecycle-rule"} if expected else set())
    if expected:
        assert (
            "rule 'tidy'" in seen["lifecycle-rule"].cause and "after 7 days" in seen["lifecycle-rule"].cause
        )


def test_a_service_that_does_not_tell_its_rules_is_said() -> None:
    bucket = Bucket()
    bucket.rules = None
    assert skipped(check_rules("checkpoint", bucket))[0].why == "It does not answer."
    assert not [*check_rules("checkpoint", MemoryStore())], "no service, no rules"


@pytest.mark.parametrize(
    ("location", "declared", "leased", "began", "expected"),
    [
        ("s3a://bucket/ck", False, False, True, True),
        ("s3://bucket/ck", True, False, True, True),
        ("s3a://bucket/ck", True, True, True, False),
        ("s3a://bucket/ck", True, False, False, False),
        ("file:///ck", False, False, True, False),
    ],
)
def test_s3_without_a_lease_is_named(
    location: str, declared: bool, leased: bool, began: bool, expected: bool
) -> None:
    seen = found(check_fence(location, declared=declared, leased=leased, began=began))
    assert set(seen) == ({"unfenced-s3"} if expected else set())


MACHINE = mounts(nfs=NFS, memory=MEMORY, disk=DISK, virtual=VIRTUAL)


@pytest.mark.parametrize(
    ("settings", "environment", "named"),
    [
        (conf(), {}, None),
        (conf(spark__local__dir="/nfs/spark"), {}, "over a network"),
        (conf(spark__local__dir="/ssd, /disk/spark"), {}, "the disk sda, which spins"),
        (conf(spark__local__dir="/memory"), {}, "whose files take memory"),
        (conf(spark__local__dir="/ssd"), {"SPARK_LOCAL_DIRS": "/nfs/x"}, "over a network"),
        (conf(spark__local__dir="/nfs"), {"SPARK_LOCAL_DIRS": "/ssd"}, None),
    ],
)
def test_rocksdb_wants_a_local_ssd(
    settings: SparkConf, environment: dict[str, str], named: str | None
) -> None:
    seen = [*check_local_dir(settings, environment, True, MACHINE)]
    assert not skipped(seen)
    finding = found(seen).get("rocksdb-local-dir")
    assert (finding is not None) == (named is not None)
    if finding is not None and named is not None:
        assert named in finding.cause


def test_disks_that_cannot_be_seen_are_said() -> None:
    for settings, here, why in (
        (None, True, "not declared as a job"),
        (conf("yarn"), True, "on executors of yarn"),
        (conf(), False, "on another machine"),
        (conf(spark__local__dir="/virtual/x"), True, "the disk vda, which does not tell what is behind it"),
    ):
        (told,) = skipped(check_local_dir(settings, {}, here, MACHINE))
        assert why in told.why
    assert SSD.storage == "nvme0n1" and NFS.storage == "0:50"


def test_records_among_savepoints_are_named_and_louder_where_others_save_there() -> None:
    repository, apart = (
        MemoryStore("memory://r/savepoints"),
        MemoryStore("memory://r/savepoints.control/orders"),
    )
    assert not found(check_records_apart("orders", apart, repository))
    inside = repository.child("jobs/orders")
    repository.write("savepoints/orders/b000001-1.json", b"")
    assert (
        found(check_records_apart("orders", inside, repository))["records-in-repository"].severity == "info"
    )
    repository.write("savepoints/sales/b000001-1.json", b"")
    seen = found(check_records_apart("orders", inside, repository))["records-in-repository"]
    assert seen.severity == "warning" and "savepoints of sales are" in seen.cause
    assert "move-records orders" in seen.hint


def test_owners_that_share_a_place_are_named() -> None:
    def job(name: str, owner: str | None, repository: str, control: str | None = None) -> Job:
        return Job(name, "a.py", name, {}, repository, control, airflow=AirflowPolicy(owner=owner))

    orders = job("orders", "payments", "s3://lake/one")
    all_of = [orders, job("sales", "payments", "s3://lake/one"), job("tmp", None, "s3://lake/one")]

    def look(one: Job) -> Any:
        file = Declarations("jobs.toml", "r", None, {each.name: each for each in all_of})
        return found(check_owners(one, file))

    assert not look(orders)
    all_of.append(job("bets", "games", "s3://lake/one"))
    assert "jobs of games" in look(orders)["several-owners"].cause
    assert not look(job("orders", "payments", "s3://lake/five")), "no control declared"
    alone = job("orders", "payments", "s3://lake/two", "s3://lake/control")
    assert not look(alone)
    all_of.append(job("slots", "games", "s3://lake/three", "s3://lake/control"))
    assert "control location" in look(alone)["several-owners"].cause
