"""A declared job whose records say how long its newest batch took, so that its SLA breaks and heals."""

from __future__ import annotations

from pathlib import Path

from streambank.core.units import utc_now
from streambank.declaration.load import load_jobs
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import write_jobs
from tests.support.sla.progress_records import BEGIN, line

SLA = 'batch_duration = {warn = "4s", breach = "5s", statistic = "last"}'
"""The newest batch of the last hour counts."""


def slow_job(folder: Path, more: str = "") -> Path:
    """The jobs file of `flights`, which has committed one batch in time."""
    file = write_jobs(folder, more=f"[jobs.flights.sla]\n{SLA}\n{more}")
    LiveCheckpoint(open_store(load_jobs(file).job("flights").checkpoint)).run(2)
    commit(file, 1.0)
    return file


def commit(jobs_file: Path, took_s: float) -> None:
    """One more batch, as long as that, in a separate file."""
    store = load_jobs(jobs_file).job("flights").records().store
    number = len(store.names("progress/main")) + 1
    second = (utc_now() - BEGIN).total_seconds()
    store.write(f"progress/main/{number:010d}.jsonl", line(number, second, took_s=took_s) + b"\n")
