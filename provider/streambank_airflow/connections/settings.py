"""What a `streambank` connection says, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streambank.core.errors import InputError
from streambank.storage.s3.credentials import S3Access
from streambank_airflow.connections.s3_settings import FIELDS, Account, s3_access

EXTRA_FIELDS = ("repository", "jobs_file", "aws_conn_id", *FIELDS)
"""What a connection's extra may hold."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a connection says; each may be missing.

    Attributes:
        repository: Where savepoints are kept: a path or a URI.
        jobs_file: The `streaming_jobs.toml` for tasks that name none.
        s3: How S3 is reached; None for what the process's own settings say.
    """

    repository: str | None = None
    jobs_file: str | None = None
    s3: S3Access | None = None

    @classmethod
    def of(
        cls,
        conn_id: str,
        connection: Account,
        extra: Mapping[str, Any],
        aws: Account | None = None,
        aws_extra: Mapping[str, Any] | None = None,
    ) -> Settings:
        """The settings in a connection, and in the `aws` connection that it names (see `aws_conn_id`).

        Raises:
            InputError: A field is unknown or no text, or fields contradict each other (code
                `bad-connection`); its value is not repeated, since it could be a secret in the wrong place.
        """
        aws_conn_id = aws_conn_id_of(conn_id, extra)
        return cls(
            repository=extra.get("repository") or None,
            jobs_file=extra.get("jobs_file") or None,
            s3=s3_access(conn_id, connection, extra, aws_conn_id, aws, aws_extra),
        )


def aws_conn_id_of(conn_id: str, extra: Mapping[str, Any]) -> str | None:
    """The `aws` connection that a connection refers to.

    Raises:
        InputError: See `Settings.of`.
    """
    for name, value in extra.items():
        if name not in EXTRA_FIELDS:
            raise InputError(
                f"The connection {conn_id} has a field {name!r} that nothing here knows.",
                code="bad-connection",
                hint=f"Its extra may hold: {', '.join(sorted(EXTRA_FIELDS))}.",
            )
        if value is not None and not isinstance(value, str):
            raise InputError(
                f"The field {name!r} of the connection {conn_id} is to be a text.",
                code="bad-connection",
                hint="Write it in quotation marks in the connection's extra.",
            )
    return extra.get("aws_conn_id") or None
