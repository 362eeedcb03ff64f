"""`OLD=NEW` and `QUERY=DIR`, as people write them."""

from __future__ import annotations

import pytest

from streambank.core.errors import InputError
from streambank.core.restore_choices import parse_file_sinks, parse_new_sinks
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


@pytest.mark.parametrize("given", ["/out/day=1", "out/day=/x", "day=1", "s3://a/day=1", "hourly=out"])
def test_a_job_with_one_query_needs_no_name_of_it(given: str) -> None:
    assert parse_file_sinks([given], ["main"]) == {"main": (given,)}
    assert parse_file_sinks([f"main={given}"], ["main"]) == {"main": (given,)}


@pytest.mark.parametrize("given", ["mian=/out", "mian=s3://a/out", "mian=file:///out"])
def test_a_mistyped_query_is_no_directory(given: str) -> None:
    with refuses(InputError, "bad-file-sink"):
        parse_file_sinks([given], ["main"])
