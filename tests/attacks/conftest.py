"""A server of S3 for attacks on storage."""

from __future__ import annotations

from tests.support.storage.s3_servers import moto_server

__all__ = ["moto_server"]
