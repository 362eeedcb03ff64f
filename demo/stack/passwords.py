"""The stack's passwords and keys: random, made once for each folder, and readable by their owner only."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from demo.stack.addresses import Addresses
from demo.stack.places import StackPlaces

S3_USER = "stack"


@dataclass(frozen=True, slots=True)
class Passwords:
    """What is secret in a stack; kept as long as its data, which was written with it."""

    postgres: str = field(repr=False)
    s3_key: str = field(repr=False)
    s3_secret: str = field(repr=False)
    fernet: str = field(repr=False)

    def s3_environment(self, addresses: Addresses) -> dict[str, str]:
        """What leads boto3 and Spark's S3A to the S3 server."""
        return {
            "AWS_ENDPOINT_URL": addresses.s3,
            "AWS_ACCESS_KEY_ID": self.s3_key,
            "AWS_SECRET_ACCESS_KEY": self.s3_secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def s3_users(self) -> Mapping[str, Any]:
        """The S3 server's one user, in the server's own format."""
        credentials = [{"accessKey": self.s3_key, "secretKey": self.s3_secret}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        return {"identities": [{"name": S3_USER, "credentials": credentials, "actions": actions}]}


def passwords(places: StackPlaces) -> Passwords:
    """Those of the stack in this folder, made at first."""
    try:
        return Passwords(**json.loads(places.secrets.read_text()))
    except FileNotFoundError:
        made = Passwords(
            postgres=secrets.token_urlsafe(18),
            s3_key=f"AKID{secrets.token_hex(8).upper()}",
            s3_secret=secrets.token_urlsafe(30),
            fernet=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        )
        descriptor = os.open(places.secrets, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(made), file)
        return made
