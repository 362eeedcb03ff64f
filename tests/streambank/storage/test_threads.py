"""How much is worked on at once: as much as somebody says, else as much as the stores want."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.savepoint.verify import verify
from streambank.storage.local.store import LocalStore
from streambank.work.executor import Pace
from tests.support.jobs.simulated_job import JOB, SimulatedJob

LARGE_STATE = 400_000  # snapshots are four times as large: objects of their own


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path, state_bytes=LARGE_STATE).run(12)


@pytest.mark.parametrize(("wanted", "best", "many"), [(None, 4, 4), (None, 16, 16), (2, 16, 2)])
def test_a_store_says_how_much_at_once_is_best_where_nobody_else_does(
    shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch, wanted: int | None, best: int, many: int
) -> None:
    asked: list[int] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, max_workers: int, **more: Any) -> None:
            asked.append(max_workers)
            super().__init__(max_workers, **more)

    monkeypatch.setattr("streambank.work.executor.ThreadPoolExecutor", Pool)
    features = replace(shop.repository_store.features, at_once=best)
    monkeypatch.setattr(LocalStore, "features", property(lambda store: features))
    result = shop.take(pace=Pace(parallel=wanted))
    shop.restore(result.savepoint, pace=Pace(parallel=wanted))
    assert verify(shop.repository, JOB, result.savepoint, "full", pace=Pace(parallel=wanted)).ok
    assert set(asked) == {many}
