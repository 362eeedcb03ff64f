"""Delta tables on real S3 servers: reached by endpoint and path, with the access of our own stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import RefusedError, StorageError
from streambank.sinks.delta import DeltaGuard
from streambank.storage.s3.credentials import S3Access, using_s3
from tests.support.sinks.lake import Lake
from tests.support.storage.s3_profiles import use_profiles
from tests.support.storage.s3_servers import (
    ACCESS_KEY,
    BUCKET,
    READER_KEY,
    READER_SECRET,
    SECRET_KEY,
    S3Server,
    moto_server,
    seaweedfs,
)

__all__ = ["moto_server", "seaweedfs"]  # fixtures

QUERY = "051c7676-82ba-42c3-8085-6b157703ac5f"
WRONG = "not-the-secret-0123456789"


def lake_on(server: S3Server, folder: Path) -> Lake:
    """A table with batches 0 to 4; what writes it is given the tests' own access by name."""
    options = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    made = Lake(folder, QUERY, location=server.location(), options=options)
    for batch in range(5):
        made.write(batch, [f"{batch}-0", f"{batch}-1"])
    return made


def access(server: S3Server, key: str = ACCESS_KEY, secret: str = SECRET_KEY, **more: Any) -> S3Access:
    return S3Access(
        access_key_id=key,
        secret_access_key=secret,
        endpoint_url=server.endpoint,
        region="us-east-1",
        **more,
    )


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable says how S3 is reached."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield


def goes_back(lake: Lake, guard: DeltaGuard) -> None:
    """Three batches after a savepoint of batch 4, and back."""
    captured = guard.capture(4)
    assert not captured.warning and captured.record["version"] == 4
    before = lake.rows()
    for batch in (5, 6, 7):
        lake.write(batch, [f"{batch}-0"])
    standing = guard.stand(4, captured.record)
    assert (standing.position, standing.later_batches, standing.later_rows) == ("ahead", 3, 3)
    assert guard.same_batch(4, guard._log().commit(4).at or pytest.fail("no time"))
    assert guard.roll_back(standing).rows == 3
    assert lake.rows() == before and guard.stand(4, captured.record).safe
    assert lake.write(5, ["new"])


SERVERS = ["seaweedfs", pytest.param("moto_server", marks=pytest.mark.storm)]


@pytest.mark.parametrize("fixture", SERVERS)
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_by_the_variables_of_the_process(
    fixture: str,
    scheme: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    server: S3Server = request.getfixturevalue(fixture)
    lake = lake_on(server, tmp_path)
    server.use(monkeypatch)
    goes_back(lake, DeltaGuard(lake.location.replace("s3://", f"{scheme}://"), QUERY))


@pytest.mark.usefixtures("nothing_set")
def test_by_a_connection(seaweedfs: S3Server, tmp_path: Path) -> None:
    lake = lake_on(seaweedfs, tmp_path)
    with using_s3(access(seaweedfs)):
        goes_back(lake, DeltaGuard(lake.location, QUERY))


def test_by_the_profile_of_the_bucket_while_the_process_has_a_session_of_another_service(
    seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_on(seaweedfs, tmp_path)
    guard = DeltaGuard(lake.location, QUERY)
    with using_s3(access(seaweedfs)):
        record = guard.capture(4).record
    before = lake.rows()
    lake.write(5, ["5-0"])
    with monkeypatch.context() as patch:
        use_profiles({BUCKET: seaweedfs}, tmp_path, patch)
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            patch.setenv(name, "http://127.0.0.1:1")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            patch.setenv(name, "of-another-service")
        assert guard.roll_back(guard.stand(4, record)).rows == 1
    assert lake.rows() == before


@pytest.mark.usefixtures("nothing_set")
def test_a_bucket_that_this_user_may_only_read(seaweedfs: S3Server, tmp_path: Path) -> None:
    lake = lake_on(seaweedfs, tmp_path)
    guard = DeltaGuard(lake.location, QUERY)
    with using_s3(access(seaweedfs, READER_KEY, READER_SECRET)):
        record = guard.capture(4).record
        lake.write(5, ["5-0"])
        before = lake.rows()
        standing = guard.stand(4, record)
        assert standing.can_roll_back
        with pytest.raises(RefusedError, match="is as it was: the right") as caught:
            guard.roll_back(standing)
    assert caught.value.code == "sink-cannot-roll-back" and "that right" in caught.value.hint
    assert "403" in caught.value.message or "denied" in caught.value.message.lower()
    assert READER_SECRET not in f"{caught.value.message}{caught.value.hint}{caught.value.__cause__}"
    assert lake.rows() == before


@pytest.mark.usefixtures("nothing_set")
def test_wrong_credentials_in_the_declaration(seaweedfs: S3Server, tmp_path: Path) -> None:
    lake = lake_on(seaweedfs, tmp_path)
    options = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": WRONG}
    guard = DeltaGuard(lake.location, QUERY, options=options)
    with using_s3(access(seaweedfs)):
        record = guard.capture(4).record
        lake.write(5, ["5-0"])
        changed: list[str] = []

        @contextmanager
        def changing() -> Iterator[None]:
            changed.append("changed")
            yield

        with pytest.raises(StorageError) as caught:
            guard.roll_back(guard.stand(4, record), changing)
    assert caught.value.code == "sink-not-reachable" and "`options`" in caught.value.hint
    assert WRONG not in f"{caught.value.message}{caught.value.__cause__}{caught.value.__context__}"
    assert not changed, "it was refused before anything was changed"


@pytest.mark.usefixtures("nothing_set")
def test_wrong_credentials_of_our_own(seaweedfs: S3Server, tmp_path: Path) -> None:
    lake = lake_on(seaweedfs, tmp_path)
    guard = DeltaGuard(lake.location, QUERY)
    with using_s3(access(seaweedfs, secret=WRONG)):
        captured, standing = guard.capture(4), guard.stand(4, None)
    assert captured.warning and standing.position == "not-known" and standing.transient and standing.hint
    assert WRONG not in f"{captured}{standing}"


@pytest.mark.storm
@pytest.mark.usefixtures("nothing_set")
def test_a_rollback_is_encrypted_as_our_own_objects_are(moto_server: S3Server, tmp_path: Path) -> None:
    """A bucket may refuse what does not ask for it."""
    lake = lake_on(moto_server, tmp_path)
    guard = DeltaGuard(lake.location, QUERY)
    with using_s3(access(moto_server, encryption="aws:kms", kms_key_id="ours")):
        record = guard.capture(4).record
        lake.write(5, ["5-0"])
        guard.roll_back(guard.stand(4, record))
    folder = lake.location.removeprefix(f"s3://{BUCKET}/")
    with moto_server.client() as client:
        found = [
            client.head_object(Bucket=BUCKET, Key=f"{folder}/_delta_log/{version:020}.json")
            for version in (5, 6)
        ]
    kinds = [(one.get("ServerSideEncryption"), one.get("SSEKMSKeyId")) for one in found]
    assert kinds[0][0] != "aws:kms" and kinds[1][0] == "aws:kms" and str(kinds[1][1]).endswith("ours")
