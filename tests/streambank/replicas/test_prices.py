"""What keeping bytes costs a month."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.replicas.prices import Prices, load_prices


def test_default_prices() -> None:
    prices = Prices()
    assert prices.per_month("file:///data/savepoints", 10**9) == 0.10
    assert prices.per_month("s3://bucket/x", 2 * 10**9) == 0.046
    assert prices.per_month("s3a://bucket/x", 10**9) == 0.023
    assert prices.per_month("hdfs://name/x", 10**9) == 0.03
    assert prices.per_month("gs://bucket", 10**9) is None


def test_a_price_table(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(
        'currency = "EUR "\n[per_gb_month]\ns3 = 0.5\ngs = 1\n'
        '"s3a://archive" = 0.25\n"s3://archive/cold" = 0.125\n'
    )
    prices = load_prices(file)
    assert prices.currency == "EUR "
    locations = {
        "s3://bucket": 0.5,
        "s3://archive": 0.25,
        "s3a://archive/x": 0.25,
        "s3://archive-2": 0.5,
        "s3://archive/cold/x": 0.125,
        "gs://bucket": 1.0,
        "file:///data": 0.10,
    }
    assert {location: prices.per_month(location, 10**9) for location in locations} == locations


@pytest.mark.parametrize(
    "text",
    [
        "[per_gb_month]\ns3 = -1",
        "[per_gb_month]\ns3 = true",
        "[per_gb_month]\ns3 = nan",
        "per_gb = 1",
        "currency = 1",
        "per_gb_month = 3",
        "[",
        None,
    ],
)
def test_a_price_table_that_cannot_be_used(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "prices.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError) as raised:
        load_prices(file)
    assert raised.value.code == "bad-prices" and str(file) in raised.value.message
