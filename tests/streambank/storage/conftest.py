"""The stores that one suite holds to the contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.storage import open_store
from streambank.storage.fsspec import store as fsspec_store
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.storage import fsspec_filesystems
from tests.support.storage.faulty_store import FaultyStore
from tests.support.storage.hdfs import Hdfs, hdfs
from tests.support.storage.s3_servers import S3Server, moto_server, seaweedfs, versitygw

__all__ = ["hdfs", "moto_server", "seaweedfs", "versitygw"]  # fixtures

MAKERS: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "memory-without-holds": lambda folder: MemoryStore(holds=False),
    "memory-child": lambda folder: MemoryStore().child("deep/below"),
    "local": lambda folder: LocalStore(folder / "root"),
    "local-child": lambda folder: LocalStore(folder / "root").child("deep/below"),
    "faulty": lambda folder: FaultyStore(LocalStore(folder / "root")),
    "fsspec": lambda folder: open_store(f"{fsspec_filesystems.BLOBS}:/{folder}/root"),
    "fsspec-child": lambda folder: open_store(f"{fsspec_filesystems.BLOBS}:/{folder}/root").child(
        "deep/below"
    ),
}
S3 = {
    "s3": ("seaweedfs", "s3"),
    "s3a": ("seaweedfs", "s3a"),
    "s3-of-moto": ("moto_server", "s3"),
    "s3-of-versitygw": ("versitygw", "s3"),
}
"""Fixture of a server, and how locations on it are spelled."""
HDFS = "webhdfs"

STORM = {"s3-of-versitygw", HDFS}
"""For `make test-storm`: one has to be built first, the other takes Hadoop's daemons."""


NOT_RACED = {"s3-of-moto"}
"""It looks whether a key is there and then writes it, in two steps: its races have several winners."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let nobody race for a key on a server that is no judge of races."""
    raced = [item for item in items if item.get_closest_marker("race")]
    items[:] = [
        item for item in items if item not in raced or not any(name in item.name for name in NOT_RACED)
    ]


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.storm) if name in STORM else name
        for name in [*MAKERS, *S3, HDFS]
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param.startswith("fsspec"):
        fsspec_filesystems.register()
        monkeypatch.setattr(fsspec_store, "CREATES", frozenset({fsspec_filesystems.BLOBS}))
    if request.param in MAKERS:
        return MAKERS[request.param](tmp_path)
    if request.param == HDFS:
        running: Hdfs = request.getfixturevalue("hdfs")
        return open_store(running.on_web(running.location()))
    fixture, scheme = S3[request.param]
    server: S3Server = request.getfixturevalue(fixture)
    return open_store(server.use(monkeypatch).location(scheme))
