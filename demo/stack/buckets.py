"""Make the stack's bucket, once the S3 server takes it; run again it changes nothing.

    python -m demo.stack.buckets [BUCKET ...]

boto3's own variables (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, ...) say where. Part of `make stack`, and a
service of docker-compose.yml.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from demo.stack.places import BUCKET

POLL_S = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Make the buckets that are named; 1 where the server did not take them in time."""
    parser = argparse.ArgumentParser(description="Make buckets on the S3 server of the environment.")
    parser.add_argument("buckets", nargs="*", default=[BUCKET])
    parser.add_argument("--within", type=float, default=120.0, help="seconds to wait for the server")
    options = parser.parse_args(argv)
    import boto3

    client = boto3.client("s3")
    deadline = time.monotonic() + options.within
    for bucket in options.buckets:
        while problem := make(client, bucket):
            if time.monotonic() > deadline:
                print(f"Bucket {bucket} could not be made: {problem}", file=sys.stderr)
                return 1
            time.sleep(POLL_S)
        print(f"Bucket {bucket} is there and can be written")
    client.close()
    return 0


def make(client: Any, bucket: str) -> str:
    """Make a bucket, and write into it: a server may have the one before it can do the other.

    Returns:
        Why it could not be done, or nothing.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
            return str(error)
    except (BotoCoreError, OSError) as error:
        return str(error)
    try:
        client.put_object(Bucket=bucket, Key="ready", Body=b"")
        client.delete_object(Bucket=bucket, Key="ready")
    except (ClientError, BotoCoreError, OSError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
