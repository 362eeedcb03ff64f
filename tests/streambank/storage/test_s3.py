"""What only the S3 store does: parts, copies, listings, settings, and every failure as an error of ours."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from streambank.errors import ConflictError, InputError, NotFoundError, StorageError, StreambankError
from streambank.storage import open_store, s3, s3_client, s3_copy, s3_list, s3_write
from streambank.storage.s3 import S3Store
from streambank.storage.s3_client import Place
from streambank.storage.s3_errors import translate
from tests.support.s3_servers import (
    BUCKET,
    READER_KEY,
    READER_SECRET,
    SECRET_KEY,
    S3Server,
    free_ports,
)

PART = 5 << 20  # the smallest part that services take


@pytest.fixture
def server(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    return seaweedfs.use(monkeypatch)


@pytest.fixture
def store(server: S3Server) -> S3Store:
    found = open_store(server.location())
    assert isinstance(found, S3Store)
    return found


@pytest.fixture
def raw(server: S3Server) -> Iterator[Any]:
    """A client of boto3."""
    with server.client() as client:
        yield client


def key_of(store: S3Store, key: str) -> str:
    return f"{store.uri}/{key}".removeprefix(f"s3://{BUCKET}/")


def uploads(raw: Any, store: S3Store) -> list[str]:
    found = raw.list_multipart_uploads(Bucket=BUCKET, Prefix=key_of(store, "")).get("Uploads", [])
    return [each["Key"] for each in found]


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
    with pytest.raises(InputError) as raised:
        open_store(location)
    assert raised.value.code == "bad-location"
    assert "hush" not in str(raised.value.to_dict())


def test_a_large_file_goes_up_in_parts_and_comes_back(
    store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_write, "PART_BYTES", PART)
    data = bytes(range(256)) * ((2 * PART + 1000) // 256)

    info = store.write("large", (data[i : i + 700_000] for i in range(0, len(data), 700_000)))

    assert info == store.stat("large")
    assert info.size_bytes == len(data)
    assert info.identity.endswith("-3")
    assert store.read("large") == data
    assert store.read("large", PART - 2, 4) == data[PART - 2 : PART + 2]
    head = raw.head_object(Bucket=BUCKET, Key=key_of(store, "large"), ChecksumMode="ENABLED")
    assert head["ChecksumType"] == "FULL_OBJECT"
    named = store.write_named([data], lambda: "named")
    assert named is not None
    assert store.read("named") == data
    assert uploads(raw, store) == []


def test_of_a_failed_upload_no_part_is_left(
    store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_write, "PART_BYTES", PART)
    begun = []

    def data() -> Iterator[bytes]:
        yield b"x" * (2 * PART)
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
        original = Place.call

        def call(place: Place, operation: str, **parameters: Any) -> Any:
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

        patch.setattr(Place, "call", call)


@pytest.fixture
def few_places(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    """The same store in a process that may have three parts under way."""
    monkeypatch.setattr(s3_client, "PARTS_AT_ONCE", 3)
    monkeypatch.setattr(s3_write, "PART_BYTES", PART)
    s3_client.forget_clients()
    found = open_store(store.uri)
    assert isinstance(found, S3Store)
    yield found
    s3_client.forget_clients()


def test_parts_go_up_several_at_once_and_few_wait(
    few_places: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sending = few_places, Sending(monkeypatch, together=3)

    store.write("large", (bytes([number]) * PART for number in range(7)))

    assert sending.most == 3  # never more than there are places for
    whole = store.read("large")
    assert whole == b"".join(bytes([number]) * PART for number in range(7))


def test_a_part_that_fails_ends_the_others_and_frees_their_places(
    few_places: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sending = few_places, Sending(monkeypatch, fails_at=2)

    with pytest.raises(StorageError) as raised:
        store.write("large", (b"x" * PART for _ in range(6)))

    assert raised.value.code == "service-busy"
    assert sending.now == 0
    assert uploads(raw, store) == []
    assert not store.exists("large")
    slots = store._service().slots
    assert [slots.acquire(blocking=False) for _ in range(4)] == [True, True, True, False]


def test_small_files_carry_a_checksum(store: S3Store, raw: Any) -> None:
    store.write("f", b"hello")
    store.write("g", b"hello", exclusive=True)
    for key in "fg":
        head = raw.head_object(Bucket=BUCKET, Key=key_of(store, key), ChecksumMode="ENABLED")
        assert head["ChecksumCRC32"] == "NhCmhg=="


def test_large_files_are_copied_in_parts(store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_copy, "LIMIT_BYTES", PART)
    monkeypatch.setattr(s3_copy, "PART_BYTES", PART)
    data = b"0123456789" * (2 * PART // 10) + b"tail"
    store.write("from", data)

    assert store.child("other").copy_from(store, "from", "to")

    assert store.read("other/to") == data
    assert store.stat("other/to").identity.endswith("-3")
    assert uploads(raw, store) == []
    with pytest.raises(NotFoundError):
        store.copy_from(store, "nothing", "x")


def test_a_listing_of_many_pages_is_whole(store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_list, "PAGE_KEYS", 40)
    wanted = [f"a/{number % 2}/{number}" for number in range(100)]
    with ThreadPoolExecutor(8) as pool:
        pool.map(lambda key: raw.put_object(Bucket=BUCKET, Key=key_of(store, key), Body=b""), wanted)

    assert sorted(info.path for info in store.list("a")) == sorted(wanted)
    assert [*store.names("a")] == ["0", "1"]
    assert len(store.names("a/0")) == 50


def test_a_long_listing_goes_directory_by_directory(
    store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And holds every file once: files beside directories, long directories, short ones, one of each name."""
    wanted = [f"state/0/{number % 3}/{number}" for number in range(45)]
    wanted += [f"commits/{number}" for number in range(25)] + ["metadata", "state/x", "state/0/y"]
    with ThreadPoolExecutor(16) as pool:
        assert all(
            pool.map(lambda key: raw.put_object(Bucket=BUCKET, Key=key_of(store, key), Body=b""), wanted)
        )
    monkeypatch.setattr(s3_list, "PAGE_KEYS", 10)
    monkeypatch.setattr(s3_list, "FLAT_PAGES", 2)
    asked = []
    ask = s3_list._ask

    def asking(service: Any, bucket: str, uri: str, walk: s3_list._Walk) -> Any:
        asked.append((walk.prefix.removeprefix(key_of(store, "")), walk.delimiter))
        return ask(service, bucket, uri, walk)

    monkeypatch.setattr(s3_list, "_ask", asking)

    assert sorted(info.path for info in store.list()) == sorted(wanted)
    assert {("", "/"), ("state/", "/"), ("state/0/", "/"), ("state/0/1/", ""), ("commits/", "/")} <= {*asked}

    first = next(iter(store.list()))  # whoever stops in the middle waits for nothing and leaves nothing
    assert first.path in wanted


def test_directory_markers_and_our_temporary_files_are_no_files(store: S3Store, raw: Any) -> None:
    for key in ("commits/", "commits/0", "state/", "state/0/", "commits/.streambank-x.tmp", ".1.x.tmp"):
        raw.put_object(Bucket=BUCKET, Key=key_of(store, key), Body=b"")

    assert sorted(info.path for info in store.list()) == [".1.x.tmp", "commits/0"]
    assert [*store.names("commits")] == ["0"]

    store.prune()
    assert [*store.names()] == [".1.x.tmp", "commits"]
    assert store.read("commits/0") == b""


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_rename_that_died_is_finished_by_the_next(
    store: S3Store, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(s3, "_RENAMED_BY_CREATE_BYTES", limit)
    store.write("a", b"x")
    with monkeypatch.context() as patch:
        patch.setattr(S3Store, "delete", die)
        with pytest.raises(KeyboardInterrupt):
            store.rename("a", "b")
    assert (store.read("a"), store.read("b")) == (b"x", b"x")

    store.rename("a", "b")

    assert [info.path for info in store.list()] == ["b"]
    store.write("c", b"x")  # the same bytes, but another file
    with pytest.raises(ConflictError):
        store.rename("c", "b")
    store.write("a", b"other")
    with pytest.raises(ConflictError):
        store.rename("a", "b")
    assert (store.read("a"), store.read("b"), store.read("c")) == (b"other", b"x", b"x")


def test_a_copy_that_must_not_replace_does_not(store: S3Store) -> None:
    """As a rename of a large file makes it; of many that race one wins."""
    origin = {"streambank-renamed": "one"}
    for name in ("a", "b"):
        store.write(name, name.encode())
    s3_copy.copy(store._place("a"), store._place("c"), origin, exclusive=True)
    s3_copy.copy(store._place("a"), store._place("c"), origin, exclusive=True)  # its answer was lost
    with pytest.raises(ConflictError) as raised:
        s3_copy.copy(store._place("b"), store._place("c"), {"streambank-renamed": "two"}, exclusive=True)
    assert raised.value.code == "exists"
    assert store.read("c") == b"a"

    def race(number: int) -> bool:
        try:
            said = {"streambank-renamed": str(number)}
            s3_copy.copy(store._place("b"), store._place("d"), said, exclusive=True)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(race, range(6))) == 1


def test_a_held_file_is_one_version(store: S3Store) -> None:
    store.write("f", b"first")
    with closing(store.hold("f")) as held:
        store.write("f", b"other")
        assert held.current().identity != held.info.identity
        with pytest.raises(NotFoundError), held.open():
            pass


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
    with pytest.raises(InputError) as raised:
        open_store(store.uri).exists("f")
    assert raised.value.code == "bad-setting"


@pytest.mark.parametrize("key", ["", "arn:aws:kms:us-east-1:111122223333:key/of-the-tests"])
def test_encryption_by_kms_is_asked_for_with_every_object(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """SeaweedFS answers such requests with 500; moto does as Amazon documents."""
    moto_server.use(monkeypatch)
    monkeypatch.setenv("STREAMBANK_S3_SSE", "aws:kms")
    if key:
        monkeypatch.setenv("STREAMBANK_S3_KMS_KEY_ID", key)
    monkeypatch.setattr(s3_write, "PART_BYTES", PART)
    store = open_store(moto_server.location())
    assert isinstance(store, S3Store)
    large = b"0123456789" * (PART // 9)

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
    with pytest.raises(StorageError) as raised:
        store.write_named([b"x"], lambda: "f")
    assert raised.value.code == "disk-full"
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
