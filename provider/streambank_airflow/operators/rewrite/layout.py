"""Operators that make a savepoint with the same state, kept in another way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streambank_airflow.operators.base import as_integer
from streambank_airflow.operators.rewrite.base import StateOperator


class RescaleStateOperator(StateOperator):
    """Makes a savepoint with the same state in another number of partitions.

    Args:
        partitions: How many state partitions there are to be.
        kwargs: Those of `StateOperator`, and as for every operator.

    Returns:
        As `CompactStateOperator`; no key and no row goes.
    """

    operation = "rescale"
    template_fields: Sequence[str] = (*StateOperator.template_fields, "partitions")

    def __init__(self, *, partitions: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.partitions = partitions

    def request(self) -> dict[str, Any]:
        return {"operation": self.operation, "partitions": as_integer(self.partitions, "partitions")}

    def question(self, report: Mapping[str, Any]) -> str | None:
        return f"Spread the state of {self.job} over {self.partitions} partitions?"


class MigrateStateOperator(StateOperator):
    """Makes a savepoint with HDFS-backed state as RocksDB, in another number of partitions if wanted.

    Args:
        provider: What is to keep the state: `rocksdb`.
        partitions: How many state partitions there are to be; None for as many as there are.
        kwargs: Those of `StateOperator`, and as for every operator.

    Returns:
        As `CompactStateOperator`; no key and no row goes.
    """

    operation = "migrate"
    template_fields: Sequence[str] = (*StateOperator.template_fields, "provider", "partitions")

    def __init__(
        self, *, provider: str = "rocksdb", partitions: int | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.provider = provider
        self.partitions = partitions

    def request(self) -> dict[str, Any]:
        return {
            "operation": self.operation,
            "provider": self.provider,
            "partitions": as_integer(self.partitions, "partitions"),
        }

    def question(self, report: Mapping[str, Any]) -> str | None:
        return f"Write the state of {self.job} as {self.provider}?"
