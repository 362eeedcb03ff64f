"""Names of Airflow that only tests use and that lie elsewhere before 3.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk._shared.module_loading import import_string
    from airflow.sdk.serde import deserialize
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.triggers.callback import CallbackTrigger
else:
    try:
        from airflow.dag_processing.dagbag import DagBag
        from airflow.sdk._shared.module_loading import import_string
        from airflow.sdk.serde import deserialize
        from airflow.serialization.serialized_objects import DagSerialization
        from airflow.triggers.callback import CallbackTrigger
    except ImportError:
        from airflow.models.dagbag import DagBag
        from airflow.serialization.serde import deserialize
        from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization
        from airflow.triggers.deadline import DeadlineCallbackTrigger as CallbackTrigger
        from airflow.utils.module_loading import import_string

__all__ = ["CallbackTrigger", "DagBag", "DagSerialization", "deserialize", "import_string"]
