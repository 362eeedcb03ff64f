"""Which environment variables a process needs to reach its files, by the scheme of their locations.

Whoever starts a driver lets these pass and no others: a list of what may pass, never of what may not. The
names are those that boto3, Spark's S3A (which takes `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
`AWS_SESSION_TOKEN` and `AWS_ENDPOINT_URL` over into its own settings), gcsfs and adlfs read.
"""

from __future__ import annotations

from collections.abc import Iterable

from streambank.storage.locations import scheme_of

_NETWORK = frozenset(
    {"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "https_proxy", "http_proxy", "no_proxy"}
)
_AWS = _NETWORK | {
    "AWS_ACCESS_KEY_ID",
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_DEFAULT_PROFILE",
    "AWS_DEFAULT_REGION",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_STS_REGIONAL_ENDPOINTS",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "STREAMBANK_S3_KMS_KEY_ID",
    "STREAMBANK_S3_PROFILES",
    "STREAMBANK_S3_SSE",
}
_AZURE = _NETWORK | {
    "AZURE_AUTHORITY_HOST",
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TENANT_ID",
    "AZURE_TENANT_ID",
}
_GOOGLE = _NETWORK | {
    "CLOUDSDK_CONFIG",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "STORAGE_EMULATOR_HOST",
}
_HADOOP = frozenset({"CLASSPATH", "KRB5CCNAME", "KRB5_CONFIG"})
_BY_SCHEME = {
    "abfs": _AZURE,
    "abfss": _AZURE,
    "az": _AZURE,
    "gcs": _GOOGLE,
    "gs": _GOOGLE,
    "hdfs": _HADOOP,
    "s3": _AWS,
    "s3a": _AWS,
    "webhdfs": _HADOOP | _NETWORK,
}


CREDENTIALS = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_SAS_TOKEN",
    }
)
"""Those of them that hold credentials, and do not just lead to some."""


def variables_for(locations: Iterable[str]) -> frozenset[str]:
    """Names of the variables that lead to these locations; none for local ones."""
    return frozenset[str]().union(
        *(_BY_SCHEME.get(scheme_of(location), frozenset()) for location in locations)
    )
