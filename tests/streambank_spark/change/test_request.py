"""What is asked is read before Spark is started, and refused where it cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.core.errors import StreambankError
from streambank_spark.change.request import BootstrapRequest, TransformRequest, mapped, request_of
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.rewrite.validate_request import Assignment, ValidateRequest
from tests.support.refuses import refuses


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"operation": "transform"}, "usage"),
        ({"operation": "transform", "where": "true", "delete_where": "true"}, "usage"),
        ({"operation": "transform", "sets": ["value.sum"]}, "bad-expression"),
        ({"operation": "transform", "sets": ["key.k = 1"]}, "repair-key"),
        ({"operation": "transform", "sets": ["value.sum = 1"], "color": 3}, "usage"),
        ({"operation": "bootstrap"}, "usage"),
        ({"operation": "bootstrap", "table": "t", "format": "xls"}, "usage"),
        ({"operation": "bootstrap", "table": "t", "existing": "merge"}, "usage"),
        ({"operation": "bootstrap", "table": "t", "keys": ["k"]}, "bad-expression"),
        ({"operation": "bootstrap", "table": "t", "values": ["n = 1", "n = 2"]}, "bad-expression"),
        ({"operation": "invent"}, "usage"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked: dict[str, Any], code: str) -> None:
    with refuses(StreambankError, code) as caught:
        request_of(asked)
    assert caught.value.hint


def test_each_operation_has_its_request() -> None:
    made = request_of({"operation": "bootstrap", "table": "t", "keys": ["window.start = at"]})
    assert made == BootstrapRequest(table="t", keys=("window.start = at",))
    changed = request_of({"operation": "transform", "sets": ["1/seen: value.n = 2"], "part": "last"})
    assert isinstance(changed, TransformRequest)
    assert changed.assignments() == [Assignment("n", "2", 1, "seen")]
    assert isinstance(request_of({"operation": "validate", "rules": ["true"]}), ValidateRequest)
    assert isinstance(request_of({"operation": "rescale", "partitions": 3}), RewriteRequest)


def test_a_field_gets_all_that_stands_behind_its_equals_sign() -> None:
    assert mapped(["window.start = at", "k=if(a = b, 'x', concat(c, ', '))"]) == {
        "window.start": "at",
        "k": "if(a = b, 'x', concat(c, ', '))",
    }
