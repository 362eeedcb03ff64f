"""The stores that one suite holds to the contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.storage.base import Store
from streambank.storage.local import LocalStore
from streambank.storage.memory import MemoryStore
from tests.support.faulty_store import FaultyStore

MAKERS: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "memory-without-holds": lambda folder: MemoryStore(holds=False),
    "memory-child": lambda folder: MemoryStore().child("deep/below"),
    "local": lambda folder: LocalStore(folder / "root"),
    "local-child": lambda folder: LocalStore(folder / "root").child("deep/below"),
    "faulty": lambda folder: FaultyStore(LocalStore(folder / "root")),
}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MAKERS[request.param](tmp_path)
