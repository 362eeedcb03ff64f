"""How locations on S3 are opened, and what one object there is."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from streambank.core.errors import InputError, NotFoundError
from streambank.storage import open_store
from streambank.storage.s3.store import S3Store
from tests.support.refuses import refuses
from tests.support.storage.s3_objects import key_of
from tests.support.storage.s3_servers import BUCKET


def test_opening_asks_nobody_and_loads_nothing() -> None:
    code = """
import sys
from streambank.storage import open_store
print(open_store("s3://bucket/a").uri, open_store("s3a://bucket").child("b").uri, "boto3" in sys.modules)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["s3://bucket/a", "s3a://bucket/b", "False"]


def test_both_spellings_are_the_same_files_and_keep_theirs(store: S3Store) -> None:
    store.write("a", b"x")
    other = open_store(store.uri.replace("s3://", "s3a://"))

    assert other.read("a") == b"x"
    assert other.uri.startswith("s3a://")
    assert other.child("b").uri == f"{other.uri}/b"
    assert repr(other) == f"S3Store('{other.uri}')"
    assert other.copy_from(store, "a", "b")
    assert store.read("b") == b"x"


@pytest.mark.parametrize("location", ["s3://KEY:hush@bucket/a", "s3a://KEY:hush@bucket", "s3://b"])
def test_a_location_with_credentials_in_it_is_refused_without_repeating_it(location: str) -> None:
    with refuses(InputError, "bad-location") as raised:
        open_store(location)
    assert "hush" not in str(raised.value.to_dict())


def test_small_files_carry_a_checksum(store: S3Store, raw: Any) -> None:
    store.write("f", b"hello")
    store.write("g", b"hello", exclusive=True)
    for key in "fg":
        head = raw.head_object(Bucket=BUCKET, Key=key_of(store, key), ChecksumMode="ENABLED")
        assert head["ChecksumCRC32"] == "NhCmhg=="


def test_a_held_file_is_one_version(store: S3Store) -> None:
    store.write("f", b"first")
    with closing(store.hold("f")) as held:
        store.write("f", b"other")
        assert held.current().identity != held.info.identity
        with pytest.raises(NotFoundError), held.open():
            pass
