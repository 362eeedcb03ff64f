"""What a job declares about its DAGs: whose they are, where their tasks run, who sees them, who is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from streambank.declaration.fields import Fields

_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")


@dataclass(frozen=True, slots=True)
class AirflowPolicy:
    """`[jobs.NAME.airflow]`: what Airflow is told of the job's DAGs; None where its own default counts.

    Attributes:
        connection: The `streambank` connection of all tasks.
        owner: Of all tasks, and so of the DAGs.
        pool: Whose slots the tasks take.
        queue: Which workers take the tasks.
        priority: `priority_weight` of the tasks.
        executor: Which of Airflow's executors runs the tasks.
        retries: How often a task is tried again, where a retry may heal.
        display_name: The job's name in lists; each DAG's has its verb after it.
        paused: Whether the DAGs are paused when Airflow sees them first.
        access_control: Permissions by role, as in Airflow's `DAG(access_control=)`: names, or names by
            resource.
        on_failure: Dotted names of functions that are called with the context of each task that failed for
            good.
        on_retry: The same for tasks that will be tried again.
        on_success: The same for tasks that succeeded.
    """

    connection: str | None = None
    owner: str | None = None
    pool: str | None = None
    queue: str | None = None
    priority: int | None = None
    executor: str | None = None
    retries: int | None = None
    display_name: str | None = None
    paused: bool | None = None
    access_control: Mapping[str, tuple[str, ...] | Mapping[str, tuple[str, ...]]] = field(
        default_factory=dict
    )
    on_failure: tuple[str, ...] = ()
    on_retry: tuple[str, ...] = ()
    on_success: tuple[str, ...] = ()


def read_airflow(fields: Fields) -> AirflowPolicy:
    """Of `[jobs.NAME.airflow]`."""
    policy = AirflowPolicy(
        connection=fields.text("connection"),
        owner=fields.text("owner"),
        pool=fields.text("pool"),
        queue=fields.text("queue"),
        priority=fields.whole("priority", minimum=1),
        executor=fields.text("executor"),
        retries=fields.whole("retries", minimum=0),
        display_name=fields.text("display_name"),
        paused=fields.boolean("paused"),
        access_control=_read_roles(fields.table("access_control")),
        on_failure=_read_functions(fields, "on_failure"),
        on_retry=_read_functions(fields, "on_retry"),
        on_success=_read_functions(fields, "on_success"),
    )
    fields.done()
    return policy


def _read_roles(fields: Fields) -> dict[str, tuple[str, ...] | Mapping[str, tuple[str, ...]]]:
    roles: dict[str, tuple[str, ...] | Mapping[str, tuple[str, ...]]] = {}
    for role, value in fields.data.items():
        if isinstance(value, dict):
            own = fields.table(role)
            roles[role] = {resource: own.texts(resource) or () for resource in own.data}
        else:
            roles[role] = fields.texts(role) or ()
    return roles


def _read_functions(fields: Fields, name: str) -> tuple[str, ...]:
    """The dotted names in a field: one, or a list of them."""
    one = fields.data.get(name)
    names = fields.texts(name) if isinstance(one, list) else (fields.text(name),)
    found = tuple(each for each in names or () if each is not None)
    for each in found:
        if not _DOTTED.fullmatch(each):
            raise fields.mistake(
                name, f"{each!r} is not a function", 'Write module and function, such as "alerts.call_us".'
            )
    return found
