"""Each pattern as a job: a savepoint while it runs, kill -9, a restore, and the same answer."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.declaration.load import load_jobs
from tests.spark_jobs.patterns.cases.all import CASES
from tests.spark_jobs.patterns.cases.case import Case
from tests.support.cli import streambank
from tests.support.jobs.declared import end_drivers
from tests.support.spark.sessions import BUILD_CONF
from tests.support.waiting import poll

pytestmark = [pytest.mark.spark, pytest.mark.storm]

WITHIN_S = 180


class Story:
    """A pattern as a job, with its input and its output."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.source, self.output = folder / "in", folder / "out"
        self.jobs = folder / "streaming_jobs.toml"
        given = ["--input", str(self.source), "--output", str(self.output), "--trigger", "200 milliseconds"]
        given += case.prepare(folder)
        spark = {name: value for name, value in BUILD_CONF.items() if name != "spark.master"}
        self.jobs.write_text(
            f'repository = "savepoints"\n[jobs.pattern]\napplication = "{case.application}"\n'
            f"args = {json.dumps([*given, *case.args])}\n"
            'checkpoint = "checkpoint"\nmaster = "local[2]"\n[jobs.pattern.spark]\n'
            + "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in spark.items()),
            encoding="utf-8",
        )

    def do(self, verb: str, *options: str) -> Any:
        answer = streambank("job", verb, "pattern", "--jobs", self.jobs, "--json", *options)
        assert answer.code == 0, f"{verb}: {answer.out}{answer.err}{self.log()}"
        return answer.document

    def log(self) -> str:
        logs = sorted(self.folder.glob("savepoints.control/*/logs/*.log"), key=os.path.getmtime)
        return logs[-1].read_text(encoding="utf-8", errors="replace")[-5000:] if logs else ""

    def batch(self) -> int:
        status = self.do("status")
        assert status["state"] in ("running", "starting"), self.log()
        return int(status["queries"]["main"]["batch"] or 0)

    def until(self, batch: int) -> None:
        poll(lambda: self.batch() >= batch, timeout_s=WITHIN_S)

    def kill(self) -> None:
        status = self.do("status")
        for role in ("jvm_pid", "pid"):
            os.kill(status[role], signal.SIGKILL)
        poll(lambda: self.do("status")["state"] != "running")

    def restore(self) -> None:
        given = ("-r", self.folder / "savepoints", "--jobs", self.jobs, "--job", "pattern", "--generation")
        sink = ("--sink", "accept" if self.case.key else "rollback")
        answer = streambank("restore", "latest", *given, *sink)
        assert answer.code == 0, f"{answer.out}{answer.err}"


@pytest.fixture
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    made = Story(request.param, tmp_path)
    try:
        yield made
    finally:
        end_drivers(load_jobs(made.jobs).job("pattern").records())


@pytest.mark.parametrize("story", CASES, ids=str, indirect=True)
def test_killed_and_restored_it_still_equals_its_batch_computation(story: Story) -> None:
    case = story.case
    case.feed(story.source, 0, 2)
    story.do("start")
    story.until(1)
    story.do("savepoint")
    case.feed(story.source, 2, 3)
    story.until(2)
    story.kill()
    story.restore()
    story.do("start")
    story.until(2)
    case.feed(story.source, 3)
    story.do("stop", "--drain")
    assert case.written(story.output) == case.answer()
