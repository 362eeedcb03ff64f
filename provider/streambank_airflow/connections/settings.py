"""What a `streambank` connection says, checked; for S3 also what an `aws` one says that it refers to.

A value never gets into a message: it could be the secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from streambank.core.errors import InputError
from streambank.storage.s3.credentials import S3Access

FIELDS = {
    "s3_endpoint_url": "endpoint_url",
    "s3_region": "region",
    "s3_session_token": "session_token",
    "s3_profile": "profile",
    "s3_role_arn": "role_arn",
    "s3_external_id": "external_id",
    "s3_sts_endpoint_url": "sts_endpoint_url",
    "s3_encryption": "encryption",
    "s3_kms_key_id": "kms_key_id",
}
"""Field of a `streambank` connection -> attribute of `S3Access`. Login and password are the credentials."""

_AWS_FIELDS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "profile_name": "profile",
    "role_arn": "role_arn",
    "external_id": "external_id",
    "region_name": "region",
    "endpoint_url": "endpoint_url",
}
"""The same for an `aws` connection, as the Amazon provider documents it."""
_AWS_NESTED = {
    "assume_role_kwargs": {"ExternalId": "external_id"},
    "session_kwargs": {"profile_name": "profile", "region_name": "region"},
}


class Account(Protocol):
    """What a connection has besides its extra."""

    login: str | None
    password: str | None


def s3_access(
    conn_id: str,
    connection: Account,
    extra: Mapping[str, str | None],
    aws_conn_id: str | None = None,
    aws: Account | None = None,
    aws_extra: Mapping[str, Any] | None = None,
) -> S3Access | None:
    """The settings of S3 in a `streambank` connection and in the `aws` one that it names.

    Returns:
        None where they say nothing, and the settings of the process count.

    Raises:
        InputError: They contradict each other or themselves, or the `aws` one holds what cannot be followed
            (code `bad-connection`).
    """
    found: dict[str, str] = {}
    said = [*_account(connection), *((name, extra.get(field)) for field, name in FIELDS.items())]
    where = conn_id
    if aws is not None and aws_conn_id is not None:
        said += [*_account(aws), *_aws(aws_conn_id, aws_extra or {})]
        where = f"{conn_id} and {aws_conn_id}"
    for name, value in said:
        if value and found.setdefault(name, value) != value:
            raise InputError(
                f"The S3 setting {name} has two values in connection {where}.",
                code="bad-connection",
                hint="Set it in one place only.",
            )
    try:
        return S3Access.of(found)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", code="bad-connection", hint=error.hint) from None


def _account(connection: Account) -> Iterator[tuple[str, str | None]]:
    yield "access_key_id", connection.login
    yield "secret_access_key", connection.password


def _aws(conn_id: str, extra: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """What an `aws` connection's extra says; what would be left out without a word is refused."""
    for field, value in extra.items():
        if value in (None, "", {}) or (field, value) == ("assume_role_method", "assume_role"):
            continue
        if field in _AWS_FIELDS:
            yield _AWS_FIELDS[field], _text(conn_id, field, value)
        elif field in _AWS_NESTED and isinstance(value, dict):
            yield from _nested(conn_id, field, value, _AWS_NESTED[field])
        elif field == "service_config" and isinstance(value, dict):
            # It may be about other services too, which is none of our business.
            for service, name in (("s3", "endpoint_url"), ("sts", "sts_endpoint_url")):
                yield from _nested(
                    conn_id, f"{field}.{service}", value.get(service) or {}, {"endpoint_url": name}
                )
        else:
            raise _not_followed(conn_id, field)


def _nested(
    conn_id: str, field: str, values: Mapping[str, Any], known: Mapping[str, str]
) -> Iterator[tuple[str, str | None]]:
    for name, value in values.items():
        if name not in known:
            raise _not_followed(conn_id, f"{field}.{name}")
        yield known[name], _text(conn_id, f"{field}.{name}", value)


def _text(conn_id: str, field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(
            f"The field {field!r} of the connection {conn_id} must be text.",
            code="bad-connection",
            hint="Write it in quotation marks in the connection's extra.",
        )
    return value


def _not_followed(conn_id: str, field: str) -> InputError:
    return InputError(
        f"The connection {conn_id} has a field {field!r}, which is not supported.",
        code="bad-connection",
        hint="Supported are login, password, service_config with endpoint_url of s3 and sts, "
        f"assume_role_kwargs with ExternalId, and {', '.join(sorted(_AWS_FIELDS))}. "
        "Use only these in the connection, or use a profile.",
    )


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
                f"The connection {conn_id} has an unknown field {name!r}.",
                code="bad-connection",
                hint=f"Its extra may hold: {', '.join(sorted(EXTRA_FIELDS))}.",
            )
        if value is not None and not isinstance(value, str):
            raise InputError(
                f"The field {name!r} of the connection {conn_id} must be text.",
                code="bad-connection",
                hint="Write it in quotation marks in the connection's extra.",
            )
    return extra.get("aws_conn_id") or None
