from __future__ import annotations

import pytest

from streambank.control.operation import Lines


@pytest.mark.parametrize(
    ("every_s", "expected"),
    [
        (0, ["one ...", "one: 0 s so far ...", "two ...", "one ..."]),
        (1000, ["one ...", "two ...", "one ..."]),
    ],
)
def test_a_wait_is_said_once_and_again_while_it_lasts(every_s: float, expected: list[str]) -> None:
    said: list[str] = []
    lines = Lines(said.append, every_s)
    for text in ("one", "one", "two", "one"):
        lines(text)
    assert said == expected
