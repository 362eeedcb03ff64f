from __future__ import annotations

import pytest

from streambank.core.errors import InputError
from streambank.core.units import parse_bytes, say_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0B", 0),
        ("10GB", 10**10),
        ("1.5 GiB", 3 * 2**29),
        ("800kB", 800_000),
        ("800KB", 800_000),
        ("2TiB", 2**41),
    ],
)
def test_sizes_have_a_unit(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "10", "GB", "-1GB", "1 PB", "1,5GB", "1kiB", "10GB/s", "1e3MB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_bytes(text)
    assert caught.value.code == "bad-size"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (1234, "1.23 kB"),
        (999_600, "1 MB"),
        (-1.5e9, "-1.5 GB"),
        (1.2e15, "1.2e+03 TB"),
    ],
)
def test_sizes_for_people_have_three_digits(size_bytes: float, text: str) -> None:
    assert say_bytes(size_bytes) == text
