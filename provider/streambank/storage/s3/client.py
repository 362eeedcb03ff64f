"""How this process reaches S3: one boto3 client for each set of settings, and every call translated.

Endpoint, region, profile, role and credentials are boto3's own business: its environment variables
(`AWS_ENDPOINT_URL`, `AWS_PROFILE`, `AWS_REGION`, ...), its files, and the role of the machine. Only
encryption, for which boto3 has no variable, is asked for by two of ours: `STREAMBANK_S3_SSE` (`AES256` or
`aws:kms`) and `STREAMBANK_S3_KMS_KEY_ID`. Whoever has other settings than the process hands them over as an
`S3Access`; what it leaves out is as for everybody. Nothing here prints a credential.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, cast

from streambank.core.errors import InputError, StorageError
from streambank.core.python310 import UTC
from streambank.storage.s3.credentials import ENCRYPTIONS, S3Access, current_s3
from streambank.storage.s3.errors import translate
from streambank.storage.store import LifecycleRule

SSE_VARIABLE = "STREAMBANK_S3_SSE"
KMS_KEY_VARIABLE = "STREAMBANK_S3_KMS_KEY_ID"
ATTEMPTS = 5
"""How often boto3 sends one request, the first time included."""
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60
CONNECTIONS = 32
PARTS_AT_ONCE = 8
"""How many parts of uploads may wait in memory, of all uploads of a process together."""

_SETTINGS = ("AWS_", "BOTO_", "STREAMBANK_S3_", "HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_Key = tuple[int, S3Access, frozenset[tuple[str, str]]]
_services: dict[_Key, Service] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Service:
    """One S3 service, as some settings say.

    Attributes:
        client: boto3's client; safe to use from several threads.
        encryption: What every request that makes an object says about encryption.
        slots: A place for each part of an upload that waits in memory.
        proven: Buckets in which it has refused to create an object that was there.
        locking: Whether objects of a bucket can be locked, where that was asked.
        uncopied: Pairs of buckets between which it has refused to copy, or not said what it copied.
    """

    client: Any
    encryption: Mapping[str, Any]
    slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(PARTS_AT_ONCE))
    proven: set[str] = field(default_factory=set)
    locking: dict[str, bool] = field(default_factory=dict)
    uncopied: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Place:
    """One object, there or not."""

    service: Service
    bucket: str
    key: str
    uri: str

    def call(self, operation: str, *, expect: Collection[int] = (), **parameters: Any) -> dict[str, Any]:
        """One request about the object.

        Args:
            operation: A method of boto3's client.
            expect: HTTP statuses that are answers and not errors here; `status_of` tells them.
            parameters: Those of the method, without `Bucket` and `Key`.

        Raises:
            StreambankError: Whatever went wrong, in our words.
        """
        return call(
            self.service, self.uri, operation, expect=expect, Bucket=self.bucket, Key=self.key, **parameters
        )


def call(
    service: Service, uri: str, operation: str, *, expect: Collection[int] = (), **parameters: Any
) -> dict[str, Any]:
    """One request; see `Place.call`. The `uri` is what messages name."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return cast("dict[str, Any]", getattr(service.client, operation)(**parameters))
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in expect:
            return cast("dict[str, Any]", error.response)
        raise translate(error, uri) from error
    except BotoCoreError as error:
        raise translate(error, uri) from error


def status_of(response: Mapping[str, Any]) -> int:
    """The HTTP status of an answer."""
    return int(response["ResponseMetadata"]["HTTPStatusCode"])


def service(uri: str, access: S3Access | None = None) -> Service:
    """The service that settings lead to; one and the same for the same settings.

    Args:
        uri: What messages name.
        access: What comes before the settings of this process; None for those alone.

    Raises:
        StorageError: boto3 is not installed, or finds no profile (codes `missing-package`, `no-credentials`).
        InputError: A setting cannot be (code `bad-setting`).
    """
    settings = {name: value for name, value in os.environ.items() if name.upper().startswith(_SETTINGS)}
    access = access or S3Access()
    key = (os.getpid(), access, frozenset(settings.items()))
    with _lock:
        found = _services.get(key)
        if found is None:
            found = _services[key] = _connect(uri, access)
        return found


def forget_clients() -> None:
    """Close all connections; stores that are used again make new ones."""
    with _lock:
        for (pid, *_), each in _services.items():
            if pid == os.getpid():
                each.client.close()
        _services.clear()


def _connect(uri: str, access: S3Access) -> Service:
    try:
        import boto3  # noqa: F401 - a missing one is said here, in one place
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise StorageError(
            f"{uri} cannot be opened: boto3 is not installed.",
            code="missing-package",
            hint="pip install boto3",
        ) from error
    encryption = _encryption(access)
    config = Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=CONNECTIONS,
        # Checksums are asked for by name, and compared where the bytes arrive.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="streambank",
    )
    try:
        client = s3_client(access, config)
    except BotoCoreError as error:
        raise translate(error, uri) from error
    except ValueError as error:
        raise InputError(
            f"{uri} cannot be opened: boto3's settings hold an address or region that is not valid.",
            code="bad-setting",
            hint="Look at AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3, AWS_REGION and ~/.aws/config, or at the "
            "connection that names them.",
        ) from error
    return Service(client, encryption)


def _encryption(access: S3Access) -> Mapping[str, Any]:
    kind, key = access.encryption or "", access.kms_key_id or ""
    if not kind:
        kind, key = os.environ.get(SSE_VARIABLE, ""), os.environ.get(KMS_KEY_VARIABLE, "")
    if kind not in ENCRYPTIONS or (key and not kind.startswith("aws:kms")):
        raise InputError(
            f"{SSE_VARIABLE} and {KMS_KEY_VARIABLE} ask for an encryption that does not exist.",
            code="bad-setting",
            hint=f"Set {SSE_VARIABLE} to AES256 or aws:kms; a key goes with aws:kms only.",
        )
    found = {"ServerSideEncryption": kind} if kind else {}
    return found | ({"SSEKMSKeyId": key} if key else {})


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
    return _session(access).client("s3", endpoint_url=access.endpoint_url, config=config)


def _session(access: S3Access) -> Any:
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
    return session


def object_store_options(uri: str) -> dict[str, str]:
    """The same access for libraries that reach S3 by Rust's `object_store`, such as delta-rs.

    Args:
        uri: What is about to be opened, for messages.

    Raises:
        StreambankError: As for a store of this process.
    """
    from botocore.exceptions import BotoCoreError

    access = current_s3() or S3Access()
    try:
        session = _session(access)
        client = session.client("s3", endpoint_url=access.endpoint_url)
        credentials = session.get_credentials()
        known = credentials.get_frozen_credentials() if credentials is not None else None
    except BotoCoreError as error:
        raise translate(error, uri) from error
    found = {"AWS_REGION": client.meta.region_name}
    asked = _encryption(access)
    found |= {name: asked[ours] for name, ours in _OBJECT_STORE_ENCRYPTION.items() if ours in asked}
    if not str(client.meta.endpoint_url).endswith(_AMAZON):
        found["AWS_ENDPOINT_URL"] = client.meta.endpoint_url
        found["AWS_ALLOW_HTTP"] = str(client.meta.endpoint_url.startswith("http://")).lower()
    if known is None:
        return found | {"AWS_SKIP_SIGNATURE": "true"}
    found |= {"AWS_ACCESS_KEY_ID": known.access_key, "AWS_SECRET_ACCESS_KEY": known.secret_key}
    return found | ({"AWS_SESSION_TOKEN": known.token} if known.token else {})


_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_OBJECT_STORE_ENCRYPTION = {
    "AWS_SERVER_SIDE_ENCRYPTION": "ServerSideEncryption",
    "AWS_SSE_KMS_KEY_ID": "SSEKMSKeyId",
}


def _keep_out_of_logs() -> None:
    """Let botocore not write session tokens, and the credentials of roles, into a log that is on `DEBUG`.

    It logs requests with their headers, and the bodies of answers. Whoever has given its logger a level knows
    what to expect; a level of all loggers together asks for no such thing.
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


_NO_RULES = "NoSuchLifecycleConfiguration"


def lifecycle_rules(service: Service, bucket: str, uri: str) -> tuple[LifecycleRule, ...]:
    """The rules of a bucket that take away objects, or make them unreadable, and are enabled.

    Raises:
        StorageError: The service does not say.
    """
    answer = call(service, uri, "get_bucket_lifecycle_configuration", expect=(404,), Bucket=bucket)
    refused = answer.get("Error", {}).get("Code")
    if refused == _NO_RULES:
        return ()
    if refused is not None:
        raise StorageError(
            f"The lifecycle rules of the bucket of {uri} cannot be read ({refused}).",
            code="storage",
            hint="Give these credentials s3:GetLifecycleConfiguration, or look at the rules by hand.",
        )
    found = (_rule(one) for one in answer.get("Rules", ()) if one.get("Status") == "Enabled")
    return tuple(rule for rule in found if rule.does)


def _rule(said: Mapping[str, Any]) -> LifecycleRule:
    asked = said.get("Filter") or {}
    both = asked.get("And") or asked
    tagged = bool(both.get("Tag") or both.get("Tags"))
    # Rules of the first kind have their prefix beside the filter.
    prefix = both.get("Prefix") or said.get("Prefix") or ""
    return LifecycleRule(str(said.get("ID") or "without a name"), str(prefix), tagged, tuple(_does(said)))


def _does(said: Mapping[str, Any]) -> list[str]:
    expiration = said.get("Expiration") or {}
    found = []
    if expiration.get("Days") is not None:
        found.append(f"deletes objects after {expiration['Days']} days")
    if expiration.get("Date") is not None:
        found.append(f"deletes objects on {expiration['Date']:%Y-%m-%d}")
    for move in said.get("Transitions") or ():
        if str(move.get("StorageClass")) in ("GLACIER", "DEEP_ARCHIVE"):
            when = f"after {move['Days']} days" if move.get("Days") is not None else "on a date"
            found.append(f"archives objects in {move['StorageClass']} {when}, where nobody can read them")
    return found


def server_time(service: Service, bucket: str, uri: str) -> datetime:
    """The time by the service's clock, to the second.

    Raises:
        StorageError: It does not answer, or says no time.
    """
    answer = call(service, uri, "head_bucket", Bucket=bucket)
    said = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(said).astimezone(UTC)
    except (TypeError, ValueError) as error:
        raise StorageError(
            f"The service of {uri} sends no time in its answers.",
            code="storage",
            hint="Compare its clock with this machine's by hand.",
        ) from error
