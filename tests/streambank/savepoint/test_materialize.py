from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from streambank.control.target_owner import restoring
from streambank.core.errors import ConflictError, StorageError, StreambankError
from streambank.savepoint.materialize import materialize
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from streambank.work.target import METADATA
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.storage.contents import contents


class Meddled:
    """A target in which somebody does something right before each call of one kind."""

    def __init__(self, inner: Store, operation: str, meddle: Callable[[], object]) -> None:
        self._inner = inner
        self._operation = operation
        self._meddle = meddle

    def __getattr__(self, name: str) -> Any:
        if name == self._operation:
            self._meddle()
        return getattr(self._inner, name)


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(f"memory://{tmp_path.name}").run(3)


def refused(
    shop: SimulatedJob, inner: Store, operation: str, meddle: Callable[[], object]
) -> StreambankError:
    manifest = shop.repository.load(JOB, shop.take().savepoint)
    target = cast("Store", Meddled(inner, operation, meddle))
    with restoring(exclusive=True) as owner, pytest.raises(StreambankError) as raised:
        materialize(shop.repository, manifest, target, owner=owner)
    return raised.value


def test_a_file_that_was_cut_after_it_was_written_is_found_and_all_is_removed(shop: SimulatedJob) -> None:
    target = MemoryStore()
    cut: list[str] = []

    def meddle() -> None:
        cut.extend(key for key in contents(target) if key.startswith("state/"))
        for key in cut:
            target.write(key, b"")

    error = refused(shop, target, "list", meddle)
    assert isinstance(error, StorageError) and error.code == "layout-incomplete" and min(cut) in error.message
    assert not contents(target)


def test_a_file_that_somebody_adds_meanwhile_is_named_and_stays_alone(shop: SimulatedJob) -> None:
    target = MemoryStore()

    def meddle() -> None:
        if METADATA in contents(target):
            target.write("mine.txt", b"mine")

    error = refused(shop, target, "list", meddle)
    assert isinstance(error, ConflictError) and error.code == "target-moved" and "mine.txt" in error.message
    assert contents(target) == {"mine.txt": b"mine"}


def test_of_two_that_begin_at_once_one_is_refused_and_touches_nothing(shop: SimulatedJob) -> None:
    target = MemoryStore()

    def meddle() -> None:
        if METADATA not in contents(target):
            target.write(METADATA, b"theirs")

    error = refused(shop, target, "write", meddle)
    assert isinstance(error, ConflictError) and error.code == "restore-in-progress"
    assert contents(target) == {METADATA: b"theirs"}
