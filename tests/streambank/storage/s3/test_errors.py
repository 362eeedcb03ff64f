"""Every failure of a service is an error of ours, which repeats no credential."""

from __future__ import annotations

import io
from typing import Any

import pytest

from streambank.core.errors import StorageError, StreambankError
from streambank.storage import open_store
from streambank.storage.s3 import write as s3_write
from streambank.storage.s3.errors import translate
from streambank.storage.s3.store import S3Store
from tests.support.refuses import refuses
from tests.support.storage.s3_servers import READER_KEY, READER_SECRET, SECRET_KEY, S3Server, free_ports


def failure(location: str, call: str = "write") -> StreambankError:
    """What a call fails with, which holds no credential."""
    store = open_store(location)
    with pytest.raises(StreambankError) as raised:
        store.write("f", b"x") if call == "write" else store.read("f") if call == "read" else [*store.list()]
    said = f"{raised.value} {raised.value.to_dict()}"
    assert SECRET_KEY not in said and READER_SECRET not in said
    assert raised.value.hint
    return raised.value


@pytest.mark.parametrize("call", ["write", "read", "list"])
def test_no_such_bucket(server: S3Server, call: str) -> None:
    assert failure("s3://no-such-bucket-here/x", call).code == "no-bucket"


def test_wrong_credentials_and_missing_rights(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    location = server.location()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert failure(location).code == "bad-credentials"

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READER_SECRET)
    assert failure(location).code == "no-permission"
    assert [*open_store(location).list()] == []


def test_no_credentials_at_all(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    location = server.location()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert failure(location).code == "no-credentials"
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert failure(location).code == "no-credentials"


def test_nobody_listens(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:hush@127.0.0.1:{free_ports(1)[0]}")
    error = failure(server.location(), "read")
    assert error.code == "not-reachable"
    assert isinstance(error, StorageError) and error.retryable
    assert "hush" not in str(error.to_dict())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    assert failure(server.location(), "read").code == "bad-setting"


@pytest.mark.parametrize("fixture", ["seaweedfs", "moto_server"])
def test_a_locked_version_is_reported(
    fixture: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    from botocore.exceptions import ClientError

    server: S3Server = request.getfixturevalue(fixture)
    server.use(monkeypatch)
    with server.client() as client:
        client.create_bucket(Bucket="locked-bucket", ObjectLockEnabledForBucket=True)
        store = open_store("s3://locked-bucket")
        store.write("f", b"x")
        client.put_object_legal_hold(Bucket="locked-bucket", Key="f", LegalHold={"Status": "ON"})
        store.write("f", b"y")  # a new version; the held one stays below it
        store.delete("f")  # a delete marker
        assert not store.exists("f")
        version = client.list_object_versions(Bucket="locked-bucket")["Versions"][-1]["VersionId"]
        with pytest.raises(ClientError) as raised:
            client.delete_object(Bucket="locked-bucket", Key="f", VersionId=version)
    denied = translate(raised.value, "s3://locked-bucket/f")
    assert denied.code in ("object-locked", "no-permission")
    held = {
        "Error": {"Code": "AccessDenied", "Message": "Access Denied because object protected by object lock."}
    }
    assert translate(ClientError(held, "DeleteObject"), "s3://b/f").code == "object-locked"


def test_what_a_service_invents_is_still_an_error_of_ours() -> None:
    from botocore.exceptions import ClientError

    error = translate(ClientError({"Error": {"Code": "Strange", "Message": "secret=hush"}}, "X"), "s3://b/f")
    assert (error.code, isinstance(error, StorageError)) == ("storage", True)
    assert "Strange" in str(error) and "hush" not in str(error)


def test_a_full_disk_under_the_waiting_bytes_is_said(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.SpooledTemporaryFile", lambda *_, **__: Full())
    with refuses(StorageError, "disk-full"):
        store.write_named([b"x"], lambda: "f")
    assert not store.exists("f")


def test_a_temporary_file_that_lost_bytes_is_noticed() -> None:
    with s3_write.spooled([bytes(s3_write.SPOOL_BYTES), b"end"]) as spool:
        assert sum(map(len, spool.blocks())) == spool.size_bytes
        spool.file.seek(5)
        spool.file.write(b"x")
        with pytest.raises(StorageError) as raised:
            for _ in spool.blocks():
                pass
    assert raised.value.code == "corrupt-transfer"
