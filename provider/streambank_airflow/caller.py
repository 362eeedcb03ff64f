"""Who asks: the running task, or the user of this process where no task runs."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context

from streambank.control.processes import who
from streambank.core.names import ASKER
from streambank.core.units import from_json_time, to_json_time

if TYPE_CHECKING:
    from airflow.sdk import Context

_calls: Counter[tuple[Any, ...]] = Counter()


def running() -> Context | None:
    """The context of the task that runs here; None outside of one."""
    try:
        return get_current_context()
    except RuntimeError:
        return None


def caller(call: str = "") -> dict[str, str]:
    """Who asks, for the records.

    Args:
        call: What the task asks for, where another try of it goes on with what the one before has done. One
            that asks for the same twice means both, so each has its number.
    """
    context = running()
    if context is None:
        return who("airflow")
    if not call:
        return asked_by(context)
    instance: Any = context["ti"]
    key = (asker(context), instance.try_number, call)
    _calls[key] += 1
    return {**asked_by(context), ASKER: asker(context, f"{call}#{_calls[key]}")}


def asked_by(context: Context) -> dict[str, str]:
    """Who asks, for the records: the DAG run, its task and the person who triggered it."""
    run: Any = context["dag_run"]
    return who(
        "airflow",
        dag_id=run.dag_id,
        run_id=run.run_id,
        task_id=context["ti"].task_id,
        triggered_by=run.triggering_user_name,
    )


def asker(context: Context, *call: str) -> str:
    """Who asks, for as long as Airflow tries again by itself; a task that a person clears asks again.

    Clearing raises `max_tries` by the tries there have been, so what is left names the round of tries.
    """
    instance: Any = context["ti"]
    begun = instance.max_tries - (instance.task.retries or 0)
    parts = (instance.dag_id, instance.run_id, instance.task_id, instance.map_index, *call, begun)
    return " ".join(map(str, parts))


def tried_by(context: Context) -> dict[str, str]:
    """Who asks, and in which round of tries: another try goes on with what the one before has done."""
    return {**asked_by(context), ASKER: asker(context)}


def by_schedule(context: Context) -> bool:
    """Whether a schedule asked for the run, and no person or other DAG."""
    run: Any = context["dag_run"]
    return str(getattr(run.run_type, "value", run.run_type)) == "scheduled"


def asked_at(context: Context) -> datetime | None:
    """When a person, or a DAG on a person's behalf, asked for this DAG run; None where a schedule did."""
    run: Any = context["dag_run"]
    if by_schedule(context):
        return None
    moment: datetime = run.run_after
    return from_json_time(to_json_time(moment))
