"""A refresh that is killed at each of its steps: the copy in use stays, or the new one is; never a half."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streambank.checkpoint.position import batches_of
from streambank.control.copies import copied
from streambank.declaration.declaration import Job
from streambank.driver.prepare import prepare_launch
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from tests.support.jobs.copied_job import STAGING, CopiedJob, numbered
from tests.support.jobs.declared import fake_launcher
from tests.support.jobs.simulated_job import BY

pytestmark = [pytest.mark.storm, pytest.mark.timeout(600)]

KILLED = """
import os, signal, sys
from streambank.copies import refresh
from streambank.declaration.load import load_jobs
from streambank.recovery import lay_out
jobs, step, when = sys.argv[1:]
module = lay_out if step in ("materialize", "begin_outputs") else refresh
original = getattr(module, step)

def killed(*args, **options):
    if when == "after":
        original(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(module, step, killed)
if when == "between":
    from streambank.control.generations import Generations
    Generations.switch = killed
    setattr(module, step, original)
refresh.refresh(refresh.RefreshRequest(load_jobs(jobs).job("orders"), "staging", by={"user": "tester"}))
"""
FILLING = ("begin_refresh", "claim", "materialize", "begin_outputs", "commit_refresh")
STEPS = [
    *((step, "before") for step in FILLING),
    *((step, "after") for step in FILLING),
    ("commit_refresh", "between"),
    ("renew_marker", "before"),
    ("renew_marker", "after"),
]
NEW_FROM = ("commit_refresh after", "commit_refresh between", "renew_marker before", "renew_marker after")
"""After these the new copy is in use."""


def kill_at(made: CopiedJob, step: str, when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(made.jobs), step, when],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, f"the fault did not fire: {done.stdout}{done.stderr}"


def in_use(copy: Job) -> dict[str, str]:
    """The checkpoint and the output with which the copy would be started now, both whole."""
    launch = prepare_launch(copy, copy.records(), by=BY)
    query = launch.queries["main"]
    assert query.redirect is not None
    (output,) = query.redirect.outputs.values()
    saved, committed = copied(copy.records())["main"].batch, batches_of(query.checkpoint).committed
    assert committed is not None and committed >= saved
    log = Path(output.removeprefix("file://")) / "_spark_metadata"
    assert str(saved) in {path.name for path in log.iterdir()}
    metadata = Path(query.checkpoint.removeprefix("file://")) / "metadata"
    return {"checkpoint": query.checkpoint, "output": output, "id": json.loads(metadata.read_text())["id"]}


@pytest.mark.parametrize(("step", "when"), STEPS)
def test_a_killed_refresh_leaves_a_whole_copy(tmp_path: Path, step: str, when: str) -> None:
    made = CopiedJob(tmp_path, f'args = ["--period-s", "0.2"]\n{STAGING}keep = 1\n')
    first = made.refresh().queries[0]
    newer = made.run(3).take()
    live = made.live_files()
    kill_at(made, step, when)
    assert made.live_files() == live

    copy = made.on()
    committed = f"{step} {when}" in NEW_FROM
    if committed:
        # Whatever starts on the copy makes up for what was cut off: the launch that it writes shows it.
        start = start_job(copy, by=BY, wait=False, launcher=fake_launcher(tmp_path))
        assert start.generations == {"main": 3}
        stop_job(copy, by=BY, force_after_s=0.1, launcher=fake_launcher(tmp_path))
        assert in_use(copy)["checkpoint"].endswith("ck.g0003")
    else:
        found = in_use(copy)
        assert (found["checkpoint"], found["id"]) == (first.location, first.query_id)

    again = made.refresh()
    assert again.queries[0].savepoint == newer.savepoint
    assert in_use(copy)["checkpoint"] == again.queries[0].location
    number = f"g{again.queries[0].generation:04d}"
    left = numbered(tmp_path / "staging")
    assert left == {f"ck.{number}", f"out.{number}"}, "nothing of the killed refresh stays"
    assert made.live_files() == live
