"""The queries of a running driver: which ones are declared, which one a `start` is, which ones still run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from streambank.core.errors import RefusedError
from streambank.core.names import MAIN
from streambank.declaration.state import HotKeysPolicy
from streambank.driver.application import DECLARE
from streambank.driver.outputs import Output
from streambank.driver.spec import QuerySpec
from streambank.storage import service_name
from streambank_spark.private import jvm
from streambank_spark.runner.key_sampling import KeySampling

_END_S = 30.0
"""How long a query that was told to end is waited for before it is started again."""


@dataclass(slots=True)
class Managed:
    """One query that was started.

    Attributes:
        query: PySpark's `StreamingQuery`.
        last_batch: The newest batch whose progress was recorded; -1 before the first.
        triggered: Whether a first trigger has finished, with data or without.
        ended: Set when its thread has ended.
        over: Whether its end was written down.
        kafka: Its Kafka sources, and what was said about a Kafka sink: servers and topics.
        trigger_s: The interval of its trigger in seconds, 0 for as fast as it can; None where it has none.
        output: Where it writes; None where that is not known.
        named: Where its application would have it write, where its launch redirects it; else None.
        fixed_options: Options of its sources that a copy of it could not leave out (redirect.py).
        sampling: The measurement of its hot keys; None where none is declared.
    """

    name: str
    spec: QuerySpec
    query: Any
    query_id: str
    run_id: str
    last_batch: int = -1
    triggered: bool = False
    ended: threading.Event = field(default_factory=threading.Event)
    over: bool = False
    failure: str | None = None
    trigger_s: float | None = None
    kafka: Mapping[str, Any] = field(default_factory=dict)
    output: Output | None = None
    named: Output | None = None
    fixed_options: tuple[str, ...] = ()
    sampling: KeySampling | None = None


@dataclass(frozen=True, slots=True)
class QueryLooks:
    """What a query looks like before Spark starts it, so that two of them can be told apart.

    Attributes:
        name: The name that the application gave it; None for none.
        output: Where it is to write; None where that is not known.
        operators: Its operators that keep state, in Spark's words.
        checkpoint: The checkpoint location that the application itself named; None for none.
    """

    name: str | None
    sources: tuple[str, ...]
    output: Output | None = None
    operators: tuple[str, ...] = ()
    checkpoint: str | None = None

    def unlike(self, other: QueryLooks) -> str | None:
        """In what it differs from an earlier one, for people; None where it may be the same query."""
        if self.name != other.name:
            return f"was {_shown(other.name)} before"
        if self.sources != other.sources:
            return "read something else"
        if self.output != other.output:
            return f"wrote to {other.output} instead of {self.output}"
        if self.operators != other.operators:
            return f"kept state for {_listed(other.operators)} instead of {_listed(self.operators)}"
        if service_name(self.checkpoint) != service_name(other.checkpoint):
            return f"named the checkpointLocation {other.checkpoint} instead of {self.checkpoint}"
        return None


@dataclass(slots=True)
class _Seen:
    """What a declared query looked like when it was started first."""

    looks: QueryLooks
    starting: bool = False
    runs: list[Managed] = field(default_factory=list)


class Queries:
    """Every query of this driver, by its declared name. Safe to use from several threads.

    Args:
        declared: The declared queries: by name, or only `main`, which is any one query.
        hot_keys: How their hot keys are sampled; None for not at all.
    """

    def __init__(
        self, job: str, declared: Mapping[str, QuerySpec], hot_keys: HotKeysPolicy | None = None
    ) -> None:
        self.job = job
        self.hot_keys = hot_keys
        self.declared = dict(declared)
        self._by_spark_name = {spec.spark_name or name: name for name, spec in self.declared.items()}
        self._seen: dict[str, _Seen] = {}
        self._changed = threading.Condition()

    @contextmanager
    def starting(self, looks: QueryLooks) -> Iterator[tuple[str, QuerySpec]]:
        """Decide which declared query a start is, and keep its place while Spark starts it.

        Raises:
            RefusedError: It is not declared (code `undeclared-query`), or runs already
            (`query-runs-already`).
        """
        spark_name = looks.name
        name = self._identify(spark_name)
        self._wait_for_the_end(name)
        with self._changed:
            seen = self._seen.setdefault(name, _Seen(looks))
            if seen.starting or any(not run.ended.is_set() for run in seen.runs):
                raise RefusedError(
                    f"Job {self.job} starts {_shown(spark_name)} while its query {self._called(name)} is "
                    "still running.",
                    code="undeclared-query" if name == MAIN else "query-runs-already",
                    hint=DECLARE,
                )
            other = looks.unlike(seen.looks)
            if other is not None:
                raise RefusedError(
                    f"Job {self.job} starts {_shown(spark_name)} on the checkpoint of its query "
                    f"{self._called(name)}, which {other}.",
                    code="undeclared-query",
                    hint=DECLARE,
                )
            seen.starting = True
        try:
            yield name, self.declared[name]
        finally:
            with self._changed:
                seen.starting = False
                if not seen.runs:
                    del self._seen[name]  # it was refused, or failed: nothing was written by it
                self._changed.notify_all()

    def _wait_for_the_end(self, name: str) -> None:
        """An application may start a query again before the thread here that waits, too, has heard of it."""
        for run in self.running():
            if run.name == name and not run.query.isActive:
                run.ended.wait(_END_S)

    def _identify(self, spark_name: str | None) -> str:
        if set(self.declared) == {MAIN}:
            return MAIN
        name = self._by_spark_name.get(spark_name) if spark_name is not None else None
        if name is None:
            declared = ", ".join(map(self._called, sorted(self.declared)))
            raise RefusedError(
                f"Job {self.job} declares {declared}, but not {_shown(spark_name)}.",
                code="undeclared-query",
                hint="Give the query a declared name with queryName(...), or declare its name.",
            )
        return name

    def _called(self, name: str) -> str:
        """A declared query, with what the application calls it where that differs."""
        theirs = self.declared[name].spark_name
        return name if theirs is None else f"{name} ({theirs!r})"

    def add(self, managed: Managed) -> None:
        """Remember a query that Spark has started; call it inside `starting`."""
        with self._changed:
            self._seen[managed.name].runs.append(managed)

        def wait() -> None:
            jvm.wait_ended(managed.query)
            managed.ended.set()

        threading.Thread(target=wait, name=f"streambank-end-of-{managed.name}", daemon=True).start()

    def all(self) -> list[Managed]:
        """Every run of every query, in the order of their starts within a query."""
        with self._changed:
            return [run for seen in self._seen.values() for run in seen.runs]

    def running(self) -> list[Managed]:
        """Those whose thread has not ended."""
        return [run for run in self.all() if not run.ended.is_set()]

    def is_starting(self) -> bool:
        """Whether Spark is at work on a start right now."""
        with self._changed:
            return any(seen.starting for seen in self._seen.values())


def _listed(operators: tuple[str, ...]) -> str:
    return ", ".join(operators) or "nothing"


def _shown(spark_name: str | None) -> str:
    return "a query without a name" if spark_name is None else f"query {spark_name!r}"
