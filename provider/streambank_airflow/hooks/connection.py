"""What Airflow's connections say to the hook: where savepoints are, how S3 is reached, where a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook

from streambank.core.errors import InputError
from streambank_airflow.airflow_versions import aextra_dejson, aget_connection
from streambank_airflow.connections.settings import Settings, aws_conn_id_of

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.declaration.launch import LaunchPolicy

DEFAULT_CONN_ID = "streambank_default"


def find_settings(conn_id: str) -> Settings:
    """What a `streambank` connection says.

    Raises:
        InputError: It does not exist and is not the default one (code `no-connection`), or says something
            wrong.
    """
    connection = find_connection(conn_id)
    if connection is None:
        return _without_connection(conn_id)
    extra = connection.extra_dejson
    aws_conn_id = aws_conn_id_of(conn_id, extra)
    if aws_conn_id is None:
        return Settings.of(conn_id, connection, extra)
    aws = _existing(aws_conn_id, find_connection(aws_conn_id))
    return Settings.of(conn_id, connection, extra, aws, aws.extra_dejson)


async def afind_settings(conn_id: str) -> Settings:
    """The same for the triggerer, where a connection must not be asked for synchronously."""
    connection = await _afind_connection(conn_id)
    if connection is None:
        return _without_connection(conn_id)
    extra = await aextra_dejson(connection)
    aws_conn_id = aws_conn_id_of(conn_id, extra)
    if aws_conn_id is None:
        return Settings.of(conn_id, connection, extra)
    aws = _existing(aws_conn_id, await _afind_connection(aws_conn_id))
    return Settings.of(conn_id, connection, extra, aws, await aextra_dejson(aws))


def launch_policy(job: Job) -> LaunchPolicy:
    """Where a job runs whose declaration names a connection of the Spark provider.

    Raises:
        InputError: There is no such connection (code `no-connection`), or it says something wrong
            (`bad-connection`).
    """
    from streambank_airflow.connections.spark_connection import with_connection

    conn_id = job.launch.connection or ""
    connection = find_connection(conn_id)
    if connection is None:
        raise InputError(
            f"There is no connection {conn_id}, which job {job.name} names.",
            code="no-connection",
            hint="Create it with the type Spark, or name another one in the job's table launch.",
        )
    return with_connection(job, connection)


def find_connection(conn_id: str) -> Any | None:
    """A connection of Airflow's; None where there is none."""
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None


async def _afind_connection(conn_id: str) -> Any | None:
    try:
        return await aget_connection(conn_id)
    except AirflowNotFoundException:
        return None


def _without_connection(conn_id: str) -> Settings:
    if conn_id != DEFAULT_CONN_ID:
        raise InputError(
            f"There is no connection {conn_id}.",
            code="no-connection",
            hint="Create it with the type Streambank, or leave the default.",
        )
    return Settings()


def _existing(conn_id: str, connection: Any | None) -> Any:
    if connection is None:
        raise InputError(
            f"There is no connection {conn_id}.",
            code="no-connection",
            hint="Create it with the type Amazon Web Services (aws), or name another one as AWS connection.",
        )
    return connection
