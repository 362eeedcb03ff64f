"""What a job declares about its DAGs: whose they are, where their tasks run, who sees them, who is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from streambank.declaration.fields import Fields
from streambank.declaration.policy import at_least

_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")


Roles = Mapping[str, tuple[str, ...] | Mapping[str, tuple[str, ...]]]
"""Permissions by role, as in Airflow's `DAG(access_control=)`: names, or names by resource."""


def _read_roles(fields: Fields, name: str) -> Roles:
    table = fields.table(name)
    roles: dict[str, tuple[str, ...] | Mapping[str, tuple[str, ...]]] = {}
    for role, value in table.data.items():
        if isinstance(value, dict):
            own = table.table(role)
            roles[role] = {resource: own.texts(resource) or () for resource in own.data}
        else:
            roles[role] = table.texts(role) or ()
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


@dataclass(frozen=True, slots=True)
class AirflowPolicy:
    """`[jobs.NAME.airflow]`: what Airflow is told of the job's DAGs; None where its own default counts.

    Attributes:
        priority: `priority_weight` of the tasks.
        retries: How often a task is tried again, where a retry may heal.
        display_name: The job's name in lists; each DAG's has its verb after it.
        paused: Whether the DAGs are paused when Airflow sees them first.
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
    retries: Annotated[int, at_least(0)] | None = None
    display_name: str | None = None
    paused: bool | None = None
    access_control: Annotated[Roles, _read_roles] = field(default_factory=dict)
    on_failure: Annotated[tuple[str, ...], _read_functions] = ()
    on_retry: Annotated[tuple[str, ...], _read_functions] = ()
    on_success: Annotated[tuple[str, ...], _read_functions] = ()
