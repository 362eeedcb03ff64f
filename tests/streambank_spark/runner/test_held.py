"""How a driver ends that waits at its first query, and is not needed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from streambank.control.processes import process
from streambank.driver.spec import NOT_NEEDED
from tests.support.jobs.declared import declare, launched
from tests.support.processes import DEAF, TIDY, child, say

WAITS = """
import subprocess, sys

from streambank.control.processes import process
from streambank.declaration.load import load_jobs
from streambank.driver.spec import read_launch
from streambank_spark.runner import held

jobs, launch, code, temporary, gently_s = sys.argv[1:]
held.GENTLY_S = float(gently_s)
control = load_jobs(jobs).job("flights").records()
jvm = subprocess.Popen([sys.executable, "-c", code, temporary], stdout=subprocess.PIPE, text=True)
jvm.stdout.readline()
print(jvm.pid, flush=True)
one = held.HeldLaunch(read_launch(control, launch), control, process(jvm.pid, "jvm"), None, None)
one.end("the upgrade has ended")
"""


@pytest.mark.storm
@pytest.mark.parametrize(("code", "gently_s", "left"), [(TIDY, 60, False), (DEAF, 0.2, True)])
def test_its_jvm_may_remove_its_temporary_files(
    tmp_path: Path, code: str, gently_s: float, left: bool
) -> None:
    job = declare(tmp_path)
    control, spec = launched(job)
    temporary = tmp_path / "temporary"
    temporary.touch()
    with child(WAITS, job.source, spec.launch_id, code, temporary, str(gently_s)) as driver:
        jvm = int(say(driver))
        assert driver.wait(timeout=60) == -signal.SIGKILL
    assert temporary.exists() is left
    assert process(jvm, "jvm") is None
    event = control.last_event(NOT_NEEDED)
    assert event is not None and event["why"] == "the upgrade has ended"
