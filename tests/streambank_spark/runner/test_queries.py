"""Which declared query a start is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from streambank.core.errors import RefusedError
from streambank.driver.outputs import Output
from streambank.driver.spec import QuerySpec
from streambank_spark.runner.queries import Managed, Queries, QueryLooks
from tests.support.refuses import refuses


@dataclass
class Wire:
    """Stands for the JVM's side of a query: its thread ends when told."""

    over: threading.Event = field(default_factory=threading.Event)

    def awaitTermination(self) -> None:
        self.over.wait()


@dataclass
class Query:
    _jsq: Wire = field(default_factory=Wire)
    isActive: bool = True


def start(queries: Queries, name: str | None, sources: list[str], **looks: Any) -> Managed:
    with queries.starting(QueryLooks(name, tuple(sources), **looks)) as (declared, spec):
        assert queries.is_starting()
        query: Any = Query()
        managed = Managed(declared, spec, query, "id", "run")
        queries.add(managed)
    return managed


def end(managed: Managed) -> None:
    managed.query.isActive = False
    managed.query._jsq.over.set()
    assert managed.ended.wait(10)


def refused(start_it: Callable[[], object]) -> str:
    with pytest.raises(RefusedError) as error:
        start_it()
    assert "queryName" in error.value.hint
    return error.value.code


@pytest.fixture
def one() -> Queries:
    return Queries("job", {"main": QuerySpec("file:///c", 1)})


@pytest.fixture
def several() -> Queries:
    return Queries("job", {"raw": QuerySpec("file:///c/raw", 1), "daily": QuerySpec("file:///c/daily", 3)})


def test_any_one_query_is_the_only_query(one: Queries) -> None:
    managed = start(one, "whatever", ["a"])
    assert (managed.name, managed.spec.checkpoint) == ("main", "file:///c")
    assert one.running() == [managed]
    assert refused(lambda: start(one, "whatever", ["a"])) == "undeclared-query"
    assert refused(lambda: start(one, None, ["a"])) == "undeclared-query"
    end(managed)
    assert one.running() == []


def test_the_same_query_starts_again_and_another_one_does_not(one: Queries) -> None:
    end(start(one, None, ["a"]))
    assert refused(lambda: start(one, None, ["b"])) == "undeclared-query"
    assert refused(lambda: start(one, "named", ["a"])) == "undeclared-query"
    end(start(one, None, ["a"]))
    assert len(one.all()) == 2


def test_declared_queries_by_name(several: Queries) -> None:
    raw, daily = start(several, "raw", ["a"]), start(several, "daily", ["a"])
    assert (raw.name, daily.name, daily.spec.generation) == ("raw", "daily", 3)
    assert refused(lambda: start(several, None, ["a"])) == "undeclared-query"
    assert refused(lambda: start(several, "other", ["a"])) == "undeclared-query"
    assert refused(lambda: start(several, "raw", ["a"])) == "query-runs-already"
    end(raw)
    end(daily)


def test_a_query_is_found_by_the_name_that_its_application_gives_it() -> None:
    spec = QuerySpec("file:///c/writer", 1, spark_name="Notification Writer")
    queries = Queries("job", {"writer": spec, "raw": QuerySpec("file:///c/raw", 1)})
    managed = start(queries, "Notification Writer", ["a"])
    assert (managed.name, managed.spec) == ("writer", spec)
    with pytest.raises(
        RefusedError, match=r"declares raw, writer \('Notification Writer'\), but not query 'w"
    ):
        start(queries, "writer", ["a"])
    with pytest.raises(
        RefusedError, match=r"while its query writer \('Notification Writer'\) is still running"
    ):
        start(queries, "Notification Writer", ["a"])
    end(managed)


def test_a_query_that_was_waited_for_is_started_again_at_once(one: Queries) -> None:
    """Its application heard of the end, and the thread here that waits for it did not yet."""
    first = start(one, None, ["a"])
    first.query.isActive = False
    late = threading.Timer(0.3, first.query._jsq.over.set)
    late.start()
    second = start(one, None, ["a"])
    assert first.ended.is_set() and not second.ended.is_set()
    end(second)


def test_a_start_that_fails_leaves_its_place_free(one: Queries) -> None:
    with pytest.raises(OSError, match="no space"), one.starting(QueryLooks(None, ("a",))):
        raise OSError("no space")
    assert not one.is_starting()
    end(start(one, None, ["a"]))


FILES = {"output": Output("files", "file:///out"), "checkpoint": "file:///own"}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"output": Output("foreachBatch")}, "wrote to files file:///out instead of foreachBatch"),
        ({"output": Output("files", "file:///other")}, "instead of files file:///other"),
        ({"operators": ("Aggregate",)}, "kept state for nothing instead of Aggregate"),
        (
            {"checkpoint": "file:///second"},
            "named the checkpointLocation file:///own instead of file:///second",
        ),
        ({"checkpoint": None}, "named the checkpointLocation file:///own instead of None"),
    ],
)
def test_two_unnamed_queries_are_told_apart(one: Queries, other: dict[str, Any], said: str) -> None:
    end(start(one, None, ["a"], **FILES))
    with refuses(RefusedError, "undeclared-query", match=said):
        start(one, None, ["a"], **{**FILES, **other})
    end(start(one, None, ["a"], **FILES))


def test_a_checkpoint_location_is_the_same_by_each_name_of_its_service() -> None:
    named = QueryLooks("a", ("b",), checkpoint="s3a://lake/ck")
    assert named.unlike(replace(named, checkpoint="s3://lake//ck/")) is None
    for other in ("s3://lake/other", None):
        assert "named the checkpointLocation" in str(named.unlike(replace(named, checkpoint=other)))


def test_a_start_that_was_refused_says_nothing_of_the_query(one: Queries) -> None:
    with pytest.raises(OSError, match="refused"), one.starting(QueryLooks(None, ("a",), Output("files"))):
        raise OSError("refused")
    end(start(one, None, ["a"], output=Output("noop")))
