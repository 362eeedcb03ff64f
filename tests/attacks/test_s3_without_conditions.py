"""A service that ignores `If-None-Match` lets two win; finding that out destroyed an object."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streambank.core.errors import ConflictError, InputError
from streambank.storage import open_store
from streambank.storage.s3.store import S3Store
from tests.support.refuses import refuses
from tests.support.storage.s3_proxy import Fault, Proxy, proxy
from tests.support.storage.s3_servers import BUCKET, S3Server

LARGE = 2 << 20
"""More than a chunk: the manifest of a take with some thousand files."""


@pytest.fixture
def between(moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """moto looks at no signature, so a header may get lost on the way to it."""
    moto_server.use(monkeypatch)
    with proxy(moto_server.endpoint) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        yield running


@pytest.fixture
def store(between: Proxy, moto_server: S3Server) -> S3Store:
    found = open_store(moto_server.location())
    assert isinstance(found, S3Store)
    return found


def keys(server: S3Server, store: S3Store) -> list[str]:
    """Everything that is below a store, what no listing of ours returns included."""
    with server.client() as client:
        page = client.list_objects_v2(Bucket=BUCKET, Prefix=store.prefix)
    return [item["Key"].removeprefix(store.prefix) for item in page.get("Contents", ())]


@pytest.mark.parametrize("size", [10, LARGE])
def test_what_was_there_is_still_there(
    between: Proxy, store: S3Store, moto_server: S3Server, size: int
) -> None:
    store.write("savepoints/a.json", b"the first")
    between.ignored.add("if-none-match")
    for key in ("savepoints/a.json", "savepoints/b.json"):
        with refuses(InputError, "no-exclusive-create"):
            store.write(key, b"x" * size, exclusive=True)
    assert store.read("savepoints/a.json") == b"the first"
    assert keys(moto_server, store) == ["savepoints/a.json"]


def test_a_service_that_heeds_the_condition_is_asked_once(
    between: Proxy, store: S3Store, moto_server: S3Server
) -> None:
    store.write("f", b"x" * LARGE, exclusive=True)
    asked = len(between.requests)
    store.write("g", b"x", exclusive=True)
    assert [one.split()[0] for one in between.requests[asked:]] == ["PUT"]
    with pytest.raises(ConflictError):
        store.write("f", b"y", exclusive=True)
    assert sorted(keys(moto_server, store)) == ["f", "g"]


def test_a_lost_answer_to_the_proof_proves_as_well(between: Proxy, store: S3Store) -> None:
    between.faults.append(Fault("lose", "PUT", "proof-"))
    store.write("f", b"x", exclusive=True)
    assert between.faults[0].fired == 1
    assert store.read("f") == b"x"


def test_who_may_not_delete_can_take(between: Proxy, store: S3Store, moto_server: S3Server) -> None:
    """Append-only credentials: the proof stays, where nobody sees it."""
    between.faults.append(Fault("deny", "DELETE", times=100))
    store.write("savepoints/f", b"x", exclusive=True)
    left = [key for key in keys(moto_server, store) if "proof" in key]
    assert len(left) == 1
    assert between.faults[0].fired == 1
    assert [info.path for info in store.list()] == ["savepoints/f"]
    assert store.names("savepoints") == ["f"]
