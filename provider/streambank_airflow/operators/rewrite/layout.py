"""Operators that make a savepoint with the same state, kept in another way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambank.core.state_options import MigrateOptions
from streambank_airflow.arguments import MigrateArguments, Templated
from streambank_airflow.operators.rewrite.base import StateOperator


class RescaleStateOperator(StateOperator):
    """Makes a savepoint with the same state in another number of partitions.

    Returns:
        As `CompactStateOperator`; no key and no row goes.
    """

    operation = "rescale"

    partitions: Templated[int]

    def request(self) -> dict[str, Any]:
        return {"operation": self.operation, "partitions": self.partitions}

    def question(self, report: Mapping[str, Any]) -> str | None:
        return f"Spread the state of {self.job} over {self.partitions} partitions?"


class MigrateStateOperator(StateOperator, MigrateArguments):
    """Makes a savepoint with HDFS-backed state as RocksDB, in another number of partitions if wanted.

    Returns:
        As `CompactStateOperator`; no key and no row goes.
    """

    operation = "migrate"

    def request(self) -> dict[str, Any]:
        return {"operation": self.operation, **self.values_of(MigrateOptions)}

    def question(self, report: Mapping[str, Any]) -> str | None:
        return f"Write the state of {self.job} as {self.provider}?"
