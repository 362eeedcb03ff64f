"""Profiles of boto3 for buckets that are on other services than the environment says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.storage.s3_servers import ACCESS_KEY, SECRET_KEY, S3Server


def use_profiles(servers: Mapping[str, S3Server], folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let each bucket be reached at its server, by a profile with its name."""
    file = folder / "profiles"
    file.write_text(
        "".join(
            f"[profile at-{bucket}]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
            f"region = us-east-1\nendpoint_url = {server.endpoint}\n"
            for bucket, server in servers.items()
        ),
        encoding="utf-8",
    )
    patch.setenv("AWS_CONFIG_FILE", str(file))
    patch.setenv("STREAMBANK_S3_PROFILES", ", ".join(f"{bucket}=at-{bucket}" for bucket in servers))
