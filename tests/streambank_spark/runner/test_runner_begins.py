"""What a runner does before it reads the application: whose child it is, and that its lease is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import ProcessId, program_of, this_process
from streambank.core.errors import InternalError, RefusedError
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec
from streambank_spark.private import boundary
from streambank_spark.runner import refusals, runner, superseded
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses
from tests.support.waiting import poll

JAVA = "import time; print(flush=True); time.sleep(60)"


def test_an_orphan_takes_nobody_else_for_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    for stranger in (1, os.getpid()):
        monkeypatch.setattr(os, "getppid", lambda pid=stranger: pid)
        with pytest.raises(InternalError, match="is gone"):
            runner._jvm_process()


def test_a_parent_that_is_java_is_the_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(
        [str(tmp_path / "java"), "-c", JAVA], executable=sys.executable, stdout=subprocess.PIPE
    ) as java:
        try:
            assert java.stdout is not None and java.stdout.readline()
            monkeypatch.setattr(os, "getppid", lambda: java.pid)
            found = runner._jvm_process()
            assert (found.role, found.pid) == ("jvm", java.pid)
        finally:
            java.kill()
    assert program_of(found) is None


def test_the_program_of_a_later_process_with_the_same_pid_is_not_told() -> None:
    mine = this_process("python")
    assert program_of(mine) is not None
    assert program_of(ProcessId("python", mine.pid, mine.start_ticks - 1)) is None


def test_a_driver_that_comes_up_late_begins_nothing_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launcher saw the checkpoint, as did the launcher of one that a master brings back."""
    job = declare(tmp_path)
    control = job.records()
    (tmp_path / "checkpoints/flights").mkdir(parents=True)
    (tmp_path / "checkpoints/flights/metadata").write_text("{}")
    control.record_query(None, {"generation": 1, "query_id": "q"})
    spec = prepare_launch(job, control, by=BY)
    (tmp_path / "checkpoints/flights").rename(tmp_path / "checkpoints/away")
    monkeypatch.setattr(runner, "_jvm_process", lambda: this_process("jvm"))
    monkeypatch.setattr(refusals, "check_environment", lambda environment: None)
    monkeypatch.setattr(boundary, "require_known_spark", lambda version: None)

    with refuses(RefusedError, "checkpoint-lost") as refused:
        runner.run(spec)

    view = control.lease.view()
    assert view is not None and (view.state, view.end["how"]) == ("ended", "refused")
    supervised = replace(spec, deploy_mode="cluster", supervised=True)
    assert superseded.exit_code(supervised, refused.value) == 0, (
        "its master would bring it back again and again"
    )
    event = control.last_event("driver-refused")
    assert event is not None and event["code"] == "checkpoint-lost"


def test_the_lease_is_kept_while_the_records_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = declare(tmp_path)
    control = job.records()
    spec = replace(prepare_launch(job, control, by=BY), beat_s=0.05)
    monkeypatch.setattr(runner, "_jvm_process", lambda: this_process("jvm"))
    monkeypatch.setattr(refusals, "check_environment", lambda environment: None)
    monkeypatch.setattr(boundary, "require_known_spark", lambda version: None)
    beats: list[int] = []

    def read_for_long(spec: LaunchSpec, control: JobControl, claim: object) -> None:
        def beaten() -> int:
            view = control.lease.view()
            return int(view.beat["beat"]) if view is not None and view.beat else 0

        first = poll(beaten)
        beats.append(poll(lambda: beaten() if beaten() > first + 2 else 0))
        raise RefusedError("it was stopped", code="not-wanted", hint="x")

    monkeypatch.setattr(runner, "check_not_superseded", read_for_long)
    with pytest.raises(RefusedError):
        runner.run(spec)
    view = control.lease.view()
    assert view is not None and (view.state, view.end["how"]) == ("ended", "refused")
    assert int(view.beat["beat"]) <= beats[0] + 2, "it goes on beating"
