"""The release of Airflow that these tests run on, and environments with older ones.

`python -m tests.support.airflow_face.releases 3.2` prints the interpreter of one that has Airflow 3.2.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.venvs import LOCKS, filled_venv, version_of

_RELEASE = tuple(map(int, version("apache-airflow-core").split(".")[:2]))
BEFORE_3_2 = _RELEASE < (3, 2)
BEFORE_3_3 = _RELEASE < (3, 3)
WAITS_FOR_A_PERSON = "deferred" if BEFORE_3_3 else "awaiting_input"
"""The state of a task that has asked somebody."""
needs_3_3 = pytest.mark.skipif(BEFORE_3_3, reason="Airflow 3.3 brought it")
needs_3_2 = pytest.mark.skipif(BEFORE_3_2, reason="Airflow 3.2 brought it")


def older_airflow(release: str) -> Path:
    """The interpreter of an environment with an Airflow such as `3.2`, and with this checkout."""
    folder = ROOT / ".streambank" / "airflows" / f"{release}-{version_of(sys.executable)}"
    checkout = ("--no-deps", "--no-build-isolation", "--editable", ROOT)
    return filled_venv(folder, LOCKS / f"airflow-{release}.lock", sys.executable, *checkout)


if __name__ == "__main__":
    print(older_airflow(sys.argv[1]))
