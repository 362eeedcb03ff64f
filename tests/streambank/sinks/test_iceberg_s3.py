"""Iceberg tables with a warehouse on a real S3 server: by our own access, unless the catalog has its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.utils.config import Config

from streambank.core.errors import RefusedError, StorageError
from streambank.sinks.iceberg import IcebergGuard
from streambank.sinks.iceberg_catalog import IcebergTable
from streambank.storage.s3.credentials import S3Access, using_s3
from tests.support.sinks.iceberg import NAME, IceTable, s3_properties
from tests.support.storage.s3_servers import (
    ACCESS_KEY,
    READER_KEY,
    READER_SECRET,
    SECRET_KEY,
    S3Server,
    seaweedfs,
)

pytestmark = pytest.mark.storm

__all__ = ["seaweedfs"]  # a fixture

QUERY = "051c7676-82ba-42c3-8085-6b157703ac5f"
WRONG = "not-the-secret-0123456789"


@pytest.fixture
def ice(seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IceTable:
    """Batches 0 to 4; what writes them is given the tests' own access by name, and no variable says any."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    made = IceTable(tmp_path / "lake", QUERY, warehouse=seaweedfs.location(), access=s3_properties(seaweedfs))
    made.create()
    for batch in range(5):
        made.write(batch, [f"{batch}-0", f"{batch}-1"])
    return made


def access(server: S3Server, secret: str = SECRET_KEY, key: str = ACCESS_KEY) -> S3Access:
    return S3Access(
        access_key_id=key,
        secret_access_key=secret,
        endpoint_url=server.endpoint,
        region="us-east-1",
    )


def goes_back(ice: IceTable, guard: IcebergGuard) -> None:
    captured = guard.capture(4)
    assert not captured.warning and captured.record["sink_batch"] == 4
    before = ice.rows()
    for batch in (5, 6):
        ice.write(batch, [f"{batch}-0"])
    standing = guard.stand(4, captured.record)
    assert (standing.position, standing.later_batches, standing.later_rows) == ("ahead", 2, 2)
    guard.roll_back(standing)
    assert ice.rows() == before and guard.stand(4, captured.record).safe


def test_by_our_own_access(ice: IceTable, seaweedfs: S3Server) -> None:
    with using_s3(access(seaweedfs)):
        goes_back(ice, IcebergGuard(ice.place, QUERY))


def test_by_the_variables_of_the_process(
    ice: IceTable, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    seaweedfs.use(monkeypatch)
    goes_back(ice, IcebergGuard(ice.place, QUERY))


def test_what_the_catalog_says_comes_first(ice: IceTable, seaweedfs: S3Server) -> None:
    place = IcebergTable(NAME, ice.properties | s3_properties(seaweedfs))
    with using_s3(access(seaweedfs, WRONG)):
        goes_back(ice, IcebergGuard(place, QUERY))


def test_so_does_what_pyiceberg_itself_is_configured_with(
    ice: IceTable, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_properties(seaweedfs).items():
        monkeypatch.setenv(
            f"PYICEBERG_CATALOG__LAKE__{name.upper().replace('.', '__').replace('-', '_')}", value
        )
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    with using_s3(access(seaweedfs, WRONG)):
        goes_back(ice, IcebergGuard(ice.place, QUERY))


def test_wrong_credentials(ice: IceTable, seaweedfs: S3Server) -> None:
    guard = IcebergGuard(ice.place, QUERY)
    with using_s3(access(seaweedfs)):
        record = guard.capture(4).record
        ice.write(5, ["5-0"])
        standing = guard.stand(4, record)
    with using_s3(access(seaweedfs, WRONG)):
        captured, unknown = guard.capture(4), guard.stand(4, record)
        with pytest.raises(StorageError) as caught:
            guard.roll_back(standing)
    assert caught.value.code == "sink-not-reachable" and "`catalog`" in caught.value.hint
    assert unknown.position == "not-known" and captured.warning
    said = f"{caught.value.message}{caught.value.__cause__}{captured}{unknown}"
    assert WRONG not in said and ACCESS_KEY not in said


def test_a_warehouse_elsewhere_is_not_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table must not depend on whether boto3 is installed, or a profile exists."""
    monkeypatch.setenv("AWS_PROFILE", "there-is-none")
    made = IceTable(tmp_path / "lake", QUERY)
    made.create()
    made.write(0, ["0-0"])
    assert not IcebergGuard(made.place, QUERY).capture(0).warning


def test_a_missing_right_changes_nothing(ice: IceTable, seaweedfs: S3Server) -> None:
    guard = IcebergGuard(ice.place, QUERY)
    with using_s3(access(seaweedfs)):
        record = guard.capture(4).record
    ice.write(5, ["5-0"])
    before = ice.rows()
    with using_s3(access(seaweedfs, READER_SECRET, READER_KEY)):
        standing = guard.stand(4, record)
        with pytest.raises(RefusedError, match="is as it was: the right") as caught:
            guard.roll_back(standing)
    assert caught.value.code == "sink-cannot-roll-back" and READER_SECRET not in caught.value.message
    assert ice.rows() == before
