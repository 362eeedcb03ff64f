"""The exactly-once storm on each release before the installed one, by pairs of query and layout with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storm.cells import ON_RELEASES
from tests.support.spark.exactly_once_cell import CellProcess, cell_process

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def process(request: pytest.FixtureRequest) -> Iterator[CellProcess]:
    with cell_process(request.param) as found:
        yield found


@pytest.mark.parametrize(("process", "query", "layout"), ON_RELEASES, indirect=["process"])
def test_every_restored_savepoint_goes_on_exactly(
    process: CellProcess, tmp_path: Path, query: str, layout: str
) -> None:
    process.play(tmp_path, query, layout, batches=10, restored=3)
