"""A job that cannot be started for a while: the fault, who was alerted, and how many drivers there were."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank_airflow.operators import driver
from tests.support.jobs.managed_job import Managed

DECLARED = """
[jobs.flights.health]
backoff = "100ms"
max_failures = 1
max_restarts = 1

[[jobs.flights.notify]]
class = "tests.support.airflow_face.notifiers.FileNotifier"
args = {{file = "{}", text = "{{{{ kind }}}}: {{{{ message }}}}"}}
"""


class Faults:
    """How often something has failed, and whether it still does."""

    def __init__(self) -> None:
        self.on = True
        self.count = 0

    def fail(self) -> bool:
        self.count += self.on
        return self.on

    def end(self) -> None:
        self.on = False


def wait_less(patch: pytest.MonkeyPatch) -> None:
    """Let a task try again after a moment."""
    patch.setattr(driver, "FIRST_WAIT_S", 0.05)
    patch.setattr(driver, "LONGEST_WAIT_S", 0.2)


def alerts_of(managed: Managed) -> Path:
    """Not on the job's own disk."""
    return managed.folder.with_name(f"{managed.folder.name}-alerts")


def alerts(managed: Managed) -> list[str]:
    file = alerts_of(managed)
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def kinds(managed: Managed) -> list[str]:
    return [line.partition(":")[0] for line in alerts(managed)]


def launches(managed: Managed) -> int:
    return len(managed.control.lease.recent_launches())


def declare_alerts(managed: Managed) -> None:
    """Let the job give up at once, and alert into a file."""
    managed.declare(DECLARED.format(alerts_of(managed)))
