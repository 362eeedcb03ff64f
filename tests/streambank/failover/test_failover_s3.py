"""Two sites on two S3 services, each with its own endpoint and credentials, in one process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.core.errors import StorageError
from streambank.core.names import PRIMARY, STANDBY
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.storage import open_store
from tests.support.checkpoint.with_garbage import write_with_garbage
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.two_sites import NAME, TwoSites
from tests.support.storage.s3_profiles import use_profiles
from tests.support.storage.s3_servers import BUCKET, S3Server, moto_server, seaweedfs

__all__ = ["moto_server", "seaweedfs"]  # fixtures

WEST = "west-savepoints"


@pytest.fixture
def sites(
    seaweedfs: S3Server, moto_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TwoSites]:
    """Repository and records of the primary on one server, those of the standby on another."""
    moto_server.use(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOFTHEEAST")  # the server in the west does not know it
    with seaweedfs.client() as client:
        client.create_bucket(Bucket=WEST)
    use_profiles({WEST: seaweedfs}, tmp_path, monkeypatch)
    found, folder = TwoSites(tmp_path), uuid.uuid4().hex
    text = found.jobs.read_text(encoding="utf-8")
    for site, bucket in ((PRIMARY, BUCKET), (STANDBY, WEST)):
        for what in ("savepoints", "control"):
            text = text.replace(f'"{site}/{what}"', f'"s3://{bucket}/{folder}/{what}"')
    found.jobs.write_text(text, encoding="utf-8")
    found.job = load_jobs(found.jobs).job(NAME)
    yield found
    for site in (PRIMARY, STANDBY):
        end_drivers(found.at(site).records())


def test_a_fail_over_between_two_services_up_to_its_start(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are asked, the primary is fenced and saved, and the standby restored: then the process dies."""
    fired: list[str] = []

    def dies(job: Job, **_: object) -> None:
        fired.append(job.site)
        raise StorageError("The launcher does not answer.", code="storage")

    monkeypatch.setattr("streambank.failover.failover.start_job", dies)
    write_with_garbage(open_store(sites.at(PRIMARY).checkpoint))
    savepoint = sites.save()
    with pytest.raises(StorageError):
        sites.fail_over(sink="accept")  # the planned batch may have been written, and no sink is known
    assert fired == [STANDBY]
    assert sites.newest(PRIMARY) == sites.newest(STANDBY) == (3, "active", STANDBY)
    restored, desired = sites.at(STANDBY).records().generation(), sites.at(PRIMARY).records().desired()
    assert restored is not None and restored.from_savepoint == savepoint
    assert desired is not None and desired.state == "stopped"
    assert sites.at(STANDBY).open_repository().load(NAME, savepoint).savepoint == savepoint


@pytest.mark.storm
def test_a_fail_over_between_two_services_and_the_way_back(
    sites: TwoSites, seaweedfs: S3Server, moto_server: S3Server
) -> None:
    sites.start()
    sites.until_batch(PRIMARY, 3)
    report = sites.fail_over()
    assert (report.site, report.fenced, report.fence, report.rpo_s) == (STANDBY, True, "boundary", 0)
    assert sites.newest(PRIMARY) == sites.newest(STANDBY) == (3, "active", STANDBY)
    assert sites.may_start() == [STANDBY]
    sites.until_batch(STANDBY, report.savepoints["main"].batch + 1)
    for server, bucket, other in ((moto_server, BUCKET, WEST), (seaweedfs, WEST, BUCKET)):
        with server.client() as client:
            buckets = {one["Name"] for one in client.list_buckets()["Buckets"]}
            assert bucket in buckets and (other == BUCKET or other not in buckets)
            keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]]
        assert any("/control/orders/sites/" in key for key in keys)
    assert sites.fail_over(PRIMARY).rpo_s == 0
    assert (sites.state(PRIMARY), sites.state(STANDBY)) == ("running", "stopped")
