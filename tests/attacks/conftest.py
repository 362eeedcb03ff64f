"""A server of S3 for attacks on storage, and a key that attackers do not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.signing import VARIABLE, new_key
from tests.support.storage.s3_servers import moto_server

__all__ = ["moto_server"]


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A signing key that this installation has."""
    file = tmp_path / "keys"
    new_key(file)
    monkeypatch.setenv(VARIABLE, str(file))
    return file
