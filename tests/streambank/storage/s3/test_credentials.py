"""Settings of S3 that belong to a caller and not to the process: used by its stores only, and never shown."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, StorageError
from streambank.storage import S3Access, Store, open_store, using_s3
from tests.support.refuses import refuses
from tests.support.storage.s3_servers import ACCESS_KEY, READER_KEY, READER_SECRET, SECRET_KEY, S3Server


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """boto3's own chain leads nowhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def owner_of(server: S3Server) -> S3Access:
    return S3Access(ACCESS_KEY, SECRET_KEY, region="us-east-1", endpoint_url=server.endpoint)


def opened(server: S3Server, access: S3Access | None) -> Store:
    with using_s3(access):
        return open_store(server.location())


def test_what_is_opened_with_an_access_keeps_it_and_nothing_else_has_it(seaweedfs: S3Server) -> None:
    environment = dict(os.environ)
    access = owner_of(seaweedfs)
    store = opened(seaweedfs, access)

    store.child("below").write("a", b"x")  # outside of the `with`
    assert store.read("below/a") == b"x"
    with using_s3(access), using_s3(None):
        assert open_store(store.uri).read("below/a") == b"x"
    with pytest.raises(StorageError) as caught:
        open_store(store.uri).read("below/a")
    assert caught.value.code in ("no-credentials", "not-reachable")
    assert dict(os.environ) == environment


def test_two_owners_in_one_process_are_not_mixed(seaweedfs: S3Server) -> None:
    owner = opened(seaweedfs, owner_of(seaweedfs))
    with using_s3(replace(owner_of(seaweedfs), access_key_id=READER_KEY, secret_access_key=READER_SECRET)):
        reader = open_store(owner.uri)
    owner.write("a", b"x")

    assert reader.read("a") == b"x"
    with refuses(StorageError, "no-permission"):
        reader.write("a", b"y")
    assert not reader.copy_from(owner, "a", "b"), "the one would use what only the other may read"


def test_another_thread_begins_without_it(seaweedfs: S3Server) -> None:
    seen = list[StorageError]()

    def look() -> None:
        try:
            open_store(seaweedfs.location()).exists("a")
        except StorageError as error:
            seen.append(error)

    with using_s3(owner_of(seaweedfs)):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert len(seen) == 1


def test_it_comes_before_the_environment(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOFSOMEBODYELSE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")

    store = opened(seaweedfs, owner_of(seaweedfs))
    store.write("a", b"x")
    assert store.read("a") == b"x"


@pytest.mark.parametrize("half", ["endpoint", "credentials"])
def test_what_it_leaves_out_comes_from_the_environment(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    whole = owner_of(seaweedfs)
    if half == "endpoint":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        access = S3Access(region=whole.region, endpoint_url=whole.endpoint_url)
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL", seaweedfs.endpoint)
        access = S3Access(ACCESS_KEY, SECRET_KEY, region=whole.region)

    store = opened(seaweedfs, access)
    store.write("a", b"x")
    assert store.read("a") == b"x"


def test_a_profile_can_be_named(seaweedfs: S3Server, tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(
        f"[profile tests]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
        f"region = us-east-1\nendpoint_url = {seaweedfs.endpoint}\n"
    )

    store = opened(seaweedfs, S3Access(profile="tests"))
    store.write("a", b"x")
    assert store.read("a") == b"x"
    with refuses(StorageError, "no-credentials"):
        opened(seaweedfs, S3Access(profile="nobody")).exists("a")


def test_a_role_is_assumed(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from botocore.client import BaseClient

    calls, secrets = list[tuple[str, object]](), set[str]()
    make = BaseClient._make_api_call

    def noting(client: BaseClient, operation: str, parameters: dict[str, object]) -> object:
        calls.append((operation, parameters.get("ExternalId")))
        used = client._request_signer._credentials
        frozen = used.get_frozen_credentials()
        calls.append((f"{operation} by", frozen.access_key))
        secrets.update({frozen.secret_key, frozen.token} - {None})
        return make(client, operation, parameters)

    monkeypatch.setattr(BaseClient, "_make_api_call", noting)
    access = replace(
        owner_of(moto_server),
        role_arn="arn:aws:iam::123456789012:role/savepoints",
        external_id="shared",
        sts_endpoint_url=moto_server.endpoint,
    )
    store = opened(moto_server, access)
    with caplog.at_level(logging.DEBUG):
        store.write("a", b"x")
        store.write("b", b"x")

    assert calls.count(("AssumeRole", "shared")) == 1, "once for as long as it holds"
    assert ("AssumeRole by", ACCESS_KEY) in calls
    assert ("PutObject by", ACCESS_KEY) not in calls, "the role writes, not who assumed it"
    assert len(secrets) == 3 and not [one for one in secrets if one in caplog.text]
    with refuses(StorageError, "no-credentials"):
        opened(moto_server, S3Access(role_arn=access.role_arn, region="us-east-1")).exists("a")


def test_encryption_is_part_of_it(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMBANK_S3_SSE", "aws:kms")
    store = opened(seaweedfs, replace(owner_of(seaweedfs), encryption="AES256"))
    store.write("a", b"x")

    with seaweedfs.client() as raw:
        _, _, bucket, key = f"{store.uri}/a".split("/", 3)
        assert raw.head_object(Bucket=bucket, Key=key)["ServerSideEncryption"] == "AES256"


@pytest.mark.parametrize(
    "settings",
    [
        {"access_key_id": "hush"},
        {"secret_access_key": "hush"},
        {"session_token": "hush"},
        {"access_key_id": "hush", "secret_access_key": "hush", "profile": "hush"},
        {"external_id": "hush"},
        {"encryption": "hush"},
        {"kms_key_id": "hush"},
    ],
)
def test_contradictions_are_refused_without_repeating_them(settings: dict[str, Any]) -> None:
    with refuses(InputError, "bad-setting") as caught:
        S3Access(**settings)
    assert "hush" not in str(caught.value.to_dict())


def test_it_is_neither_shown_nor_sent(seaweedfs: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    access = owner_of(seaweedfs)
    store = opened(seaweedfs, access)

    assert SECRET_KEY not in f"{access} {access!r} {[access]} {store!r} {store.uri}"
    for kept in (access, store):
        with pytest.raises(TypeError):
            pickle.dumps(kept)
    assert copy.copy(access) is access and copy.deepcopy([access]) == [access]
    with caplog.at_level(logging.DEBUG):
        wrong = opened(seaweedfs, replace(access, secret_access_key="wrong-" + SECRET_KEY))
        with pytest.raises(StorageError) as caught:
            wrong.write("a", b"x")
    assert caught.value.code == "bad-credentials"
    cause = caught.value.__cause__
    assert SECRET_KEY not in f"{caught.value} {caught.value.to_dict()} {cause} {cause!r} {caplog.text}"
    assert S3Access.of({}) is None
