"""From what an S3 service or boto3 says to the errors of this project.

A message names the object and the service's own code for the failure, and nothing else of the answer: answers
may hold parts of requests, and those are signed with credentials.
"""

from __future__ import annotations

from streambank.core.errors import InputError, StorageError, StreambankError
from streambank.storage.store import missing_error

_BUSY = "Try again later, or with fewer requests at once."
_DAMAGED = "The network damages the data that passes through it: try again."
_LOG_IN = "Log in again: aws sso login."
_CODES = {
    "403 AccessDenied AllAccessDisabled": (
        "no-permission",
        "Give these credentials permission for it. Without permission to list the bucket, the service gives "
        "this answer for a key that does not exist, too.",
    ),
    "KMS.AccessDeniedException": ("no-permission", "Give these credentials permission for the KMS key."),
    "ExpiredToken InvalidAccessKeyId InvalidToken RequestTimeTooSkewed SignatureDoesNotMatch": (
        "bad-credentials",
        "Look at AWS_PROFILE and AWS_ACCESS_KEY_ID, or at the Airflow connection, and at the clock of this "
        "machine; sessions expire.",
    ),
    "NoSuchBucket": ("no-bucket", "Create the bucket, or check its name and AWS_ENDPOINT_URL."),
    "InvalidBucketName": ("no-bucket", "No bucket can have this name."),
    "301 AuthorizationHeaderMalformed PermanentRedirect": (
        "wrong-region",
        "Set AWS_REGION to the region of the bucket.",
    ),
    "ObjectLocked": ("object-locked", "It may not be changed before its retention or legal hold ends."),
    "InvalidObjectState": ("object-archived", "Bring it back from the archive first."),
    "BadDigest XAmzContentChecksumMismatch": ("corrupt-transfer", _DAMAGED),
    "EntityTooLarge": ("too-large", "The service takes no object of this size."),
    "QuotaExceeded": ("disk-full", "The quota is used up: free some space and try again."),
    "InsufficientStorage": ("disk-full", "The service has no space left."),
    "500 503 InternalError RequestTimeout ServiceUnavailable SlowDown TooManyRequests": (
        "service-busy",
        _BUSY,
    ),
    # boto3's own, by the names of their classes
    "CredentialRetrievalError NoCredentialsError PartialCredentialsError": (
        "no-credentials",
        "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or fill in the Airflow connection, "
        "or give the machine a role.",
    ),
    "ProfileNotFound": ("no-credentials", "AWS_PROFILE names no profile of ~/.aws/config."),
    "SSOTokenLoadError TokenRetrievalError UnauthorizedSSOTokenError": ("no-credentials", _LOG_IN),
    "ConnectTimeoutError ConnectionClosedError ConnectionError EndpointConnectionError HTTPClientError "
    "ProxyConnectionError ReadTimeoutError SSLError": (
        "not-reachable",
        "Look at AWS_ENDPOINT_URL, the network and the proxy settings, then try again.",
    ),
}
"""Code and hint, by the names that services and boto3 give to an error."""
_BY_NAME = {name: found for names, found in _CODES.items() for name in names.split()}
_WORDS = {
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
}
_LOCK_WORDS = ("object lock", "worm", "retention", "legal hold")


def translate(error: Exception, uri: str) -> StreambankError:
    """The error of ours that says the same as a `ClientError` (the service answered) or `BotoCoreError`."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        other = "Look at the service's documentation for this code, then try again."
        said = response.get("Error", {})
        name = str(said.get("Code") or response.get("ResponseMetadata", {}).get("HTTPStatusCode") or "")
        if name in ("404", "NoSuchKey", "NotFound", "NoSuchVersion"):
            return missing_error(uri)
        text = str(said.get("Message", "")).lower()
        if name in ("403", "AccessDenied", "InvalidRequest") and any(word in text for word in _LOCK_WORDS):
            name = "ObjectLocked"
    else:
        name, other = type(error).__name__, "Look at boto3's settings, then try again."
    code, hint = _BY_NAME.get(name, ("storage", other))
    words = _WORDS.get(code, "the service refused")
    return StorageError(f"{uri} cannot be used: {words} ({name}).", code=code, hint=hint)


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
