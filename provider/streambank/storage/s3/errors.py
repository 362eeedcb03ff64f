"""From what an S3 service or boto3 says to the errors of this project.

A message names the object and the service's own code for the failure, and nothing else of the answer: answers
may hold parts of requests, and those are signed with credentials.
"""

from __future__ import annotations

from streambank.core.errors import ConflictError, InputError, NotFoundError, StorageError, StreambankError
from streambank.storage.store import EXISTS_HINT, GONE_HINT

_RIGHTS = (
    "Give these credentials permission for it. Without permission to list the bucket, the service gives this "
    "answer for a key that does not exist, too."
)
_CREDENTIALS = (
    "Look at AWS_PROFILE and AWS_ACCESS_KEY_ID, or at the Airflow connection, and at the clock of this "
    "machine; sessions expire."
)
_NONE = (
    "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or fill in the Airflow connection, or "
    "give the machine a role."
)
_BUSY = "Try again later, or with fewer requests at once."
_REGION = "Set AWS_REGION to the region of the bucket."
_NETWORK = "Look at AWS_ENDPOINT_URL, the network and the proxy settings, then try again."
_LOCKED = "It may not be changed before its retention or legal hold ends."

_CODES = {
    "403": ("no-permission", _RIGHTS),
    "AccessDenied": ("no-permission", _RIGHTS),
    "AllAccessDisabled": ("no-permission", _RIGHTS),
    "KMS.AccessDeniedException": ("no-permission", "Give these credentials permission for the KMS key."),
    "ExpiredToken": ("bad-credentials", _CREDENTIALS),
    "InvalidAccessKeyId": ("bad-credentials", _CREDENTIALS),
    "InvalidToken": ("bad-credentials", _CREDENTIALS),
    "RequestTimeTooSkewed": ("bad-credentials", _CREDENTIALS),
    "SignatureDoesNotMatch": ("bad-credentials", _CREDENTIALS),
    "NoSuchBucket": ("no-bucket", "Create the bucket, or check its name and AWS_ENDPOINT_URL."),
    "InvalidBucketName": ("no-bucket", "No bucket can have this name."),
    "301": ("wrong-region", _REGION),
    "AuthorizationHeaderMalformed": ("wrong-region", _REGION),
    "PermanentRedirect": ("wrong-region", _REGION),
    "ObjectLocked": ("object-locked", _LOCKED),
    "InvalidObjectState": ("object-archived", "Bring it back from the archive first."),
    "BadDigest": ("corrupt-transfer", "The network damages the data that passes through it: try again."),
    "XAmzContentChecksumMismatch": (
        "corrupt-transfer",
        "The network damages the data that passes through it: try again.",
    ),
    "EntityTooLarge": ("too-large", "The service takes no object of this size."),
    "QuotaExceeded": ("disk-full", "The quota is used up: free some space and try again."),
    "InsufficientStorage": ("disk-full", "The service has no space left."),
    "500": ("service-busy", _BUSY),
    "503": ("service-busy", _BUSY),
    "InternalError": ("service-busy", _BUSY),
    "RequestTimeout": ("service-busy", _BUSY),
    "ServiceUnavailable": ("service-busy", _BUSY),
    "SlowDown": ("service-busy", _BUSY),
    "TooManyRequests": ("service-busy", _BUSY),
    # boto3's own, by the names of their classes
    "CredentialRetrievalError": ("no-credentials", _NONE),
    "NoCredentialsError": ("no-credentials", _NONE),
    "PartialCredentialsError": ("no-credentials", _NONE),
    "ProfileNotFound": ("no-credentials", "AWS_PROFILE names no profile of ~/.aws/config."),
    "SSOTokenLoadError": ("no-credentials", "Log in again: aws sso login."),
    "TokenRetrievalError": ("no-credentials", "Log in again: aws sso login."),
    "UnauthorizedSSOTokenError": ("no-credentials", "Log in again: aws sso login."),
    "ConnectTimeoutError": ("not-reachable", _NETWORK),
    "ConnectionClosedError": ("not-reachable", _NETWORK),
    "ConnectionError": ("not-reachable", _NETWORK),
    "EndpointConnectionError": ("not-reachable", _NETWORK),
    "HTTPClientError": ("not-reachable", _NETWORK),
    "ProxyConnectionError": ("not-reachable", _NETWORK),
    "ReadTimeoutError": ("not-reachable", _NETWORK),
    "SSLError": ("not-reachable", _NETWORK),
}
_LOCK_WORDS = ("object lock", "worm", "retention", "legal hold")
_OTHER = "Look at the service's documentation for this code, then try again."


def translate(error: Exception, uri: str) -> StreambankError:
    """The error of ours that says the same.

    Args:
        error: A `ClientError` (the service answered) or another `BotoCoreError` (it did not).
        uri: The object, bucket or prefix that the request was about.
    """
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        name = type(error).__name__
        code, hint = _CODES.get(name, ("storage", "Look at boto3's settings, then try again."))
        return StorageError(f"{uri} cannot be used: {_spoken(code)} ({name}).", code=code, hint=hint)
    said = response.get("Error", {})
    name = str(said.get("Code") or response.get("ResponseMetadata", {}).get("HTTPStatusCode") or "")
    if name in ("404", "NoSuchKey", "NotFound", "NoSuchVersion"):
        return missing_error(uri)
    text = str(said.get("Message", "")).lower()
    if name in ("403", "AccessDenied", "InvalidRequest") and any(word in text for word in _LOCK_WORDS):
        name = "ObjectLocked"
    code, hint = _CODES.get(name, ("storage", _OTHER))
    return StorageError(f"{uri} cannot be used: {_spoken(code)} ({name}).", code=code, hint=hint)


def _spoken(code: str) -> str:
    return {
        "no-permission": "the service does not permit it",
        "bad-credentials": "the service does not know these credentials",
        "no-bucket": "there is no such bucket",
        "wrong-region": "the bucket is in another region",
        "object-locked": "the object is locked",
        "object-archived": "the object is archived",
        "corrupt-transfer": "bytes were damaged on their way",
        "too-large": "it is too large",
        "disk-full": "the service has no space for it",
        "service-busy": "the service is busy or failing",
        "no-credentials": "no credentials were found",
        "not-reachable": "the service cannot be reached",
    }.get(code, "the service refused")


def missing_error(uri: str) -> NotFoundError:
    """There is no such object."""
    return NotFoundError(f"There is no file {uri}.", code="no-such-file", hint=GONE_HINT)


def exists_error(uri: str) -> ConflictError:
    """It is there already."""
    return ConflictError(f"{uri} is there already.", code="exists", hint=EXISTS_HINT)


def no_exclusive_create_error(uri: str) -> InputError:
    """The service ignores the one condition that everything rests on."""
    return InputError(
        f"{uri} cannot be created safely: the service replaced an object that it was asked not to replace.",
        code="no-exclusive-create",
        hint="It does not support PUT with If-None-Match; a newer version may. A checkpoint there can be "
        "saved; keep repositories, job records and restored checkpoints elsewhere.",
    )


def corrupt_error(uri: str, how: str) -> StorageError:
    """Bytes did not arrive as they were sent, and asking again did not help."""
    return StorageError(
        f"{uri} {how}.",
        code="corrupt-transfer",
        hint="Try again. If it happens again, the network, a proxy or the service damages the data.",
    )
