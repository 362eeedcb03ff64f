from __future__ import annotations

import pytest

from streambank.core.errors import InputError
from streambank.core.units import from_epoch_ms, parse_duration_s, to_json_time


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
    with pytest.raises(InputError) as caught:
        parse_duration_s(text)
    assert caught.value.code == "bad-duration" and "60s" in caught.value.hint
