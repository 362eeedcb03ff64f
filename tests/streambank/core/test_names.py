"""Names that jobs and queries may have, and the query that a text names."""

from __future__ import annotations

import pytest

from streambank.core.errors import InputError
from streambank.core.names import QueryRef, check_job_name
from tests.support.refuses import refuses


@pytest.mark.parametrize("name", ["a", "orders", "Orders.v2_x-y", "0", "a" * 100])
def test_names_of_jobs(name: str) -> None:
    assert check_job_name(name) == name
    assert QueryRef.parse(name) == QueryRef(name)
    assert QueryRef.parse(f"{name}/q") == QueryRef(name, "q")


@pytest.mark.parametrize("text", ["orders", "orders/left", "orders/main"])
def test_a_query_is_as_text_what_it_was_read_from(text: str) -> None:
    assert str(QueryRef.parse(text)) == text


def test_the_only_query_of_a_job_is_called_by_the_job_alone() -> None:
    assert str(QueryRef.of("orders", "main")) == str(QueryRef.of("orders", None)) == "orders"
    assert str(QueryRef.of("orders", "left")) == "orders/left"
    assert (QueryRef.parse("orders").name, QueryRef.parse("orders/left").name) == ("main", "left")


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".a", "-a", "_a", "a b", "a/b", "a\n", "ü", "a" * 101, "a\0", "../x", "a;b"]
)
def test_names_that_no_job_may_have(name: str) -> None:
    with refuses(InputError, "bad-name"):
        check_job_name(name)


@pytest.mark.parametrize("job", ["a/", "/a", "a/b/c", "a//b", "../a", "a/..", "a/.b"])
def test_what_names_no_query_is_refused(job: str) -> None:
    with pytest.raises(InputError):
        QueryRef.parse(job)
