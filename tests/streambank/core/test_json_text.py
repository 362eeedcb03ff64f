"""JSON that Python reads and nobody can work with."""

from __future__ import annotations

import math

import pytest

from streambank.core.json_text import MOST_DIGITS, loads


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        "1" * 5_000,
        "9" * (MOST_DIGITS + 1),
        "1e999",
        "-1e999",
        "Infinity",
        "-Infinity",
        "{",
        "",
    ],
)
def test_what_nobody_can_work_with_is_a_value_error(text: str) -> None:
    for one in (text, text.encode()):
        with pytest.raises(ValueError):
            loads(one)


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\uDFFF": 1}', '[["a\\udbffb"]]', '"\\ude00\\ud83d"'])
def test_half_of_a_character_is_a_value_error(text: str) -> None:
    """No file can hold it, so what has read it could not write it again."""
    with pytest.raises(ValueError, match="half"):
        loads(text)
    assert loads(r'"\ud83d\ude00 \\ud800"') == "\U0001f600 \\ud800"


def test_bytes_that_are_no_text_are_a_value_error() -> None:
    with pytest.raises(ValueError):
        loads(b'"\xff"')


def test_all_else_is_what_it_is() -> None:
    assert loads(b'{"a": [1, -2.5, null, true, "\xc3\xa4"], "b": 18446744073709551616}') == {
        "a": [1, -2.5, None, True, "ä"],
        "b": 2**64,
    }
    assert loads("-0") == 0 and loads("1e-400") == 0.0 and math.isnan(loads("NaN"))
