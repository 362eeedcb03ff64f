"""A take that lets the service copy large files: nothing is sent, nothing stored but what was hashed."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from streambank.core.errors import ConflictError, NotFoundError
from streambank.repository.digest import digest_of
from streambank.repository.objects import write
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import Store, open_store
from streambank.storage.s3 import client, s3_service_copy
from streambank.storage.s3.s3_service_copy import S3ServiceCopy
from streambank.storage.s3.store import S3Store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import unpack
from tests.support.storage.s3_proxy import Proxy, proxy
from tests.support.storage.s3_servers import BUCKET, S3Server, moto_server, seaweedfs

pytestmark = pytest.mark.storm

__all__ = ["moto_server", "seaweedfs"]  # fixtures

LARGE = 1_100_000
PART = 5 << 20  # the smallest that services take


@contextmanager
def watched(server: S3Server, patch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A server behind a proxy that counts, whose service copies everything that is a separate object."""
    patch.setattr(s3_service_copy, "LEAST_BYTES", 1 << 20)
    server.use(patch)
    with proxy(server.endpoint) as running:
        patch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        yield running
        client.forget_clients()


def checkpoint_of(server: S3Server) -> Store:
    """A checkpoint on the server of which four files are large."""
    checkpoint = open_store(server.location())
    LiveCheckpoint(checkpoint, state_bytes=LARGE).run(2)
    return checkpoint


def large_of(store: Store) -> list[str]:
    return [info.path for info in store.list() if info.size_bytes > 1 << 20]


def asked(network: Proxy, what: str, begin: int = 0) -> int:
    """How many requests copied a part, or began an upload."""
    return len([one for one in network.requests[begin:] if what in one])


def wrong_objects(repository: Repository) -> list[str]:
    """Objects that are not what their name says."""
    found = [(info.path, repository.store.read(info.path)) for info in repository.store.list("objects")]
    return [path for path, data in found if digest_of("blake3", data)[-64:] != path.rpartition("/")[2]]


def uploads(server: S3Server) -> list[Any]:
    with server.client() as raw:
        return list(raw.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []))


def test_a_take_sends_no_large_file_and_reads_each_once(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(seaweedfs, monkeypatch) as network:
        checkpoint = checkpoint_of(seaweedfs)
        repository = Repository.open(open_store(seaweedfs.location()), create=True)
        begin, network.sent_bytes = len(network.requests), 0

        taken = take(TakeRequest(checkpoint, repository, "orders"))

        assert len(large_of(checkpoint)) == len(large_of(repository.store)) == 4
        assert taken.new_bytes > 4 * LARGE
        assert network.sent_bytes < LARGE / 10
        assert asked(network, "x-id=UploadPartCopy", begin) + asked(network, "partNumber=", begin) >= 4
        for path in large_of(checkpoint):
            reads = [one for one in network.requests[begin:] if one.startswith("GET") and path in one]
            assert len(reads) == 1
        assert verify(repository, "orders", taken.savepoint, level="full").ok
        assert wrong_objects(repository) == []

        # The negative control: without the service, the same take sends them.
        monkeypatch.setattr(S3Store, "copy_of", lambda store, file: None)
        network.sent_bytes = 0
        other = Repository.open(open_store(seaweedfs.location()), create=True)
        take(TakeRequest(checkpoint, other, "orders"))
        assert network.sent_bytes > 4 * LARGE
    assert uploads(seaweedfs) == []


def test_a_service_that_does_not_say_what_it_copied_is_not_believed(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(moto_server, monkeypatch) as network:
        checkpoint = checkpoint_of(moto_server)
        repository = Repository.open(open_store(moto_server.location()), create=True)
        network.sent_bytes = 0

        taken = take(TakeRequest(checkpoint, repository, "orders"))

        assert network.sent_bytes > 4 * LARGE
        tried = asked(network, "?uploads")
        assert 1 <= tried <= 4
        held = checkpoint.hold(large_of(checkpoint)[0])
        assert isinstance(repository.store, S3Store)
        assert repository.store.copy_of(held) is None, "it is not asked again"
        assert wrong_objects(repository) == []
        assert verify(repository, "orders", taken.savepoint, level="full").ok
    assert uploads(moto_server) == []


def test_parts_are_compared_each_by_itself(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_service_copy, "PART_BYTES", PART)
    seaweedfs.use(monkeypatch)
    store = open_store(seaweedfs.location())
    assert isinstance(store, S3Store)
    data = random.Random(1).randbytes(2 * PART + 17)
    store.write("from", data)
    held = store.hold("from")

    for step in (len(data), PART, 1 << 20, 999_999):
        copy = store.copy_of(held)
        assert copy is not None
        for start in range(0, len(data), step):
            copy.passed(data[start : start + step])
        assert copy.to("to")
        assert store.read("to") == data
        store.delete("to")

    changed = bytearray(data)
    changed[PART + 1] ^= 1
    for other in (bytes(changed), data[:-1], data + b"x"):
        copy = store.copy_of(held)
        assert copy is not None
        copy.passed(other)
        assert not copy.to("to")
        assert not store.exists("to")
    assert uploads(seaweedfs) == []


@pytest.mark.parametrize("ignored", [False, True], ids=["condition-kept", "condition-ignored"])
def test_a_file_that_is_replaced_between_hash_and_copy_is_never_stored_under_the_wrong_name(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, ignored: bool
) -> None:
    seaweedfs.use(monkeypatch)
    monkeypatch.setattr(s3_service_copy, "LEAST_BYTES", 1 << 20)
    store = open_store(seaweedfs.location())
    assert isinstance(store, S3Store)
    repository = Repository.open(store.child("repository"), create=True)
    store.write("a", b"x" * LARGE)
    held = store.hold("a")
    copied = list[dict[str, Any]]()
    call = client.S3Address.call

    def noting(place: Any, operation: str, **parameters: Any) -> Any:
        if operation != "upload_part_copy":
            return call(place, operation, **parameters)
        if ignored:
            del parameters["CopySourceIfMatch"]
        copied.append(call(place, operation, **parameters))
        return copied[-1]

    def replaced(copy: S3ServiceCopy, key: str) -> bool:
        store.write("a", b"y" * LARGE)
        return to(copy, key)

    to = S3ServiceCopy.to
    monkeypatch.setattr(client.S3Address, "call", noting)
    monkeypatch.setattr(S3ServiceCopy, "to", replaced)

    def save() -> str | None:
        with repository.objects.writer() as writer:
            return writer.add_file(held, lambda reader: iter(lambda: reader.read(1 << 20), b""))

    if ignored:
        assert save() is None, "the caller reads again, and finds that it is another file"
        assert "ChecksumCRC32" in copied[0]["CopyPartResult"], "the service did copy the other bytes"
        with pytest.raises(NotFoundError), held.open():
            pass
    else:
        with pytest.raises(NotFoundError):
            save()
        assert [client.status_of(one) for one in copied] == [412]
    assert list(repository.store.list("objects")) == []
    assert uploads(seaweedfs) == []


@pytest.mark.parametrize("code", [pytest.param("NotImplemented", marks=pytest.mark.storm), "AccessDenied"])
def test_where_the_service_refuses_the_bytes_are_sent(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    from botocore.exceptions import ClientError

    with watched(seaweedfs, monkeypatch) as network:
        checkpoint = checkpoint_of(seaweedfs)
        repository = Repository.open(open_store(seaweedfs.location()), create=True)
        refused = list[str]()

        def refuse(model: Any, **_: Any) -> NoReturn:
            refused.append(model.name)
            status = {"HTTPStatusCode": 501 if code == "NotImplemented" else 403}
            answer: Any = {"Error": {"Code": code}, "ResponseMetadata": status}
            raise ClientError(answer, model.name)

        assert isinstance(repository.store, S3Store)
        events = repository.store._service().client.meta.events
        for operation in ("UploadPartCopy", "CopyObject"):
            events.register(f"before-call.s3.{operation}", refuse)
        network.sent_bytes = 0

        taken = take(TakeRequest(checkpoint, repository, "orders"))

        assert refused and set(refused) == {"UploadPartCopy"}
        assert network.sent_bytes > 4 * LARGE
        assert verify(repository, "orders", taken.savepoint, level="full").ok
        (one, *_) = repository.store.list("objects")
        assert not open_store(seaweedfs.location()).copy_from(repository.store, one.path, "to")
        assert refused[-1] == "CopyObject"
    assert uploads(seaweedfs) == []


def test_a_large_local_file_goes_up_without_waiting_in_a_temporary_one(
    seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seaweedfs.use(monkeypatch)
    monkeypatch.setattr(write, "AGAIN_BYTES", 1 << 20)
    local = open_store(unpack("4.3.0/rocksdb-transform", tmp_path) / "checkpoint")
    local.write("large", b"z" * (3 << 20))
    repository = Repository.open(open_store(seaweedfs.location()), create=True)
    held = local.hold("large")

    def read(reader: Any) -> Iterable[bytes]:
        return iter(lambda: reader.read(1 << 20), b"")

    with monkeypatch.context() as patch, repository.objects.writer() as writer:
        patch.setattr(tempfile, "SpooledTemporaryFile", None)
        digest = writer.add_file(held, read, again=True)
        assert digest == digest_of("blake3", b"z" * (3 << 20))
        assert writer.add_file(held, read) is None, "what cannot be read again waits"
        assert (writer.new_objects, writer.known_objects) == (1, 0)
        assert writer.add_file(held, read, again=True) == digest
        assert (writer.new_objects, writer.known_objects) == (1, 1)
    assert wrong_objects(repository) == []
    assert len(list(repository.store.list("objects"))) == 1

    seen = list[int]()

    def another(reader: Any) -> Iterator[bytes]:
        seen.append(1)
        yield from read(reader)
        yield b"one" if len(seen) == 1 else b"two"

    local.write("large", b"v" * (3 << 20) + b"...")
    with pytest.raises(ConflictError) as caught, repository.objects.writer() as writer:
        writer.add_file(Longer(local.hold("large")), another, again=True)
    assert caught.value.code == "size-changed" and len(seen) == 2
    assert len(list(repository.store.list("objects"))) == 1
    held.close()


class Longer:
    """A held file of which the last three bytes are others with each reading."""

    def __init__(self, held: Any) -> None:
        self.info = held.info
        self._held = held

    @contextmanager
    def open(self) -> Iterator[Any]:
        with self._held.open() as reader:
            data = reader.read()[:-3]
            yield type("Reader", (), {"read": lambda self, size, left=[data]: left.pop() if left else b""})()

    def current(self) -> Any:
        return self._held.current()

    def close(self) -> None:
        self._held.close()
