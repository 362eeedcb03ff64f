"""Every night ends as it must; see `played`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from os import getpid
from pathlib import Path

import pytest

from tests.nights.played import NIGHTS, play
from tests.nights.record import Night, table, write
from tests.nights.site import Site, open_site

pytestmark = [
    pytest.mark.spark,
    pytest.mark.airflow,
    pytest.mark.server,
    pytest.mark.storm,
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def nights() -> Iterator[list[Night]]:
    """What came of those that were played; written down and printed at the end."""
    played: list[Night] = []
    yield played
    page = write(played, f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{getpid()}")
    print(f"\n{table(played)}\n{page}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(Path(tmp_path_factory.mktemp("nights")) / "site") as site:
        yield site


@pytest.mark.parametrize("name", list(NIGHTS))
def test_a_night(site: Site, nights: list[Night], name: str) -> None:
    night = play(site, name)
    nights.append(night)
    print(table([night]))
    assert not night.failure, night.failure
