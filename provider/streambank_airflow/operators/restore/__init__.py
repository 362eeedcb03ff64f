"""Operators that bring a savepoint back: into its job, a directory or a copy; and that undo such a move."""

from __future__ import annotations

from streambank_airflow.operators.restore.refresh import RefreshCopyOperator
from streambank_airflow.operators.restore.reinstate import ReinstateGenerationOperator
from streambank_airflow.operators.restore.restore import RestoreSavepointOperator

__all__ = ["RefreshCopyOperator", "ReinstateGenerationOperator", "RestoreSavepointOperator"]
