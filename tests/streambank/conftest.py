from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.workshop import Workshop


@pytest.fixture(params=["local", "memory"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Workshop:
    """A job with everything around it, on a local disk and in memory."""
    return Workshop(tmp_path if request.param == "local" else f"memory://{tmp_path.name}")
