"""Who a caller is to S3, and which service it means, where the settings of the process are not to say so.

`using_s3(access)` holds for the stores that are opened inside its `with`, by the same thread or task; they
keep it for as long as they live, and nothing else in the process changes: no environment variable, no file.
So a process that serves several owners never mixes them, and one that is started from here gets nothing.

An `S3Access` neither prints nor pickles what it holds: it cannot get into a log, an error, or a message to
another process by being passed along.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NoReturn

from streambank.core.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Self

ENCRYPTIONS = ("", "AES256", "aws:kms", "aws:kms:dsse")


@dataclass(frozen=True, slots=True, repr=False)
class S3Access:
    """Settings of S3; what is None comes from boto3's chain: its variables, its files, the machine's role.

    Attributes:
        profile: A profile of `~/.aws/config` instead of credentials.
        profile_alone: Whether endpoints come from that profile alone, those of roles included, and from no
            variable of the process.
        external_id: What the role's owner wants to hear.
        encryption: What is asked for with each object: `AES256`, `aws:kms` or `aws:kms:dsse`.
        answer_within_s: How long a request may take, a second try included, in seconds; the usual times and
            tries where left out.

    Raises:
        InputError: They contradict each other (code `bad-setting`); no value is repeated.
    """

    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    profile: str | None = None
    profile_alone: bool | None = None
    role_arn: str | None = None
    external_id: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    sts_endpoint_url: str | None = None
    encryption: str | None = None
    kms_key_id: str | None = None
    answer_within_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what would silently be something else than was meant."""
        given = {one.name for one in fields(self) if getattr(self, one.name) is not None}
        if len(given & {"access_key_id", "secret_access_key"}) == 1:
            raise _contradiction("only half of the credentials", "Give the access key's id and its secret.")
        if "session_token" in given and "access_key_id" not in given:
            raise _contradiction(
                "a session token without credentials", "Give the access key's id, its secret and the token."
            )
        if {"profile", "access_key_id"} <= given:
            raise _contradiction("a profile and credentials", "Give one of them.")
        if "profile_alone" in given and "profile" not in given:
            raise _contradiction("a profile alone, but no profile", "Give the profile.")
        if {"external_id", "sts_endpoint_url"} & given and "role_arn" not in given:
            raise _contradiction("options for a role, but no role", "Give the role's ARN.")
        kind = self.encryption or ""
        if kind not in ENCRYPTIONS or ("kms_key_id" in given and not kind.startswith("aws:kms")):
            raise _contradiction(
                "an encryption that does not exist", "AES256 or aws:kms; a key goes with aws:kms only."
            )

    def __repr__(self) -> str:
        return "S3Access(...)"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("credentials of S3 do not leave their process")

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) is not None for one in fields(self))

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self | None:
        """The access that some settings make; None where they say nothing."""
        access = cls(**settings)
        return access or None


def _contradiction(what: str, hint: str) -> InputError:
    return InputError(f"The settings of S3 hold {what}.", code="bad-setting", hint=hint)


_current: ContextVar[S3Access | None] = ContextVar("streambank_s3_access", default=None)


def current_s3() -> S3Access | None:
    """What a store that is opened now is to use; None for the settings of the process."""
    return _current.get()


@contextmanager
def using_s3(access: S3Access | None) -> Iterator[None]:
    """Let the stores that are opened inside the `with` use these settings; None leaves all as it is.

    A thread that is started inside begins without them, as is the way of Python's contexts: stores are opened
    before work is handed to threads.
    """
    if access is None:
        yield
        return
    token = _current.set(access)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def answering_within(seconds: float) -> Iterator[None]:
    """Let stores opened inside the `with` wait no longer for a request to S3, a second try included.

    For a look at a service that may be dead; everything else about them is as it would be.
    """
    with using_s3(replace(current_s3() or S3Access(), answer_within_s=seconds)):
        yield
