"""Where supported releases of Airflow differ: what an older one lacks, and what stands for it here.

docs/howto/airflow.md has the table for users. `streambank_airflow/__init__.py` refuses what is older.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import BaseHook, BaseOperator, exceptions
from airflow.sdk.execution_time import context as execution_context

if TYPE_CHECKING:
    from airflow.sdk import Connection, CronDataIntervalTimetable, CronTriggerTimetable
    from airflow.sdk.definitions.callback import AsyncCallback
    from airflow.sdk.definitions.deadline import DeadlineAlert
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors
    from airflow.triggers.base import BaseEventTrigger
else:
    try:
        from airflow.sdk import CronDataIntervalTimetable, CronTriggerTimetable
    except ImportError:  # before 3.2
        from airflow.timetables.interval import CronDataIntervalTimetable
        from airflow.timetables.trigger import CronTriggerTimetable
    try:
        from airflow.sdk.definitions.callback import AsyncCallback
    except ImportError:  # before 3.2
        from airflow.sdk.definitions.deadline import AsyncCallback

__all__ = [
    "KEEPS_IN_TASKS",
    "RETRY_BACKOFF",
    "AsyncCallback",
    "CronDataIntervalTimetable",
    "CronTriggerTimetable",
    "TaskWaitsForPerson",
    "aextra_dejson",
    "aget_connection",
    "asset_state_store",
    "keeps_in_assets",
    "named_deadline",
    "only_run_types",
    "task_store",
]

RETRY_BACKOFF: float = True if BaseOperator.retry_exponential_backoff is False else 2.0
"""`retry_exponential_backoff` for pauses that double; before 3.2 it is a yes or no."""
METASTORE = "airflow.state.metastore.MetastoreBackend"
"""The asset state store's own backend, by default: a table of Airflow's database."""
TaskWaitsForPerson: type[BaseException] = getattr(exceptions, "TaskAwaitingInput", TaskDeferred)
"""What `HITLOperator.execute` raises once it has asked. Before 3.3 the triggerer waits for the answer."""


async def aget_connection(conn_id: str) -> Connection:
    """`BaseHook.aget_connection`, which must not be awaited before 3.3.2: it masks secrets synchronously.

    Raises:
        AirflowNotFoundException: There is no such connection.
    """
    if _masks_asynchronously():
        return await BaseHook.aget_connection(conn_id)
    from asgiref.sync import sync_to_async

    return await sync_to_async(BaseHook.get_connection)(conn_id)


async def aextra_dejson(connection: Connection) -> dict[str, Any]:
    """`Connection.aextra_dejson`, which came with 3.3.2."""
    if _masks_asynchronously():
        return await connection.aextra_dejson()
    from asgiref.sync import sync_to_async

    return await sync_to_async(lambda: connection.extra_dejson)()


def _masks_asynchronously() -> bool:
    from airflow.sdk import Connection

    return hasattr(Connection, "aextra_dejson")


def only_run_types(*names: str) -> dict[str, Any]:
    """The argument of a DAG that allows only runs of these types, of those that this Airflow knows.

    Before 3.3 what an operator triggers is `manual`; before 3.2 no type can be refused.
    """
    from airflow.sdk import DAG
    from airflow.utils.types import DagRunType

    if "allowed_run_types" not in signature(DAG).parameters:
        return {}
    known = {one.value for one in DagRunType}
    return {"allowed_run_types": tuple(name for name in names if name in known)}


def asset_state_store(trigger: BaseEventTrigger) -> AssetStateStoreAccessors | None:
    """Where an event trigger keeps values of its asset; None before 3.3, which has no such store."""
    return getattr(trigger, "asset_state_store", None)


def task_store(context: Mapping[str, Any]) -> Any | None:
    """Where a task keeps values between its processes; None before 3.3, which has no such store."""
    return context.get("task_state_store")


KEEPS_IN_TASKS = hasattr(execution_context, "TaskStateStoreAccessor")
"""Whether there is such a store."""


def keeps_in_assets() -> bool:
    """Whether the page's snapshots go to the asset state store, in Airflow's own database.

    Otherwise they are Variables: before 3.3 there is no such store, and a backend of one's own keeps its
    values where the API server need not reach them.
    """
    from airflow.providers.common.compat.sdk import conf

    if not hasattr(execution_context, "AssetStateStoreAccessor") or conf.get(
        "workers", "state_store_backend", fallback=""
    ):
        return False
    return bool(conf.get("state_store", "backend", fallback=METASTORE) == METASTORE)


def named_deadline(name: str, **arguments: Any) -> DeadlineAlert:
    """A `DeadlineAlert` of this name; before 3.3 deadlines have none."""
    from airflow.sdk.definitions.deadline import DeadlineAlert

    try:
        return DeadlineAlert(name=name, **arguments)
    except TypeError:
        return DeadlineAlert(**arguments)
