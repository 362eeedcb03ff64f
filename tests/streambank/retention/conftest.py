from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.time_travel import Clock, time_travel


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Hours that pass in no time."""
    with time_travel() as clock:
        yield clock
