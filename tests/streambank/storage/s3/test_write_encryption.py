"""Encryption by the service is asked for with every object, where it is set."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.core.errors import ConflictError, InputError
from streambank.storage import open_store
from streambank.storage.s3 import write
from streambank.storage.s3.store import S3Store
from tests.support.refuses import refuses
from tests.support.storage.s3_objects import PART_BYTES, key_of
from tests.support.storage.s3_servers import BUCKET, S3Server


def test_encryption_is_asked_for(store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMBANK_S3_SSE", "AES256")
    sealed = open_store(store.uri)
    sealed.write("f", b"hello")
    sealed.copy_from(sealed, "f", "g")

    for key in "fg":
        head = raw.head_object(Bucket=BUCKET, Key=key_of(store, key))
        assert head["ServerSideEncryption"] == "AES256"
    assert store.read("g") == b"hello"

    monkeypatch.setenv("STREAMBANK_S3_SSE", "ROT13")
    with refuses(InputError, "bad-setting"):
        open_store(store.uri).exists("f")


@pytest.mark.parametrize("key", ["", "arn:aws:kms:us-east-1:111122223333:key/of-the-tests"])
def test_encryption_by_kms_is_asked_for_with_every_object(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """SeaweedFS answers such requests with 500; moto does as Amazon documents."""
    moto_server.use(monkeypatch)
    monkeypatch.setenv("STREAMBANK_S3_SSE", "aws:kms")
    if key:
        monkeypatch.setenv("STREAMBANK_S3_KMS_KEY_ID", key)
    monkeypatch.setattr(write, "PART_BYTES", PART_BYTES)
    store = open_store(moto_server.location())
    assert isinstance(store, S3Store)
    large = b"0123456789" * (PART_BYTES // 9)

    store.write("small", b"hello")
    store.write("created", b"hello", exclusive=True)
    store.write("large", [large])
    assert store.copy_from(store, "large", "copied")
    store.rename("small", "renamed")

    with moto_server.client() as client:
        for name in ("created", "large", "copied", "renamed"):
            head = client.head_object(Bucket=BUCKET, Key=key_of(store, name))
            assert head["ServerSideEncryption"] == "aws:kms", name
            assert not key or head["SSEKMSKeyId"] == key, name
    assert store.read("copied") == store.read("large") == large
    with pytest.raises(ConflictError):
        store.write("created", b"other", exclusive=True)
