from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.jobs.trio import Trio, declare_trio


@pytest.fixture
def trio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trio:
    return declare_trio(tmp_path, monkeypatch)
