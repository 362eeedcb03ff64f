from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambank.core.errors import InputError
from streambank.storage.names import check_key, is_key


@given(st.text())
def test_a_key_never_climbs(key: str) -> None:
    if not is_key(key):
        with pytest.raises(InputError):
            check_key(key)
        return
    parts = key.split("/")
    assert all(part not in ("", ".", "..") for part in parts)
    assert key.encode()
    assert not any(ord(character) < 32 or character == "\\" for character in key)


def test_keys_have_an_end() -> None:
    assert not is_key("a/" * 2000 + "a")
