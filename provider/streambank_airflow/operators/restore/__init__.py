"""Operators that bring a savepoint back: into its job, a directory or a copy."""

from __future__ import annotations

from streambank_airflow.operators.restore.refresh import RefreshCopyOperator
from streambank_airflow.operators.restore.restore import RestoreSavepointOperator

__all__ = ["RefreshCopyOperator", "RestoreSavepointOperator"]
