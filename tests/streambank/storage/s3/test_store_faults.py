"""S3 over a bad network: each fault has happened, and the outcome is right or one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.retries.standard import ExponentialBackoff

from streambank.core.errors import ConflictError, StorageError
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.s3 import read, write
from streambank.storage.store import TRANSFER_ATTEMPTS, Store, chunks, undamaged
from streambank.work.copy import CopyTask, run_task
from tests.support.refuses import refuses
from tests.support.storage.s3_proxy import Fault, Kind, Proxy, proxy
from tests.support.storage.s3_servers import S3Server

PART = 5 << 20
DATA = bytes(range(256)) * 4096


@pytest.fixture
def network(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """How often boto3 tries again is its own; how long it waits before that (seconds) is left out here."""
    seaweedfs.use(monkeypatch)
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda self, context: 0.01)
    with proxy(seaweedfs.endpoint) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        yield running


@pytest.fixture
def store(network: Proxy, seaweedfs: S3Server) -> Store:
    return open_store(seaweedfs.location())


def break_it(network: Proxy, *faults: Fault) -> None:
    network.faults.extend(faults)


@pytest.mark.parametrize("kind", ["lose", "reset", "busy"])
def test_an_exclusive_create_whose_answer_is_lost_is_ours(store: Store, network: Proxy, kind: Kind) -> None:
    fault = Fault(kind, "PUT", "/file")
    break_it(network, fault)

    store.write("file", b"mine", exclusive=True)

    assert store.read("file") == b"mine"
    assert fault.fired == 1
    with pytest.raises(ConflictError):
        store.write("file", b"mine", exclusive=True)


def test_a_lost_refusal_is_still_a_refusal(store: Store, network: Proxy) -> None:
    store.write("file", b"same")
    fault = Fault("lose", "PUT", "/file", times=2)
    break_it(network, fault)

    with pytest.raises(ConflictError) as raised:
        store.write("file", b"same", exclusive=True)

    assert (raised.value.code, fault.fired) == ("exists", 2)


def test_where_every_answer_is_lost_the_object_tells_who_made_it(store: Store, network: Proxy) -> None:
    fault = Fault("lose", "PUT", "/file", times=100)
    break_it(network, fault)

    store.write("file", b"mine", exclusive=True)

    assert 1 < fault.fired < 10


@pytest.mark.parametrize("kind", ["truncate", "corrupt"])
def test_a_bad_body_is_fetched_again(store: Store, network: Proxy, kind: Kind) -> None:
    store.write("file", DATA)
    fault = Fault(kind, "GET", "/file", times=2)
    break_it(network, fault)

    assert store.read("file") == DATA

    assert fault.fired == 2
    fault.times = 4
    with store.open("file") as reader:
        assert b"".join(chunks(reader)) == DATA
    assert fault.fired == 4


@pytest.mark.parametrize("kind", ["truncate", "corrupt"])
def test_a_body_that_never_arrives_is_one_clear_error(store: Store, network: Proxy, kind: Kind) -> None:
    store.write("file", DATA)
    fault = Fault(kind, "GET", "/file", times=100)
    break_it(network, fault)

    with refuses(StorageError, "corrupt-transfer"):
        store.read("file")

    assert fault.fired == read.ATTEMPTS


def test_a_truncated_range_is_fetched_again(store: Store, network: Proxy) -> None:
    store.write("file", DATA)
    fault = Fault("truncate", "GET", "/file", times=2)
    break_it(network, fault)

    assert store.read("file", 1000, 50_000) == DATA[1000:51_000]
    assert fault.fired == 2


def test_a_large_body_goes_on_where_it_broke_off(
    store: Store, network: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "WHOLE_BYTES", 1000)
    store.write("file", DATA)
    fault = Fault("truncate", "GET", "/file", times=6)
    break_it(network, fault)

    with store.open("file") as reader:
        assert b"".join(chunks(reader)) == DATA
    assert fault.fired == 6

    damage = Fault("corrupt", "GET", "/file")
    break_it(network, damage)
    with store.open("file") as reader, pytest.raises(StorageError) as raised:
        b"".join(chunks(reader))
    assert (raised.value.code, damage.fired) == ("corrupt-transfer", 1)


def test_an_upload_in_parts_survives_lost_answers(
    store: Store, network: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "PART_BYTES", PART)
    part, end = Fault("lose", "PUT", "partNumber=2"), Fault("lose", "POST", "uploadId")
    break_it(network, part, end)
    data = DATA * 6

    store.write("file", [data])

    assert (part.fired, end.fired) == (1, 1)
    assert store.read("file") == data


def test_listings_and_deletes_are_asked_for_again(store: Store, network: Proxy) -> None:
    store.write("a/f", b"x")
    faults = [
        Fault("truncate", "GET", "list-type"),
        Fault("busy", "GET", "list-type"),
        Fault("lose", "DELETE", "/a/f"),
        Fault("reset", "HEAD", "/a/f"),
    ]
    break_it(network, *faults)

    assert [info.path for info in store.list()] == ["a/f"]
    assert store.exists("a/f")
    store.delete("a/f")

    assert [fault.fired for fault in faults] == [1, 1, 1, 1]
    assert not store.exists("a/f")


def test_a_service_that_stays_busy_is_one_clear_error(store: Store, network: Proxy) -> None:
    fault = Fault("busy", "PUT", "/file", times=100)
    break_it(network, fault)

    with refuses(StorageError, "service-busy"):
        store.write("file", b"x")

    assert 1 < fault.fired < 10


def test_a_large_body_that_was_damaged_moves_again(
    store: Store, network: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A take reads it, a restore writes it; neither keeps a damaged byte, and both give up in the end."""
    monkeypatch.setattr(read, "WHOLE_BYTES", 1000)
    data = DATA * 2  # more than what goes into packs
    store.write("checkpoint/state/0/0/1.zip", data)
    info = store.stat("checkpoint/state/0/0/1.zip")
    repository = Repository.open(store.child("repository"), create=True)
    taking, restoring = Fault("corrupt", "GET", "/1.zip"), Fault("corrupt", "GET", "/objects/")
    break_it(network, taking, restoring)

    task = CopyTask.of(replace(info, path="state/0/0/1.zip"), "state-snapshot")
    with repository.objects.writer() as writer:
        entry = run_task(task, store.child("checkpoint"), writer)
    restored = LocalStore(tmp_path)
    undamaged(lambda: restored.write("file", repository.objects.chunks(entry.digest)))

    assert (taking.fired, restoring.fired) == (1, 1)
    assert restored.read("file") == data
    always = Fault("corrupt", "GET", "/1.zip", times=100)
    break_it(network, always)
    with repository.objects.writer() as writer, pytest.raises(StorageError) as raised:
        run_task(task, store.child("checkpoint"), writer)
    assert (raised.value.code, always.fired) == ("corrupt-transfer", TRANSFER_ATTEMPTS)
