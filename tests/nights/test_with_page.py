"""The ten nights of the docs with Streambank's page open, where the person acts by clicks; see `hands`."""

from __future__ import annotations

import pytest

from tests.nights.played import play
from tests.nights.record import Night, table
from tests.nights.site import Site
from tests.nights.ten import TEN
from tests.nights.test_nights import nights, site

__all__ = ["nights", "site"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.airflow,
    pytest.mark.server,
    pytest.mark.storm,
    pytest.mark.timeout(1800),
]


@pytest.mark.parametrize("name", list(TEN))
def test_the_open_page_says_what_is_wrong_and_leads_back(site: Site, nights: list[Night], name: str) -> None:
    night = play(site, name, with_page=True)
    nights.append(night)
    print(table([night]))
    assert not night.failure, night.failure
    assert night.said or not night.clicks, "the page says nothing, and a person has to act"
