"""Findings on a job that is meant to run, and does not, or that nothing would restart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from streambank.core.finding import Finding
from streambank.core.units import say_duration, to_json_time
from streambank.job.alive import PATIENCE_S, Life


def check_life(job: str, life: Life, now: datetime) -> Iterator[Finding]:
    """A job that is down, or unwatched although somebody is expected to watch it."""
    if life.down_since is not None and life.down_s(now) > PATIENCE_S:
        yield Finding(
            "not-running",
            "error",
            "",
            f"Job {job} is meant to run, and has not done so for {say_duration(life.down_s(now))}, since "
            f"{to_json_time(life.down_since)}. {life.down_why}",
            "Its input waits, and nothing is written.",
            f"Read the end of the last driver's log. Then unpause and trigger {job}.run, or "
            f"`streambank job start {job}`. If it is not meant to run, trigger {job}.stop, or "
            f"`streambank job stop {job}`.",
        )
    if life.is_unwatched(now, PATIENCE_S):
        runs = "runs, but nothing would restart it" if life.up else "is not watched"
        yield Finding(
            "not-watched",
            "error",
            "",
            f"Job {job} {runs}. {life.unwatched_why}",
            "A driver that dies, or hangs, stays so until a person notices.",
            f"Unpause {job}.run if it is paused, and trigger it: it finds the driver that runs, and watches "
            f"it. To stop a job, trigger {job}.stop; do not pause {job}.run.",
        )
