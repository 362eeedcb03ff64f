from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambank.core.errors import InputError
from streambank.storage.names import check_job_name, check_key, is_key, split_job


@pytest.mark.parametrize("name", ["a", "orders", "Orders.v2_x-y", "0", "a" * 100])
def test_names_of_jobs(name: str) -> None:
    assert check_job_name(name) == name
    assert split_job(name) == (name, None)
    assert split_job(f"{name}/q") == (name, "q")


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".a", "-a", "_a", "a b", "a/b", "a\n", "ü", "a" * 101, "a\0", "../x", "a;b"]
)
def test_names_that_no_job_may_have(name: str) -> None:
    with pytest.raises(InputError) as raised:
        check_job_name(name)
    assert raised.value.code == "bad-name"


@pytest.mark.parametrize("job", ["a/", "/a", "a/b/c", "a//b", "../a", "a/..", "a/.b"])
def test_jobs_that_cannot_be_split(job: str) -> None:
    with pytest.raises(InputError):
        split_job(job)


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
