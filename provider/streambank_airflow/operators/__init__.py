"""Operators: what a DAG can do with a streaming job and its savepoints (docs/reference/airflow.md)."""
