"""Large files go up, and are copied, in parts: several at once, and none is left of what failed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from streambank.core.errors import NotFoundError, StorageError
from streambank.storage import open_store
from streambank.storage.s3 import client, copy, write
from streambank.storage.s3.client import S3Address
from streambank.storage.s3.store import S3Store
from tests.support.refuses import refuses
from tests.support.storage.s3_objects import PART_BYTES, key_of, uploads
from tests.support.storage.s3_servers import BUCKET


def test_a_large_file_goes_up_in_parts_and_comes_back(
    store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "PART_BYTES", PART_BYTES)
    data = bytes(range(256)) * ((2 * PART_BYTES + 1000) // 256)

    store.write("large", (data[i : i + 700_000] for i in range(0, len(data), 700_000)))

    info = store.stat("large")
    assert info.size_bytes == len(data)
    assert info.identity.endswith("-3")
    assert store.read("large") == data
    assert store.read("large", PART_BYTES - 2, 4) == data[PART_BYTES - 2 : PART_BYTES + 2]
    head = raw.head_object(Bucket=BUCKET, Key=key_of(store, "large"), ChecksumMode="ENABLED")
    assert head["ChecksumType"] == "FULL_OBJECT"
    store.write_named([data], lambda: "named")
    assert store.read("named") == data
    assert uploads(raw, store) == []


def test_of_a_failed_upload_no_part_is_left(
    store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "PART_BYTES", PART_BYTES)
    begun = []

    def data() -> Iterator[bytes]:
        yield b"x" * (2 * PART_BYTES)
        yield b"y"
        begun.extend(uploads(raw, store))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write("large", data())

    assert begun == [key_of(store, "large")]
    assert uploads(raw, store) == []
    assert not store.exists("large")


class Sending:
    """Counts the parts that are being sent; the first ones wait for each other."""

    def __init__(self, patch: pytest.MonkeyPatch, together: int = 0, fails_at: int = 0) -> None:
        self.now = self.most = 0
        self.lock = threading.Lock()
        self.barrier = threading.Barrier(together) if together else None
        original = S3Address.call

        def call(place: S3Address, operation: str, **parameters: Any) -> Any:
            if operation != "upload_part":
                return original(place, operation, **parameters)
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            try:
                if self.barrier is not None and parameters["PartNumber"] <= self.barrier.parties:
                    self.barrier.wait(30)
                if parameters["PartNumber"] == fails_at:
                    raise StorageError("no", code="service-busy")
                return original(place, operation, **parameters)
            finally:
                with self.lock:
                    self.now -= 1

        patch.setattr(S3Address, "call", call)


@pytest.fixture
def few_places(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    """The same store in a process that may have three parts under way."""
    monkeypatch.setattr(client, "PARTS_AT_ONCE", 3)
    monkeypatch.setattr(write, "PART_BYTES", PART_BYTES)
    client.forget_clients()
    found = open_store(store.uri)
    assert isinstance(found, S3Store)
    yield found
    client.forget_clients()


def test_parts_go_up_several_at_once_and_few_wait(
    few_places: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sending = few_places, Sending(monkeypatch, together=3)

    store.write("large", (bytes([number]) * PART_BYTES for number in range(7)))

    assert sending.most == 3  # never more than there are places for
    whole = store.read("large")
    assert whole == b"".join(bytes([number]) * PART_BYTES for number in range(7))


def test_a_part_that_fails_ends_the_others_and_frees_their_places(
    few_places: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sending = few_places, Sending(monkeypatch, fails_at=2)

    with refuses(StorageError, "service-busy"):
        store.write("large", (b"x" * PART_BYTES for _ in range(6)))

    assert sending.now == 0
    assert uploads(raw, store) == []
    assert not store.exists("large")
    slots = store._service().slots
    assert [slots.acquire(blocking=False) for _ in range(4)] == [True, True, True, False]


def test_large_files_are_copied_in_parts(store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "LIMIT_BYTES", PART_BYTES)
    monkeypatch.setattr(copy, "PART_BYTES", PART_BYTES)
    data = b"0123456789" * (2 * PART_BYTES // 10) + b"tail"
    store.write("from", data)

    assert store.child("other").copy_from(store, "from", "to")

    assert store.read("other/to") == data
    assert store.stat("other/to").identity.endswith("-3")
    assert uploads(raw, store) == []
    with pytest.raises(NotFoundError):
        store.copy_from(store, "nothing", "x")
