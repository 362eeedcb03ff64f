from __future__ import annotations

from collections.abc import Callable

import pytest

from streambank.checkpoint.text import decode, load_json, parse_version
from streambank.core.errors import FormatError
from tests.support.refuses import refuses


def test_what_is_whole_is_read() -> None:
    assert decode("v1\nü".encode(), "offsets/3") == "v1\nü"
    assert load_json('{"a": [1]}') == {"a": [1]}
    assert [parse_version(line, "offsets/3", 2) for line in ("v1", "v2\n", " v01 ")] == [1, 2, 1]


@pytest.mark.parametrize(
    "read",
    [
        lambda: decode(b"v1\n\xff", "offsets/3"),
        lambda: load_json('{"a": ', "offsets/3"),
        lambda: load_json("[" * 100_000, "offsets/3"),
        *(
            (lambda line=line: parse_version(line, "offsets/3", 2))
            for line in ("", "v0", "v", "1", "v1x", "v٣")
        ),
    ],
)
def test_whatever_is_wrong_with_the_bytes_the_error_names_the_file(read: Callable[[], object]) -> None:
    with refuses(FormatError, "half-written", match="offsets/3"):
        read()


def test_a_version_of_the_future_is_not_taken_for_damage() -> None:
    with refuses(FormatError, "unknown-version", match="version 3"):
        parse_version("v3", "offsets/3", 2)
