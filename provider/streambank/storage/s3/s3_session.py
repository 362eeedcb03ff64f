"""A boto3 client for some settings, whatever they leave out being found by boto3's own chain."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from streambank.storage.s3.credentials import S3Access

_ROLE_SESSION = "streambank"
"""What the owner of a role sees in the log of its use."""


def s3_client(access: S3Access, config: Any) -> Any:
    """A client.

    Args:
        access: Who asks, and which service.
        config: botocore's settings of the client.

    Raises:
        botocore.exceptions.BotoCoreError: There is no such profile, or nobody who could assume the role.
        ValueError: An address or region is none.
    """
    import boto3

    _keep_out_of_logs()
    session = boto3.session.Session(
        aws_access_key_id=access.access_key_id,
        aws_secret_access_key=access.secret_access_key,
        aws_session_token=access.session_token,
        profile_name=access.profile,
        region_name=access.region,
    )
    if access.role_arn is not None:
        session = _with_role(session, access, access.role_arn)
    return session.client("s3", endpoint_url=access.endpoint_url, config=config)


def _keep_out_of_logs() -> None:
    """Let botocore not write session tokens, and the credentials of roles, into a log that is on `DEBUG`.

    It logs requests with their headers, and the bodies of answers. Whoever has given its logger a level knows
    what to expect; a level of all loggers together is no such wish.
    """
    logger = logging.getLogger("botocore")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


class _Role:
    """Where a session finds its credentials before it looks anywhere else."""

    METHOD = CANONICAL_NAME = "streambank-role"

    def __init__(self, fetcher: Any) -> None:
        self._fetcher = fetcher

    def load(self) -> Any:
        """Credentials that assume the role at their first use, and again before they expire."""
        from botocore.credentials import DeferredRefreshableCredentials

        return DeferredRefreshableCredentials(self._fetcher.fetch_credentials, self.METHOD)


def _with_role(session: Any, access: S3Access, role_arn: str) -> Any:
    """A session of the role, which the given session may assume."""
    import boto3
    import botocore.session
    from botocore.credentials import AssumeRoleCredentialFetcher
    from botocore.exceptions import NoCredentialsError

    source = session.get_credentials()
    if source is None:
        raise NoCredentialsError
    extra = {"RoleSessionName": _ROLE_SESSION}
    if access.external_id is not None:
        extra["ExternalId"] = access.external_id
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=partial(session.client, endpoint_url=access.sts_endpoint_url),
        source_credentials=source,
        role_arn=role_arn,
        extra_args=extra,
    )
    inner = botocore.session.Session()
    inner.get_component("credential_provider").providers.insert(0, _Role(fetcher))
    return boto3.session.Session(botocore_session=inner, region_name=session.region_name)
