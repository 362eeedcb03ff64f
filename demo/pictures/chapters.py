"""What the pictures show, as it happens: the demo's story, and a second job, which fails."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from demo.job import FlightsJob, WaitedTooLongError
from demo.story import Story

JOBS_FILE = Path(__file__).with_name("streaming_jobs.toml")
WELL, FAILED, NEW = "flights", "delays", "aircraft"
"""The demo's job, which runs to the end; one whose restarts are given up; one that was never started."""
PATIENCE = 2.0
# The flights arrive more slowly than in the demo, so that the job still has work when the pictures are taken.
ROWS_PER_FILE = 1000
FILES_MS = 1800
FIRST_SAVEPOINT_AT = 8
MORE_BATCHES = 3
ARRIVED = 12
"""So many files of departures the second job reads."""
ENDED = frozenset({"success", "failed"})


def play(story: Story) -> None:
    """All that happens before the pictures."""
    story.patience = PATIENCE
    story.wait_for_airflow()
    story.start_the_job(rows_per_file=ROWS_PER_FILE, gap_ms=FILES_MS)
    first = story.take_savepoint("The first savepoint, hot", "hot", FIRST_SAVEPOINT_AT)
    second = story.take_savepoint("The second, incremental", "incremental", first.batch + MORE_BATCHES)
    story.disaster(second.batch + MORE_BATCHES)
    story.restore()
    story.rehearse()
    _arrive(story, ARRIVED)
    _let_one_fail(story)
    last = story.job.last_commit()
    story.take_savepoint("Before the night", "incremental", last.number if last else 0)
    _check_all(story)


def _let_one_fail(story: Story) -> None:
    """A job saves itself, then reads a file whose upload was cut off: each new driver fails at it again."""
    with story.screen.step(f"{FAILED}.run starts a second job, which then gets a torn file") as step:
        job = _start(story, FAILED)
        job.wait_for_batch(MORE_BATCHES, timeout_s=180 * story.patience, meanwhile=story.check)
        run = _trigger(story, f"{FAILED}.savepoint", {"note": "Before the night"})
        story.airflow.wait(f"{FAILED}.savepoint", run, timeout_s=180 * story.patience, meanwhile=story.check)
        torn = _tear(story)
        _until(story, lambda: _gave_up(story), f"restarts of {FAILED} are not given up", 400)
        step.detail = f"{torn} is cut off, each new driver fails at it, and {FAILED}.run gives up"


def _check_all(story: Story) -> None:
    """Judge each job, and search for problems ahead: what `<job>.sla` does each ten minutes."""
    with story.screen.step("Each job is judged by its .sla") as step:
        runs = {job: _trigger(story, f"{job}.sla") for job in (NEW, FAILED, WELL)}

        def ended() -> dict[str, str]:
            return {job: story.airflow.run_state(f"{job}.sla", run) for job, run in runs.items()}

        _until(story, lambda: set(ended().values()) <= ENDED, "the checks have not ended", 240)
        step.detail = ", ".join(f"{job} {state}" for job, state in ended().items())


def _start(story: Story, name: str) -> FlightsJob:
    """Start a job by its DAG."""
    run = _trigger(story, f"{name}.run")
    story.airflow.wait_for_task(
        f"{name}.run", run, "start", timeout_s=300 * story.patience, meanwhile=story.check
    )
    return FlightsJob(name, f"{story.repository}.control")


def _trigger(story: Story, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
    """Start a run of a DAG that was paused; its id."""
    story.airflow.unpause(dag_id)
    return story.airflow.trigger(dag_id, conf)


def _files(story: Story) -> list[Path]:
    """The files of departures that the first job has, oldest first."""
    return sorted((story.places.data / "input").glob("flights-*.json"))


def _arrive(story: Story, count: int) -> None:
    """The second job gets the same departures, by hard links: one file once it is whole."""
    target = story.places.data / "arrived"
    target.mkdir(exist_ok=True)
    _until(story, lambda: len(_files(story)) >= count, f"{count} files have not arrived", 120)
    for file in _files(story)[:count]:
        os.link(file, target / file.name)


def _tear(story: Story) -> str:
    """Half of a compressed file arrives; its name."""
    *_, newest = _files(story)
    whole = gzip.compress(newest.read_bytes(), mtime=0)
    target = story.places.data / "arrived" / f"{newest.name}.gz"
    hidden = target.with_name(f".{target.name}")
    hidden.write_bytes(whole[: len(whole) // 2])
    hidden.rename(target)
    return target.name


def _gave_up(story: Story) -> bool:
    """Whether the page says so."""
    shown: dict[str, Any] = story.airflow.call("GET", f"/streambank/jobs/{FAILED}")
    return any(one["kind"] == "give-up" for one in (shown["line"] or {}).get("waits") or ())


def _until(story: Story, true: Callable[[], bool], otherwise: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s * story.patience
    while not true():
        story.check()
        if time.monotonic() > deadline:
            raise WaitedTooLongError(f"{otherwise} after {timeout_s * story.patience:.0f} s")
        time.sleep(0.5)
