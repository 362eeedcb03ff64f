"""What keeping bytes costs a month, from a table that can be edited.

    currency = "$"

    [per_gb_month]
    file = 0.10                     # by the scheme of a location,
    s3 = 0.023                      # s3a:// is s3:// here
    "s3://archive/streambank" = 0.004   # or by its beginning: the longest one that fits counts

A gigabyte is 10^9 bytes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streambank.core.errors import InputError
from streambank.storage.locations import scheme_of

DEFAULT_PRICES: Mapping[str, float] = {"file": 0.10, "hdfs": 0.03, "s3": 0.023}
"""Per GB and month, in dollars: a local SSD, HDFS with three copies on disks, Amazon S3 Standard."""
GB = 10**9


@dataclass(frozen=True, slots=True)
class Prices:
    """What a gigabyte costs a month in each place.

    Attributes:
        per_gb_month: Price by scheme, or by the beginning of a location.
    """

    per_gb_month: Mapping[str, float] = field(default_factory=lambda: DEFAULT_PRICES)
    currency: str = "$"

    def per_month(self, location: str, size_bytes: int) -> float | None:
        """What keeping some bytes in a place costs a month; None where the table has no price for it."""
        price = self._price(_spelled(location))
        return None if price is None else price * size_bytes / GB

    def _price(self, location: str) -> float | None:
        places = [
            place
            for place in self.per_gb_month
            if "://" in place and (location + "/").startswith(place.rstrip("/") + "/")
        ]
        if places:
            return self.per_gb_month[max(places, key=len)]
        return self.per_gb_month.get(scheme_of(location))


def load_prices(file: Path) -> Prices:
    """The table in a TOML file; schemes that it leaves out keep their default prices.

    Raises:
        InputError: It cannot be read, or says something else (code `bad-prices`).
    """
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _bad(file, str(error)) from error
    if unknown := sorted(found.keys() - {"currency", "per_gb_month"}):
        raise _bad(file, f"{unknown[0]} is not known")
    currency, table = found.get("currency", "$"), found.get("per_gb_month", {})
    if not isinstance(currency, str) or not isinstance(table, dict):
        raise _bad(file, "currency must be a text, and per_gb_month a table")
    for place, price in table.items():
        if not _is_price(price):
            raise _bad(file, f"the price of {place} must be a number of at least 0")
    given = {_spelled(place): float(price) for place, price in table.items()}
    return Prices({**DEFAULT_PRICES, **given}, currency)


def _is_price(price: Any) -> bool:
    return isinstance(price, int | float) and not isinstance(price, bool) and 0 <= price < float("inf")


def _spelled(place: str) -> str:
    """A location as the table has it: the objects of s3a:// are those of s3://."""
    return re.sub(r"\As3a(?=://|\Z)", "s3", place)


def _bad(file: Path, why: str) -> InputError:
    return InputError(
        f"The price table {file} cannot be used: {why}.",
        code="bad-prices",
        hint='Write a table [per_gb_month] with lines such as s3 = 0.023 or "s3://archive" = 0.004.',
    )
