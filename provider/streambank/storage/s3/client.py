"""How this process reaches S3: one boto3 client for each set of settings, and every call translated.

Endpoint, region, profile, role and credentials are boto3's own business: its environment variables
(`AWS_ENDPOINT_URL`, `AWS_PROFILE`, `AWS_REGION`, ...), its files, and the role of the machine. Only
encryption, for which boto3 has no variable, is asked for by two of ours: `STREAMBANK_S3_SSE` (`AES256` or
`aws:kms`) and `STREAMBANK_S3_KMS_KEY_ID`. `STREAMBANK_S3_PROFILES` names a profile for each bucket that is on
another service. Settings other than those of the process are handed over as an
`S3Access`; what it leaves out is as for everybody. Nothing here prints a credential.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

from streambank.core.errors import InputError, StorageError
from streambank.core.python310 import UTC
from streambank.storage.s3.credentials import ENCRYPTIONS, S3Access, current_s3
from streambank.storage.s3.errors import translate
from streambank.storage.s3.profile import session_of_profile
from streambank.storage.store import LifecycleRule

SSE_VARIABLE = "STREAMBANK_S3_SSE"
KMS_KEY_VARIABLE = "STREAMBANK_S3_KMS_KEY_ID"
PROFILES_VARIABLE = "STREAMBANK_S3_PROFILES"
"""`BUCKET=PROFILE,...`: which profile of boto3's files says how a bucket is reached, and as whom."""
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
_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


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
class S3Address:
    """One object, there or not; or what the keys of a store begin with."""

    service: Service
    bucket: str
    key: str
    uri: str

    def call(self, operation: str, *, expect: Collection[int] = (), **parameters: Any) -> dict[str, Any]:
        """One request about the object; statuses in `expect` are answers, which `status_of` tells."""
        return self.ask(operation, expect=expect, Key=self.key, **parameters)

    def ask(self, operation: str, *, expect: Collection[int] = (), **parameters: Any) -> dict[str, Any]:
        """One request about the bucket; as `call`."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = getattr(self.service.client, operation)(Bucket=self.bucket, **parameters)
            return cast("dict[str, Any]", answer)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in expect:
                return cast("dict[str, Any]", error.response)
            raise translate(error, self.uri) from error
        except BotoCoreError as error:
            raise translate(error, self.uri) from error

    def pages(
        self, operation: str, repeated: Mapping[str, str], **parameters: Any
    ) -> Iterator[dict[str, Any]]:
        """Every page of a listing of the bucket.

        Args:
            repeated: What of a page the request for the next one repeats: its name there, and in the request.

        Raises:
            StorageError: It does not end (code `storage`).
        """
        after: dict[str, Any] = {}
        while True:
            page = self.ask(operation, **parameters, **after)
            yield page
            if not page.get("IsTruncated"):
                return
            following = {asked: page[said] for said, asked in repeated.items() if page.get(said)}
            if not following or following == after:
                raise StorageError(
                    f"The service's listing of {self.uri} does not end.",
                    code="storage",
                    hint="Report it to the maker of the service.",
                )
            after = following


def status_of(response: Mapping[str, Any]) -> int:
    """The HTTP status of an answer."""
    return int(response["ResponseMetadata"]["HTTPStatusCode"])


def service(uri: str, access: S3Access | None = None) -> Service:
    """The service that settings lead to; one and the same for the same settings.

    Args:
        uri: What is about to be opened: its bucket may have a profile, and messages name it.
        access: What comes before the settings of this process; None for those alone.

    Raises:
        StorageError: boto3 is not installed, or finds no profile (codes `missing-package`, `no-credentials`).
        InputError: A setting cannot be (code `bad-setting`).
    """
    known = _settings()
    access = _of_bucket(uri, access or S3Access(), known)
    key = (os.getpid(), access, known)
    with _lock:
        found = _services.get(key)
    if found is None:
        # Outside the lock: credentials of one service may come slowly, and others do not wait for them.
        made = _connect(uri, access)
        with _lock:
            found = _services.setdefault(key, made)
        if found is not made:
            made.client.close()
    return found


def _settings() -> frozenset[tuple[str, str]]:
    return frozenset(variable for variable in os.environ.items() if variable[0].upper().startswith(_SETTINGS))


def _of_bucket(uri: str, access: S3Access, settings: frozenset[tuple[str, str]]) -> S3Access:
    """The access by the profile that is named for the bucket of a location; else the same.

    What that profile says of endpoints and region comes before the variables of the process, which are about
    the other buckets.

    Raises:
        StorageError: There is no such profile (code `no-credentials`).
        InputError: The variable cannot be read (code `bad-setting`).
    """
    profile = _profiles().get(uri.partition("://")[2].partition("/")[0])
    if profile is None:
        return access
    try:
        from botocore.exceptions import BotoCoreError
    except ImportError:
        return access  # `_connect` says it
    try:
        endpoint, region = _said_by(profile, settings, _written())
    except BotoCoreError as error:
        raise translate(error, uri) from error
    return S3Access(
        profile=profile,
        profile_alone=True,
        endpoint_url=endpoint,
        region=region,
        encryption=access.encryption,
        kms_key_id=access.kms_key_id,
        answer_within_s=access.answer_within_s,
    )


def _written() -> tuple[tuple[int, int] | None, ...]:
    """When each of boto3's files was written, in nanoseconds, and its size; None where there is no file."""
    found: list[tuple[int, int] | None] = []
    for variable, usual in _FILES.items():
        try:
            about = Path(os.path.expandvars(os.environ.get(variable) or usual)).expanduser().stat()
        except (OSError, RuntimeError):  # the latter: there is no home
            found.append(None)
        else:
            found.append((about.st_mtime_ns, about.st_size))
    return tuple(found)


@lru_cache(maxsize=256)
def _said_by(
    profile: str, settings: frozenset[tuple[str, str]], written: tuple[tuple[int, int] | None, ...]
) -> tuple[str | None, str | None]:
    session = session_of_profile()
    session.set_config_variable("profile", profile)
    return session.endpoint_url("s3"), session.get_scoped_config().get("region")


def _profiles() -> dict[str, str]:
    found = {}
    for entry in filter(None, map(str.strip, os.environ.get(PROFILES_VARIABLE, "").split(","))):
        bucket, _, profile = (part.strip() for part in entry.partition("="))
        if not bucket or not profile:
            raise InputError(
                f"{PROFILES_VARIABLE} must be BUCKET=PROFILE, or several of them with commas between.",
                code="bad-setting",
                hint="Such as west-savepoints=west,west-checkpoints=west.",
            )
        found[bucket] = profile
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
        **_times(ATTEMPTS, CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
        max_pool_connections=CONNECTIONS,
        # Checksums are asked for by name, and compared where the bytes arrive.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="streambank",
    )
    if access.answer_within_s is not None:
        config = config.merge(_soon(access.answer_within_s))
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


def _times(tries: int, connect_s: float, read_s: float) -> dict[str, Any]:
    retries = {"mode": "standard", "total_max_attempts": tries}
    return {"retries": retries, "connect_timeout": connect_s, "read_timeout": read_s}


def _soon(answer_within_s: float) -> Any:
    """Settings of botocore for a client that gives a service up after so many seconds."""
    from botocore.config import Config

    return Config(**_times(2, answer_within_s / 2, answer_within_s / 2))


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

    Raises:
        botocore.exceptions.BotoCoreError: There is no such profile, or nobody who could assume the role.
        ValueError: An address or region is none.
    """
    return _session(access).client("s3", endpoint_url=access.endpoint_url, config=config)


def _session(access: S3Access) -> Any:
    import boto3
    import botocore.session

    _keep_out_of_logs()
    inner = session_of_profile() if access.profile_alone else botocore.session.Session()
    if access.answer_within_s is not None:
        # For the service that credentials come from, too: a role's is often in the region that is down.
        inner.set_default_client_config(_soon(access.answer_within_s))
    session = boto3.session.Session(
        botocore_session=inner,
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

    Raises:
        StreambankError: As for a store of this process.
    """
    from botocore.exceptions import BotoCoreError

    access = _of_bucket(uri, current_s3() or S3Access(), _settings())
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
    if access.profile_alone or not str(client.meta.endpoint_url).endswith(_AMAZON):
        # Those that are not given are taken from the environment.
        found["AWS_ENDPOINT_URL"] = found["AWS_ENDPOINT_URL_S3"] = client.meta.endpoint_url
        found["AWS_ALLOW_HTTP"] = str(client.meta.endpoint_url.startswith("http://")).lower()
    if known is None:
        return found | {"AWS_SKIP_SIGNATURE": "true"}
    found |= {"AWS_ACCESS_KEY_ID": known.access_key, "AWS_SECRET_ACCESS_KEY": known.secret_key}
    return found | ({_TOKEN: known.token} if known.token else {})


@contextmanager
def credentials_alone(options: Mapping[str, str]) -> Iterator[None]:
    """Let `object_store` not add the session token of this process to credentials that have none.

    It adds what options leave out from the environment when a store is opened, and services refuse an empty
    token. The variable is taken out for native code alone: `os.environ`, and with it boto3, keeps it.
    """
    token = os.environ.get(_TOKEN)
    if token is None or _TOKEN in options or "AWS_ACCESS_KEY_ID" not in options:
        yield
        return
    with _token_lock:
        os.unsetenv(_TOKEN)
        try:
            yield
        finally:
            os.putenv(_TOKEN, token)


_TOKEN = "AWS_SESSION_TOKEN"
_token_lock = threading.Lock()
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


def lifecycle_rules(root: S3Address) -> tuple[LifecycleRule, ...]:
    """The rules of a bucket that take away objects, or make them unreadable, and are enabled."""
    answer = root.ask("get_bucket_lifecycle_configuration", expect=(404,))
    refused = answer.get("Error", {}).get("Code")
    if refused == _NO_RULES:
        return ()
    if refused is not None:
        raise StorageError(
            f"The lifecycle rules of the bucket of {root.uri} cannot be read ({refused}).",
            code="storage",
            hint="Give these credentials s3:GetLifecycleConfiguration, or look at the rules by hand.",
        )
    found = (_rule(rule) for rule in answer.get("Rules", ()) if rule.get("Status") == "Enabled")
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
            found.append(f"archives objects in {move['StorageClass']} {when}, where they cannot be read")
    return found


def server_time(root: S3Address) -> datetime:
    """The time by the service's clock, to the second."""
    answer = root.ask("head_bucket")
    said = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(said).astimezone(UTC)
    except (TypeError, ValueError) as error:
        raise StorageError(
            f"The service of {root.uri} sends no time in its answers.",
            code="storage",
            hint="Compare its clock with this machine's by hand.",
        ) from error
