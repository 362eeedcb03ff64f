"""A store on a server of S3, and a client of boto3 that looks at the same bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streambank.storage import open_store
from streambank.storage.s3.store import S3Store
from tests.support.storage.s3_servers import S3Server


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
