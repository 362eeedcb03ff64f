"""`OLD=NEW`, as people write it."""

from __future__ import annotations

import pytest

from streambank.core.errors import InputError
from streambank.core.restore_choices import parse_new_sinks
from tests.support.refuses import refuses


def test_each_is_split() -> None:
    given = ["/out=/new", "s3://a/out=s3://b/day=1/out", "/day=1/out=/day=2/out", "/a=b"]
    assert parse_new_sinks(given) == {
        "/out": "/new",
        "s3://a/out": "s3://b/day=1/out",
        "/day=1/out": "/day=2/out",
        "/a": "b",
    }


@pytest.mark.parametrize("given", [["/out"], ["=/new"], ["/out="], [""], ["/out=/a", "/out=/b"]])
def test_what_does_not_name_one_new_directory_is_refused(given: list[str]) -> None:
    with refuses(InputError, "bad-new-sink"):
        parse_new_sinks(given)
