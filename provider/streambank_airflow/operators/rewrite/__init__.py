"""Operators that make a savepoint of another one: with other values, without some keys, kept in another way.

The one that erases a single key, and finds where else it is, is in `streambank_airflow.operators.erase`.
"""

from __future__ import annotations

from streambank_airflow.operators.rewrite.base import NOTHING_KEY, REQUEST_KEY, StateOperator
from streambank_airflow.operators.rewrite.change import BootstrapStateOperator, TransformStateOperator
from streambank_airflow.operators.rewrite.compact import CompactStateOperator
from streambank_airflow.operators.rewrite.layout import MigrateStateOperator, RescaleStateOperator
from streambank_airflow.operators.rewrite.validate import ValidateStateOperator

__all__ = [
    "NOTHING_KEY",
    "REQUEST_KEY",
    "BootstrapStateOperator",
    "CompactStateOperator",
    "MigrateStateOperator",
    "RescaleStateOperator",
    "StateOperator",
    "TransformStateOperator",
    "ValidateStateOperator",
]
