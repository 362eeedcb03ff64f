"""How large state gets before a job runs."""

from __future__ import annotations

import pytest

from streambank.advice.request import LoadRequest
from streambank.advice.sizes import estimate, row_bytes
from streambank.core.errors import InputError

Given = tuple[int | None, int, LoadRequest]


def given(keys: int | None, row_bytes: int, rate: float | None = None, **times: float) -> Given:
    """What `estimate` takes."""
    return keys, row_bytes, LoadRequest(events_per_second=rate, **times)


def test_a_row_is_as_large_as_spark_writes_it() -> None:
    key, value = row_bytes(0, (18,)), row_bytes(3)
    assert (key, value) == (40, 32)
    assert key + value + 2 == 74  # as bench/STORES.md measures: a byte for the version in front of each


def test_keys_without_an_end_are_as_many_as_there_are() -> None:
    found = estimate(*given(5_000_000, 200))
    assert (found.rows, found.most_rows, found.state_bytes, found.lives_s) == (
        5_000_000,
        5_000_000,
        10**9,
        None,
    )
    assert "grows" in found.unknown[0]


def test_windows_live_until_the_watermark_has_passed_their_end() -> None:
    found = estimate(*given(1000, 100, window_s=600, slide_s=300, watermark_s=900))
    assert (found.windows, found.lives_s, found.rows) == (5, 1500, 5000)
    tumbling = estimate(*given(1000, 100, window_s=600, watermark_s=600, trigger_s=60))
    assert (tumbling.windows, tumbling.lives_s, tumbling.rows) == (3, 1260, 3000)


def test_a_rate_fills_windows_by_and_by() -> None:
    found = estimate(*given(None, 100, 10.0, window_s=100, watermark_s=100))
    assert found.most_rows == 2000
    assert found.rows == 1500  # one whole window of 1,000 events, and one that is half full
    many = estimate(*given(10, 100, 1000.0, window_s=100, watermark_s=100))
    assert many.most_rows == 20 and many.rows == 20  # all keys come at once


def test_few_events_hit_some_keys_twice() -> None:
    found = estimate(*given(10_000, 74, 40.0, window_s=600, slide_s=600, watermark_s=600, trigger_s=120))
    assert found.rows == 17_123
    assert found.update_share == pytest.approx(3812 / 17_123, rel=0.01)


def test_rows_with_a_ttl_are_those_that_come_within_it() -> None:
    assert estimate(*given(None, 50, 100.0, ttl_s=3600)).rows == 360_000
    assert estimate(*given(1000, 50, 100.0, ttl_s=3600)).rows == 1000
    without_rate = estimate(*given(1000, 50, ttl_s=3600))
    assert without_rate.rows == 1000 and "events per second" in without_rate.unknown[0]


def test_a_key_is_let_in_again_when_its_row_is_gone() -> None:
    found = estimate(*given(10_000, 74, 40.0, dedup_s=600, trigger_s=120))
    assert found.lives_s == 1320
    assert found.rows == round(10_000 * 1320 / (1320 + 250))


@pytest.mark.parametrize(
    "load",
    [
        given(None, 100),
        given(None, 100, ttl_s=60),
        given(0, 100),
        given(10, 0),
        given(10, 100, window_s=60),
        given(10, 100, window_s=60, slide_s=90, watermark_s=1),
        given(10, 100, slide_s=90),
        given(None, 100, window_s=60, watermark_s=1),
        given(10, 100, dedup_s=60),
    ],
)
def test_what_has_no_size_is_refused(load: Given) -> None:
    with pytest.raises(InputError) as caught:
        estimate(*load)
    assert caught.value.code == "bad-input" and caught.value.hint


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (given(10, 100, window_s=60, watermark_s=1, dedup_s=60), "--window and --dedup"),
        (given(10, 100, window_s=60, watermark_s=1, ttl_s=60), "--window and --ttl"),
        (given(10, 100, 5.0, dedup_s=60, ttl_s=60), "--dedup and --ttl"),
        (given(10, 100, 5.0, dedup_s=60, watermark_s=60), "--dedup and --watermark"),
        (given(10, 100, ttl_s=60, watermark_s=60), "--ttl and --watermark"),
        (given(10, 100, trigger_s=60), "--trigger says nothing"),
        (given(10, 100, 5.0), "--events-per-second says nothing"),
    ],
)
def test_what_would_be_ignored_beside_something_else_is_refused(load: Given, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        estimate(*load)
    assert caught.value.code == "usage" and caught.value.hint


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e300, 1e-300])
def test_a_rate_or_a_time_that_makes_no_sense_is_refused(number: float) -> None:
    with pytest.raises(InputError, match="--events-per-second"):
        estimate(*given(10, 100, number, ttl_s=60))
    if number != 1e-300:
        for name in ("window_s", "slide_s", "dedup_s", "ttl_s", "trigger_s"):
            with pytest.raises(InputError):
                estimate(*given(10, 100, 5.0, **{"window_s": 60, "watermark_s": 1, name: number}))
