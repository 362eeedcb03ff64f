"""A job for people who declare it in Python: the fields of a job's table in a jobs file, typed.

docs/reference/jobs.md says what each field means, and a test holds the names here to those that are read.
Tables are plain mappings. Those of every day have types, for editors and type checkers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from os import PathLike
from typing import Any, Literal, TypedDict

from streambank.core.choices import (
    ClosureKind,
    LockMode,
    Severity,
    SinkChoice,
    SourceChoice,
    Verification,
)
from streambank.declaration.given import plain
from streambank.declaration.launch import DeployMode
from streambank.sinks.declared import SinkKind

Where = str | PathLike[str]
"""A path or a URI."""
Time = str | timedelta
"""A length of time: `"60s"`, or a timedelta."""
Conf = Mapping[str, str | int | float | bool]
Table = Mapping[str, Any]
"""A table whose fields only the reader checks."""

NotifyEntry = TypedDict(
    "NotifyEntry",
    {"class": str, "args": Mapping[str, Any], "kinds": Sequence[str], "least": Severity},
    total=False,
)


class SavepointTable(TypedDict, total=False):
    """`savepoint`."""

    schedule: str
    closure: ClosureKind
    verify: Verification
    share: str
    blackout: Sequence[str]
    time_zone: str
    stagger: Time | bool
    sweep: bool
    lock: Time
    lock_mode: LockMode


class RetentionTable(TypedDict, total=False):
    """`retention`, and `replicate.retention`."""

    keep_last: int
    keep_hourly: int
    keep_daily: int
    keep_weekly: int
    keep_monthly: int
    keep_yearly: int
    keep_within: Time
    min_verified: int
    max_age: Time


class ReplicateTable(TypedDict, total=False):
    """`replicate`."""

    to: Sequence[Where]
    retention: RetentionTable
    lock: Time
    lock_mode: LockMode


class RestoreTable(TypedDict, total=False):
    """`restore`."""

    sink: SinkChoice
    source: SourceChoice
    approval_timeout: Time
    deadline: Time
    notify: Sequence[NotifyEntry]
    ask: Sequence[NotifyEntry]
    approvers: Sequence[str]
    new_outputs: Sequence[Where]
    into: Sequence[Where]


class StopTable(TypedDict, total=False):
    """`stop`."""

    force_after: Time
    drain_timeout: Time


class StartTable(TypedDict, total=False):
    """`start`."""

    timeout: Time
    schedule: str


class HealthTable(TypedDict, total=False):
    """`health`."""

    interval: Time
    timeout: Time
    tolerated: int
    first_batch: Time
    restart: bool
    backoff: Time
    max_backoff: Time
    max_failures: int
    max_restarts: int
    restarts_within: Time


class KafkaTable(TypedDict, total=False):
    """`kafka`."""

    bootstrap: str
    servers: Mapping[str, str]
    config: Conf


class SinkEntry(TypedDict, total=False):
    """One of `sinks`."""

    kind: SinkKind
    query: str
    table: Where
    writer: str
    url: str
    rows: Sequence[str]
    overwrites: bool
    catalog: Conf
    tag: bool
    options: Conf


class DrillTable(TypedDict, total=False):
    """`drill`."""

    schedule: str
    savepoint: str
    limit: int
    time_limit: Time
    repository: Where
    batches: int
    scratch: Where
    compare: Literal["values", "counts"]
    sources: Sequence[str]
    timeout: Time


class LaunchTable(TypedDict, total=False):
    """`launch`."""

    on: str
    deploy_mode: DeployMode
    rest: str
    web: str
    supervise: bool
    queue: str
    principal: str
    keytab: Where
    resource_manager: str
    namespace: str
    image: str
    context: str
    entry: str
    settings: Conf
    connection: str


class AirflowTable(TypedDict, total=False):
    """`airflow`."""

    connection: str
    owner: str
    pool: str
    queue: str
    priority: int
    executor: str
    retries: int
    display_name: str
    paused: bool
    access_control: Mapping[str, Sequence[str] | Mapping[str, Sequence[str]]]
    on_failure: str | Sequence[str]
    on_retry: str | Sequence[str]
    on_success: str | Sequence[str]


@dataclass(frozen=True, kw_only=True)
class StreamingJob:
    """A job that no jobs file declares: its fields are those of a job's table there.

    `${NAME}` in texts is filled in where the job is worked on, not here. Of what is wrong nothing is said
    here either, but of a secret, since Airflow stores what stands in a DAG: the tasks, and `build_dags`, read
    it as they read a file.

    Attributes:
        repository: Where its savepoints go; that of the Airflow connection when left out.
        control: Where its records are; beside the repository when left out.
        folder: From where relative paths are taken; that of the DAG's file when left out.
    """

    name: str
    application: Where
    checkpoint: Where
    repository: Where | None = None
    control: Where | None = None
    folder: Where | None = None
    queries: Sequence[str] | Mapping[str, str] | None = None
    args: Sequence[str] | None = None
    python: Where | None = None
    spark_home: Where | None = None
    master: str | None = None
    spark: Conf | None = None
    env: Sequence[str] | None = None
    working_dir: Where | None = None
    description: str | None = None
    tags: Sequence[str] | None = None
    time_zone: str | None = None
    signed: bool | None = None
    launch: LaunchTable | None = None
    start: StartTable | None = None
    stop: StopTable | None = None
    health: HealthTable | None = None
    savepoint: SavepointTable | None = None
    retention: RetentionTable | None = None
    replicate: ReplicateTable | None = None
    restore: RestoreTable | None = None
    upgrade: Table | None = None
    drill: DrillTable | None = None
    sla: Table | None = None
    notify: Sequence[NotifyEntry] | None = None
    kafka: KafkaTable | None = None
    sinks: Sequence[SinkEntry] | None = None
    state: Table | None = None
    compact: Table | None = None
    transform: Table | None = None
    bootstrap: Table | None = None
    hot_keys: Table | Literal[False] | None = None
    standby: Table | None = None
    copies: Mapping[str, Table] | None = None
    generations: Table | None = None
    lease: Table | None = None
    logs: Table | None = None
    progress: Table | None = None
    airflow: AirflowTable | None = None

    def __post_init__(self) -> None:
        from streambank.declaration.credentials import refuse_written

        refuse_written(vars(self))

    def to_dict(self) -> dict[str, Any]:
        """The declaration as plain data: what is given, as JSON can hold it."""
        return {name: plain(value) for name, value in vars(self).items() if value is not None}
