"""A job with drills in its records, of which nothing else is real."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from streambank.control.drills import record_drill
from streambank.core.python310 import UTC
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from tests.support.jobs.declared import declare

BEGUN = datetime(2026, 9, 6, 4, tzinfo=UTC)
LIMITS = """
[jobs.flights.sla]
recovery_time = {warn = "20s", breach = "1h"}
savepoint_age = {breach = "2h"}
"""


def drilled_job(folder: Path, more: str = LIMITS) -> Job:
    return declare(folder, more=more)


def drilled(job: Job, week: float, savepoint: str = "b000041-c28c1611906f", **changes: Any) -> None:
    """Leave the report of a drill that passed, or failed where it is said so."""
    at = to_json_time(BEGUN + timedelta(weeks=week))
    steps = {"choose": 1.0, "restore": 2.0, "stage": 9.0, "launch": 10.0, "state": 9.0, "batches": 12.0}
    report = {
        "job": job.name,
        "passed": "failed_step" not in changes,
        "failed_step": None,
        "error": "",
        "not_run": "",
        "queries": [{"query": "main", "savepoint": savepoint}],
        "steps": {**steps, "compare": 9.0, "clean": 9.0},
        "rto_s": None if "failed_step" in changes else 17.0,
        "rpo_s": 3600.0,
        "started_at": at,
        "round": None,
    }
    record_drill(job.records(), {**report, **changes})
