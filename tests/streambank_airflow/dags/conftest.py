from __future__ import annotations

import pytest

from tests.support.airflow_face.exchanged_job import Rewriting
from tests.support.jobs.managed_job import Managed, hand_over


@pytest.fixture
def rewriting(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> Rewriting:
    """Stands where Spark does; what a DAG of the job triggers takes it over at once."""
    hand_over(lambda: managed.control, monkeypatch)
    return Rewriting(monkeypatch)
