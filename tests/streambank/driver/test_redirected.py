"""Which place stands for the one that an application names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streambank.core.errors import RefusedError
from streambank.core.shape import decode, encode
from streambank.driver.outputs import FILES, TABLE, Output
from streambank.driver.redirected import SCRATCH, redirected
from streambank.driver.spec import QuerySpec
from streambank.sinks.redirect import Redirect
from tests.support.refuses import refuses

DRILL = Redirect("file:///scratch/orders", scratch=True)
FORK = Redirect("file:///copy/orders", table="orders_copy", topic="orders-copy")

COPY = Redirect(
    outputs={
        "s3a://live/out": "file:///copy/out",
        "file:///lake": "file:///copy/lake",
        "shop.orders": "file:///copy/orders",
        "sums": "file:///copy/sums",
    }
)


@pytest.mark.parametrize(
    ("redirect", "named", "expected"),
    [
        (DRILL, Output(FILES, "file:///live"), Output(FILES, "file:///scratch/orders")),
        (DRILL, Output("delta", "s3://lake/orders"), Output("delta", "file:///scratch/orders")),
        (DRILL, Output(TABLE, name="shop.orders"), Output(SCRATCH, "file:///scratch/orders")),
        (DRILL, Output("kafka", name="orders"), Output(SCRATCH, "file:///scratch/orders")),
        (DRILL, Output("some.other.Format"), Output(SCRATCH, "file:///scratch/orders")),
        (FORK, Output(FILES, "file:///live"), Output(FILES, "file:///copy/orders")),
        (FORK, Output(TABLE, name="shop.orders"), Output(TABLE, name="orders_copy")),
        (FORK, Output("kafka", name="orders"), Output("kafka", name="orders-copy")),
        (COPY, Output(FILES, "s3://live/out"), Output(FILES, "file:///copy/out")),
        (COPY, Output("delta", "file:///lake"), Output("delta", "file:///copy/lake")),
        (COPY, Output(TABLE, name="shop.orders"), Output(SCRATCH, "file:///copy/orders")),
        (COPY, Output("kafka", name="sums"), Output(SCRATCH, "file:///copy/sums")),
        (
            replace(COPY, folder="query=a"),
            Output("kafka", name="sums"),
            Output(SCRATCH, "file:///copy/sums/query=a"),
        ),
        (
            replace(COPY, folder="query=a"),
            Output("delta", "file:///lake"),
            Output("delta", "file:///copy/lake"),
        ),
        (Redirect(), Output("console"), Output("console")),
        (DRILL, Output("memory"), Output("memory")),
    ],
    ids=str,
)
def test_each_kind_has_its_place(redirect: Redirect, named: Output, expected: Output) -> None:
    assert redirected(redirect, named, "main") == expected


@pytest.mark.parametrize(
    ("redirect", "named"),
    [
        (DRILL, Output("foreachBatch")),
        (FORK, Output("foreach")),
        (FORK, Output("some.other.Format", "file:///live")),
        (Redirect(table="orders_copy"), Output(FILES, "file:///live")),
        (Redirect("file:///copy"), Output("kafka", name="orders")),
        (Redirect(scratch=True), Output("kafka", name="orders")),
        (COPY, Output(FILES, "file:///live/other")),
        (COPY, Output("kafka", name="orders")),
        (COPY, Output("foreachBatch")),
    ],
    ids=str,
)
def test_what_has_no_place_is_refused(redirect: Redirect, named: Output) -> None:
    with refuses(RefusedError, "sink-not-redirected") as refused:
        redirected(redirect, named, "main")
    assert str(named) in refused.value.message


def test_a_launch_spec_carries_the_places() -> None:
    for redirect in (FORK, COPY):
        spec = QuerySpec("file:///checkpoint", 1, redirect=redirect)
        assert decode(QuerySpec, encode(spec), "launch spec") == spec
    old = {"checkpoint": "file:///checkpoint", "generation": 1}
    assert decode(QuerySpec, old, "launch spec").redirect is None
