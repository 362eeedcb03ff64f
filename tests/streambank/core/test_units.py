from __future__ import annotations

import math

import pytest

from streambank.core.errors import InputError
from streambank.core.units import (
    EPOCH,
    from_epoch_ms,
    number_or_none,
    parse_bytes,
    parse_duration_s,
    say_bytes,
    time_or_none,
    to_json_time,
)
from tests.support.refuses import refuses


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
    with refuses(InputError, "bad-size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (1234, "1.23 kB"),
        (999_600, "1 MB"),
        (-1.5e9, "-1.5 GB"),
        (1.2e15, "1.2 PB"),
        (1.2e18, "1,200 PB"),
    ],
)
def test_sizes_for_people_have_three_digits(size_bytes: float, text: str) -> None:
    assert say_bytes(size_bytes) == text


def test_milliseconds_of_spark() -> None:
    moment = from_epoch_ms(1_700_000_000_123)
    assert moment is not None and to_json_time(moment) == "2023-11-14T22:13:20.123Z"
    assert from_epoch_ms(2**63 - 1) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("7d", 604800), ("1.5h", 5400), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "60", "5 m", "m", "-5s", "1h and more", "5S", "1e3s", "s5", "٣s"])
def test_what_is_no_duration(text: str) -> None:
    with refuses(InputError, "bad-duration", hint="60s"):
        parse_duration_s(text)


NO_TIMES: tuple[object, ...] = (None, "", "yesterday", 7, "2026-11-30T03:12:00", [])
NO_NUMBERS: tuple[object, ...] = (None, "7", True, math.nan, math.inf, 10**400)


def test_what_a_record_has_in_the_place_of_a_time_or_a_number_is_none() -> None:
    assert to_json_time(time_or_none("2026-11-30T04:12:00+01:00") or EPOCH) == "2026-11-30T03:12:00.000Z"
    assert not any(time_or_none(value) for value in NO_TIMES)
    assert (number_or_none(7), number_or_none(-0.5)) == (7.0, -0.5)
    assert all(number_or_none(value) is None for value in NO_NUMBERS)
