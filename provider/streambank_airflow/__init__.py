"""The Airflow face: hook, operators, sensors, triggers and the DAGs of declared jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow import __version__ as _airflow

if TYPE_CHECKING:
    from streambank.declaration.streaming_job import StreamingJob

__all__ = ["OLDEST_AIRFLOW", "StreamingJob"]

OLDEST_AIRFLOW = (3, 1)

if tuple(int(part) for part in _airflow.split(".")[:2]) < OLDEST_AIRFLOW:
    raise RuntimeError(
        f"airflow-provider-streambank needs Airflow 3.1 or newer, and this is Airflow {_airflow}. "
        "Hint: upgrade Airflow, or uninstall airflow-provider-streambank from this environment."
    )


def __getattr__(name: str) -> Any:
    """`StreamingJob`, loaded when a DAG file asks for it."""
    if name == "StreamingJob":
        from streambank.declaration.streaming_job import StreamingJob

        return StreamingJob
    raise AttributeError(f"module {__name__} has no attribute {name}")
