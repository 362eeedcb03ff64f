"""Where supported releases of Airflow differ: what an older one lacks, and what stands for it here.

docs/howto/airflow.md has the table for users. `streambank_airflow/__init__.py` refuses what is older.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, exceptions

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from airflow.sdk.definitions.deadline import DeadlineAlert
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors
    from airflow.triggers.base import BaseEventTrigger

TaskWaitsForPerson: type[BaseException] = getattr(exceptions, "TaskAwaitingInput", exceptions.TaskDeferred)
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


def known_run_types(*names: str) -> tuple[str, ...]:
    """Those types of DAG runs that this Airflow knows: before 3.3 what an operator triggers is `manual`."""
    from airflow.utils.types import DagRunType

    known = {one.value for one in DagRunType}
    return tuple(name for name in names if name in known)


def asset_state_store(trigger: BaseEventTrigger) -> AssetStateStoreAccessors | None:
    """Where an event trigger keeps values of its asset; None before 3.3, which has no such store."""
    return getattr(trigger, "asset_state_store", None)


def named_deadline(name: str, **arguments: Any) -> DeadlineAlert:
    """A `DeadlineAlert` of this name; before 3.3 deadlines have none."""
    from airflow.sdk.definitions.deadline import DeadlineAlert

    try:
        return DeadlineAlert(name=name, **arguments)
    except TypeError:
        return DeadlineAlert(**arguments)
