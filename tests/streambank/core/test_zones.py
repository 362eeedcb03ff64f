"""Time zones by name, and what is said where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC

import pytest

from streambank.core.errors import InputError
from streambank.core.zones import time_zone
from tests.support.paths import ROOT

WITHOUT_DATA = """
from streambank.core.errors import InputError
from streambank.core.zones import time_zone
time_zone("UTC")
try:
    time_zone("Europe/Berlin")
except InputError as error:
    print(error.code, error, error.hint)
"""


def test_a_zone_by_its_name() -> None:
    assert str(time_zone("Europe/Berlin")) == "Europe/Berlin"
    assert time_zone("UTC") is UTC


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "Did you mean Europe/Berlin?"),
        ("europe/berlin", "Did you mean Europe/Berlin?"),
        ("Berlin", "Did you mean Europe/Berlin?"),
        ("New York", "Did you mean America/New_York?"),
        ("Europe", "Did you mean"),
        ("../UTC", "Did you mean UTC?"),
        ("/etc/passwd", "Write a name such as Europe/Berlin."),
        ("Europe/Berlin\0", "Did you mean Europe/Berlin?"),
        ("+02:00", "Write a name such as Europe/Berlin."),
    ],
)
def test_a_name_that_is_none_says_the_one_that_was_meant(name: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        time_zone(name)
    assert caught.value.code == "bad-time-zone" and repr(name) in caught.value.message
    assert caught.value.hint.startswith(hint)


def test_a_machine_without_time_zones_knows_utc_and_says_what_is_missing() -> None:
    """No system's zones, and no site-packages with tzdata."""
    environment = {**os.environ, "PYTHONTZPATH": "", "PYTHONPATH": str(ROOT / "provider")}
    said = subprocess.run(
        [sys.executable, "-S", "-c", WITHOUT_DATA],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said == (
        "no-time-zones This machine has no time zone data, so it does not know 'Europe/Berlin'. "
        "Install the package tzdata: pip install tzdata.\n"
    )
